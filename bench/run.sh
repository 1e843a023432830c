#!/bin/sh
#
# The benchmark: one worker on a core, the load and Redis on another; then two
# workers, and the load and Redis where there is room. See README.md for how to
# read it.
#
# ROUNDS                how often each variant is measured (5)
# SECONDS_EACH          for how long each time (1)
# QUICK=1               one round: to see that it works
# ONLY                  a regex: the groups of the table to measure (all, and
#                       then rules.sh)
# AWAKE=0               on a busy machine: latency.c does not keep the cores awake
# WORKER_CPU, LOAD_CPU  the cores (0, 1)
# MODULE, NGINX, PORTS  see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

WORKER_CPU=${WORKER_CPU:-0}
LOAD_CPU=${LOAD_CPU:-1}

if [ "${QUICK:-0}" = 1 ]; then
    ROUNDS=${ROUNDS:-1} SECONDS_EACH=${SECONDS_EACH:-1}
fi

MODULES=${MODULES:-/usr/lib/nginx/modules}

need wrk wrk
need perl perl
need "${CC:-cc}" gcc
need redis-server redis-server
need redis-cli redis-tools
need "$NGINX" nginx
[ -e "$MODULE" ] || die "no $MODULE; make build"
[ "$(nproc --all)" -ge 2 ] || die "two cores are needed"

for file in "$MODULES/ndk_http_module.so" "$MODULES/ngx_http_lua_module.so" \
            /usr/share/lua/5.1/nginx/redis.lua
do
    [ -e "$file" ] || die "no $file; install libnginx-mod-http-lua and" \
                          "lua-nginx-redis"
done

PEER_MODULES="load_module $MODULES/ndk_http_module.so;"
PEER_MODULES="$PEER_MODULES load_module $MODULES/ngx_http_lua_module.so;"
PEER="include $DIR/peer.conf;"

routes_conf
fill nginx.conf
fill peer.conf

start_redis "$LOAD_CPU" 90
start_cluster "$LOAD_CPU"
servers=$pids

"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -o "$DIR/latency" "$BENCH/latency.c" -lm

echo "$(date -u +%Y-%m-%d), $(nproc --all) cores of" \
     "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
     "$(uname -sr), $("$NGINX" -v 2>&1 | sed 's/.*: //')," \
     "$(redis-server --version | cut -d ' ' -f 1-3)"

# mask <cpu>: as nginx writes it, a digit for each processor
mask() {
    printf '1%0*d' "$1" 0 | cut -c "1-$(($1 + 1))"
}

# measure <workers> <affinity> <processors of the load>
measure() {
    taskset -c "$WORKER_CPU,$LOAD_CPU" "$NGINX" -p "$DIR/" \
        -c "$DIR/nginx.conf" -e "$DIR/error.log" \
        -g "daemon off; worker_processes $1; worker_cpu_affinity $2;" &
    nginx=$!
    pids="$nginx $servers"
    until_ok nginx perl "$BENCH/requests.pl" "${PORTS}01" 1

    for pid in $servers; do
        taskset -acp "$3" "$pid" > /dev/null
    done

    taskset -c "$3" perl "$BENCH/measure.pl" "$nginx" "$1" "$PORTS" \
        "${ROUNDS:-5}" "${SECONDS_EACH:-1}" "${ONLY:-.}" "$WORKER_CPU" \
        "$LOAD_CPU" "$DIR/latency" &
    load=$!
    pids="$load $pids"
    wait "$load" || { tail -n 5 "$DIR/error.log" >&2; die "failed"; }

    kill "$nginx"
    wait "$nginx" || die "nginx failed"
    pids=$servers
}

one=$(mask "$WORKER_CPU") two=$(mask "$LOAD_CPU")

measure 1 "$one" "$LOAD_CPU"
measure 2 "$one $two" "$WORKER_CPU,$LOAD_CPU"

check_error_log

if [ -z "${ONLY:-}" ]; then
    echo
    "$BENCH/rules.sh"
fi
