#!/bin/bash
#
# Measures what docs/scaling.md computes with: prints lines for bench/figures.
# See README.md.
#
# ONLY      calls, threads, memory, or fleet (all)
# ROUNDS    how often each is measured (5)
# RATE      requests a second of the fleet (12000)
# GATEWAY_CPU, LOAD_CPU  the cores (0, 1); Redis has the first one where there
#           are no gateways, and else the second one
# MODULE, NGINX, PORTS   see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

ONLY=${ONLY:-calls threads memory fleet}
ROUNDS=${ROUNDS:-5}
GATEWAY_CPU=${GATEWAY_CPU:-0}
LOAD_CPU=${LOAD_CPU:-1}

need perl perl
need "${CC:-cc}" gcc
need redis-server redis-server
need redis-cli redis-tools
need redis-benchmark redis-tools
need "$NGINX" nginx
[ -e "$MODULE" ] || die "no $MODULE; make build"
[ "$(nproc --all)" -ge 2 ] || die "two cores are needed"

# sockets: 1,600 and some
ulimit -n 4096

"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -o "$DIR/latency" "$BENCH/latency.c" -lm

# measure <cpu of the load> <part> <argument>...
measure() {
    load_cpu=$1
    shift

    taskset -c "$load_cpu" perl "$BENCH/fleet.pl" "$ROUNDS" "$DIR/latency" \
        "$load_cpu" "$PORTS" "$@" &
    load=$!
    pids="$load $pids"
    wait "$load" || { tail -n 5 "$DIR"/error.log >&2 || true; die "failed"; }
}

# end: all servers
end() {
    for pid in $pids; do
        kill "$pid" 2> /dev/null || true
        wait "$pid" || true
    done

    rm -rf "$DIR"/redis*
    pids=
}

# cluster <port's last digits>...: so many primaries, of which 1 and 2 are too
# few for redis-cli
cluster() {
    n=0 first=$1 all=$#

    for digits in "$@"; do
        start_redis "$LOAD_CPU" "$digits" --cluster-enabled yes
        redis-cli -p "$PORTS$digits" cluster addslotsrange \
            $((n * 16384 / all)) $(((n + 1) * 16384 / all - 1)) > "$DIR/answer"
        redis-cli -p "$PORTS$digits" cluster meet 127.0.0.1 "$PORTS$first" \
            > "$DIR/answer"
        n=$((n + 1))
    done

    for digits in "$@"; do
        until_ok "the cluster" cluster_serves "$PORTS$digits"
    done
}

# gateway <number>
gateway() {
    sed "s|@G@|$1|g" "$DIR/fleet.conf" > "$DIR/gateway$1.conf"
    taskset -c "$GATEWAY_CPU" "$NGINX" -p "$DIR/" -c "$DIR/gateway$1.conf" \
        -e "$DIR/error.log" -g "daemon off;" &
    gateways="$gateways $!"
    pids="$! $pids"
    until_ok "gateway $1" perl "$BENCH/requests.pl" "$PORTS${1}0" 1
}

echo "# $(date -u +%Y-%m-%d), bench/fleet.sh, $(nproc --all) cores of" \
     "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
     "$(uname -sr), $(redis-server --version | cut -d ' ' -f 1-3)"

for part in $ONLY; do
    case $part in
    calls | memory)
        start_redis "$GATEWAY_CPU" 30
        measure "$LOAD_CPU" "$part" "${pids##* }"
        ;;

    threads)
        servers=
        for n in 1 2 4; do
            start_redis "$GATEWAY_CPU,$LOAD_CPU" "3$n" --io-threads "$n"
            servers="$servers $n ${pids##* }"
        done

        # shellcheck disable=SC2086
        measure "$GATEWAY_CPU,$LOAD_CPU" threads $servers
        ;;

    fleet)
        fill fleet.conf
        start_redis "$LOAD_CPU" 90
        cluster 91
        cluster 92 93
        cluster 94 95 96
        servers=$pids gateways=

        for n in 1 2 3 4; do
            gateway "$n"
        done

        # shellcheck disable=SC2086
        measure "$LOAD_CPU" fleet $gateways $servers
        check_error_log
        ;;

    *)
        die "no part \"$part\""
        ;;
    esac

    end
done
