#!/bin/sh
#
# Writes a C file that holds the given files, one behind the other, as
# ngx_rl_api_page_<kind> (see src/http/api). Several files of a
# script are one function: they share names with each other, and with nothing
# else.
#
#   tools/embed-page.sh html|css|js <file>... > <file.c>

set -eu

kind=$1
name=ngx_rl_api_page_$kind
shift

text() {
    [ "$kind" != js ] || printf '(function () {\n"use strict";\n'
    cat "$@"
    [ "$kind" != js ] || printf '}());\n'
}

cat <<END
/* Made from page/ by tools/embed-page.sh. */

#include "ngx_rl_api_page.h"

const char  ${name}[] =
END

text "$@" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/'

cat <<END
    ;

const size_t  ${name}_len =
    sizeof($name) - 1;
END
