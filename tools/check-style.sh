#!/bin/sh
#
# The part of the style that a program can judge: no tabs, no trailing blanks,
# no // comments, 80 columns, a function's name at the start of its line and its
# brace on one of its own. In Perl of t/: no blank line inside a block or behind
# a comment.
#
#   tools/check-style.sh [fix] [<file.c|.h>...]    all sources without files,
#                                                  and all files of t/
#
# fix mends tabs and trailing blanks first.

set -eu

cd "$(dirname "$0")/.."

fix=
if [ "${1:-}" = fix ]; then
    fix=yes
    shift
fi

tests=
# shellcheck disable=SC2046
[ $# -gt 0 ] || tests=$(find t -name '*.t' -o -name '*.p[ml]')
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- *.c $(find src feeder t bench -name '*.[ch]' 2> /dev/null)

if [ -n "$fix" ]; then
    for file in "$@"; do
        if grep -q -e "$(printf '\t')" -e '[[:blank:]]$' "$file"; then
            expand -t 4 "$file" | sed 's/[[:blank:]]*$//' > "$file.fixed"
            cat "$file.fixed" > "$file"
            rm "$file.fixed"
            echo "$file"
        fi
    done
fi

awk '
    function bad(what) {
        printf "%s:%d: %s\n", FILENAME, FNR, what
        failed = 1
    }

    # the end of a file shows when the next one starts
    function end_of_file() {
        if (file != "" && last == "") {
            print file ": ends with a blank line"
            failed = 1
        }
    }

    FNR == 1 { end_of_file() }
             { file = FILENAME; last = $0 }

    /\t/                   { bad("tab") }
    /[ \r]$/               { bad("trailing blank") }
    length($0) > 80        { bad("longer than 80 columns") }

    {
        code = $0
        gsub(/\\./, "", code)              # what may quote a quote
        gsub(/"[^"]*"/, "", code)          # no // inside a string counts
        gsub(/\/\*.*\*\//, "", code)
    }

    code ~ /(^|[^:*])\/\// && code !~ /^ ?\*/ { bad("// comment") }
    code ~ /^static [^=;(]*[ *][a-z_0-9]+\(.*[^;,]$/ && code !~ /;/ {
        bad("name of a function not at the start of its line")
    }
    code ~ /^[a-z].*\) *{$/ { bad("brace of a function on its line") }

    END {
        end_of_file()
        exit failed
    }
' "$@"

# shellcheck disable=SC2086
[ -z "$tests" ] || awk '
    FNR == 1                        { blank = code = 1; body = 0 }
    /^__(DATA|END)__/               { code = 0 }
    code && blank && (!NF || /^[ })\]]/) {
        printf "%s:%d: blank line inside a block, or two\n", FILENAME, FNR
        failed = 1
    }
    code && body && blank && comment && NF && !/^#/ {
        printf "%s:%d: blank line behind a comment\n", FILENAME, FNR
        failed = 1
    }
                                    { blank = !NF }
    NF                              { comment = /^#/ }
    NF && !/^#/                     { body = 1 }

    END { exit failed }
' $tests
