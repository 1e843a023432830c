#!/bin/sh
#
# Who may include whom, and never the other way:
#
#   module -> http -> engine -> rules -> {redis, peers, shm} -> {net, core}
#
# src/core knows no nginx header; hiredis is met only in .c files of src/redis, jansson
# only in src/rules/*json.[ch] and in src/http/*json.c, *jwt.c and *api*.c,
# ngx_http.h only in src/http and the front door. Outside src/core a header of src/core
# is never the first: nginx's say what libc offers, and libc reads that once.
#
#   tools/check-includes.sh [<root>]

set -eu

cd "${1:-$(dirname "$0")/..}"

find ngx_http_ratelimit_module.c src -name '*.[ch]' -exec awk '
    BEGIN {
        may["core"]   = " core "
        may["shm"]    = " shm core "
        may["net"]    = " net "
        may["redis"]  = " redis net core "
        may["peers"]  = " peers net core "
        may["rules"]  = " rules redis peers shm net core "
        may["engine"] = " engine rules redis peers shm net core "
        may["http"]   = " http engine rules redis peers shm net core "
        may["module"] = may["http"]

        # where each header of ours lives
        for (i = 1; i < ARGC; i++) {
            n = split(ARGV[i], part, "/")
            if (part[1] == "src" && ARGV[i] ~ /\.h$/) home[part[n]] = part[2]
        }
    }

    function bad(why) {
        printf "%s:%d: %s: %s\n", FILENAME, FNR, $0, why
        failed = 1
    }

    FNR == 1 {
        first = 1
        n = split(FILENAME, part, "/")
        room = (n == 1) ? "module" : part[2]
        name = part[n]
        if (!(room in may)) { print FILENAME ": unknown room"; failed = 1 }
        if (name !~ /^ngx_(rl_|http_ratelimit_module\.)/) {
            print FILENAME ": name without the prefix"
            failed = 1
        }
    }

    !/^[ \t]*#[ \t]*include/ { next }

    {
        header = $0
        sub(/^[^<"]*[<"]/, "", header)
        sub(/[>"].*/, "", header)
        n = split(header, part, "/")
        base = part[n]
    }

    first && room != "core" && base in home && home[base] == "core" {
        bad("behind a header of nginx, please")
    }

    { first = 0 }

    base in home {
        if (header != base) bad("by its name alone, please")
        if (index(may[room], " " home[base] " ") == 0)
            bad(room " may not include " home[base])
        next
    }

    base ~ /^ngx_/ && room == "core"     { bad("no nginx header in src/core") }
    base ~ /^ngx_http/ && room != "http" && room != "module" {
        bad("HTTP below src/http")
    }
    header ~ /hiredis|^(async|read|sds)\.h$/ \
        && (room != "redis" || name !~ /\.c$/) {
        bad("hiredis outside src/redis/*.c")
    }
    base ~ /^jansson/ && !(room == "rules" && name ~ /json\.[ch]$/) \
        && !(room == "http" && name ~ /(api.*|json|jwt)\.c$/) {
        bad("jansson outside src/rules/*json.[ch], src/http/*json.c, *jwt.c " \
            "and *api*.c")
    }

    END { exit failed }
' {} +
