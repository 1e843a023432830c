#!/bin/sh
#
# Redis alone: what a check costs it, against INCR, a script that does nothing,
# and another version of the script. See README.md.
#
# OLD                  a file with that version (the same one: its ratio is the
#                      noise)
# KIND                 t, f or s: the counters, see lua/check.lua (t)
# REDIS_CPU, LOAD_CPU  the cores (0, 1)
# PORTS                see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

REDIS_CPU=${REDIS_CPU:-0}
LOAD_CPU=${LOAD_CPU:-1}

need perl perl
need redis-server redis-server
need redis-cli redis-tools
[ "$(nproc --all)" -ge 2 ] || die "two cores are needed"

compile_redis
start_redis "$REDIS_CPU" 30

sha=$(perl "$BENCH/redis-loss.pl" sha "${PORTS}30")
old=$(perl "$BENCH/redis-loss.pl" sha "${PORTS}30" ${OLD:+"$OLD"})
nothing=$(redis-cli -p "${PORTS}30" script load 'return 0')

redis-server --version | cut -d ' ' -f 1-3
taskset -c "$LOAD_CPU" "$REDIS_TOOL" speed "$sha" "$old" "$nothing" \
    "${KIND:-t}" "${PORTS}30"
