#!/bin/sh
#
# Writes a C file that holds the given Lua file as ngx_rl_lua_<name> (see
# src/redis/ngx_rl_lua.h). A line "-- include <file>" stands for the lines
# of that file, of the same folder.
#
# Comments and blanks stay behind, and local names become short: before a client
# has authenticated Redis takes no argument above 16 KB from it, closes the
# connection, and does not say that the password is what is wrong.
#
#   tools/embed-lua.sh <name> <file.lua> > <file.c>

set -eu

MOST=16384

name=ngx_rl_lua_$1

# A local name is one name in all of the text, whatever its scope, so a new one
# that nothing else has is right everywhere. What follows "." or ":" is a field
# and keeps its name. No local name may be the key of a table constructor.
text=$(awk -v main="$2" '
    function read(file,    line, rc) {
        while ((rc = (getline line < file)) > 0) {
            if (line ~ /^ *-- include /) {
                sub(/^ *-- include /, "", line)
                read(folder line)
            } else if (line !~ /^ *(--|$)/) {
                s = s line "\n"
            }
        }

        if (rc < 0) {
            print "embed-lua: cannot read " file > "/dev/stderr"
            exit failed = 1
        }

        close(file)
    }

    # the next token of s, in t; 0: there is none
    function token(    rest) {
        rest = substr(s, at)
        match(rest, /^[ \n]+/)

        if (RLENGTH > 0) {
            t = index(substr(rest, 1, RLENGTH), "\n") ? "\n" : " "
        } else {
            if (!match(rest, /^\047[^\047]*\047/) &&
                !match(rest, /^"[^"]*"/) &&
                !match(rest, /^[A-Za-z_][A-Za-z_0-9]*/) &&
                !match(rest, /^[0-9]+(\.[0-9]+)?/) &&
                !match(rest, /^(\.\.\.?|==|~=|<=|>=)/))
            {
                RLENGTH = 1
            }

            t = substr(rest, 1, RLENGTH)
        }

        at += RLENGTH
        return at - RLENGTH <= length(s)
    }

    function word(x) { return x ~ /^[A-Za-z_]/ }

    # whether two tokens would be read as one without a blank between
    function joins(x, y) {
        return (x ~ /[A-Za-z_0-9]$/ && y ~ /^[A-Za-z_0-9]/) ||
               (x ~ /^[0-9]/ && y ~ /^\./) || (x == "-" && y == "-") ||
               (x == "[" && y == "[")
    }

    # a, b, ..., z, A, ..., Z, aa, ...
    function short(n) {
        return (n < 52 ? "" : short(int(n / 52) - 1)) \
               substr("abcdefghijklmnopqrstuvwxyz" \
                      "ABCDEFGHIJKLMNOPQRSTUVWXYZ", n % 52 + 1, 1)
    }

    BEGIN {
        folder = main
        sub(/[^\/]*$/, "", folder)
        read(main)

        for (at = 1; token(); ) {
            if (t != " " && t != "\n") {
                tokens[++n] = t
                blank[n] = pending
                pending = ""
            } else if (pending != "\n") {
                pending = t
            }
        }

        # declared: the names behind "local" and "for", and those between the
        # parentheses behind "function"
        for (i = 1; i <= n; i++) {
            t = tokens[i]
            used[t] = 1

            if (t == "local" || t == "for") {
                list = 1
            } else if (t == "function") {
                list = 2
            } else if (list == 2 && t == "(") {
                list = 1
            } else if (list && word(t) &&
                       tokens[i - 1] ~ /^(local|for|function|,|\()$/)
            {
                names[t] = 1
            } else if (list && t != ",") {
                list = 0
            }
        }

        for (i = 1; i <= n; i++) {
            t = tokens[i]
            last = tokens[i - 1]

            if (t in names && length(t) > 2 && last != "." && last != ":") {
                if (!(t in becomes)) {
                    do {
                        becomes[t] = short(count++)
                    } while (becomes[t] in used)
                }

                t = becomes[t]
            }

            printf "%s%s", blank[i] == "\n" ? "\n" \
                           : joins(tokens[i - 1], t) ? " " : "", t
        }
    }')

if [ ${#text} -ge $MOST ]; then
    echo "embed-lua: the script has ${#text} bytes, expected fewer than $MOST" >&2
    exit 1
fi

cat <<END
/* Made from lua/ by tools/embed-lua.sh. */

#include "ngx_rl_lua.h"

const char  ${name}[] =
END

printf '%s\n' "$text" \
    | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/'

cat <<END
    ;

const size_t  ${name}_len =
    sizeof($name) - 1;
END
