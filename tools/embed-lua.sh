#!/bin/sh
#
# Writes a C file that holds the given Lua files, joined in this order, as
# ngx_ratelimit_lua_<name> (see src/redis/ngx_ratelimit_lua.h).
#
# Comments and most blanks stay behind: before a client has authenticated Redis
# takes no argument above 16 KB from it, closes the connection, and does not say
# that the password is what is wrong.
#
#   tools/embed-lua.sh <name> <file.lua>... > <file.c>

set -eu

MOST=16384

name=ngx_ratelimit_lua_$1
shift

# not around "-" and "..", which would make a comment, or a number, of something
text=$(sed -e '/^ *--/d' -e 's/^ *//' -e '/^$/d' -e 's/, /,/g' \
           -e 's/ \([=<>+*/]\|==\|~=\|<=\|>=\) /\1/g' "$@")

if [ ${#text} -ge $MOST ]; then
    echo "embed-lua: the script has ${#text} bytes, expected fewer than $MOST" >&2
    exit 1
fi

cat <<END
/* Made from lua/ by tools/embed-lua.sh. */

#include "ngx_ratelimit_lua.h"

const char  ${name}[] =
END

printf '%s\n' "$text" \
    | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/'

cat <<END
    ;

const size_t  ${name}_len =
    sizeof($name) - 1;
END
