#!/bin/sh
#
# Writes a C file that holds the given Lua files, joined in this order, as
# ngx_ratelimit_lua_check (see src/redis/ngx_ratelimit_lua.h).
#
#   tools/embed-lua.sh <file.lua>... > <file.c>

set -eu

cat <<'END'
/* Made from lua/ by tools/embed-lua.sh. */

#include "ngx_ratelimit_lua.h"

const char  ngx_ratelimit_lua_check[] =
END

sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/' "$@"

cat <<'END'
    ;

const size_t  ngx_ratelimit_lua_check_len =
    sizeof(ngx_ratelimit_lua_check) - 1;
END
