#!/bin/sh
#
# Instructions that a worker executes for a request, in user space, counted by
# valgrind: no noise, on any machine; see README.md for what they do not tell.
#
# What a start costs cancels out: the difference of two runs, of 500 and of
# 2,500 requests one after the other on one connection, is what 2,000 cost.
#
# ONLY                  a pattern (grep -E) of the names to count, beside the
#                       first, which all others are compared with
# MODULE, NGINX, PORTS  see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

FEW=500
MANY=2500
base=
parts=
path=/

need valgrind valgrind
need perl perl
need redis-server redis-server
need redis-cli redis-tools
need "$NGINX" nginx
[ -e "$MODULE" ] || die "no $MODULE; make build"

# collect <port> <requests> <keys> <expected answers>: sets collected; all, or
# with $parts those of the functions whose names it matches
collect() {
    # no run finds what another has spent
    redis-cli -p "${PORTS}90" flushall > "$DIR/answer"

    valgrind --tool=callgrind --callgrind-out-file="$DIR/callgrind" \
        "$NGINX" -p "$DIR/" -c "$DIR/nginx.conf" -e "$DIR/error.log" \
        -g 'daemon off; master_process off;' 2> "$DIR/valgrind" &
    nginx=$!
    pids="$nginx $servers"

    # of no variant, and once: Redis is connected to meanwhile
    until_ok nginx perl "$BENCH/requests.pl" "${PORTS}01" 1
    sleep 1

    answers=$(perl "$BENCH/requests.pl" "$1" "$2" "$3" 0 1 1 "$path" \
              | paste -s -d ' ' -)
    [ "$answers" = "$4" ] || die "port $1 answered $answers, expected $4"

    kill "$nginx"
    wait "$nginx" || { cat "$DIR/valgrind" >&2; die "nginx failed"; }
    pids=$servers

    collected=$(awk '/Collected :/ { print $NF }' "$DIR/valgrind")

    if [ -n "$parts" ]; then
        collected=$(callgrind_annotate --threshold=100 --auto=no \
                                       "$DIR/callgrind" 2> /dev/null \
                    | awk -v parts="$parts" '$0 ~ parts {
                          gsub(",", "", $1); sum += $1
                      } END { print sum }')
    fi

    [ -n "$collected" ] || { cat "$DIR/valgrind" >&2; die "no count"; }
}

# wanted <name>: whether it is counted
wanted() {
    [ -z "$base" ] || echo "$1" | grep -qE -- "${ONLY:-}"
}

# each_of <port's last digits> <keys> [<allowed>]: sets each, for one request
each_of() {
    few="200 $FEW" many="200 $MANY"

    if [ $# -eq 3 ]; then
        few="200 $3 429 $((FEW - $3))" many="200 $3 429 $((MANY - $3))"
    fi

    collect "$PORTS$1" $FEW "$2" "$few"
    start=$collected
    collect "$PORTS$1" $MANY "$2" "$many"
    each=$(((collected - start) / (MANY - FEW)))
}

# measure <name> <port's last digits> <keys> [<allowed>]: prints a line
measure() {
    wanted "$1" || return 0
    name=$1
    shift

    each_of "$@"
    base=${base:-$each}
    printf '%-34s %8d %8d\n' "$name" "$each" $((each - base))
}

# measure_free <name> <port's last digits>: what a location without limits pays
# for those of others. Only what nginx calls for each request counts, beside an
# nginx without the module: where the blocks of the heap lie makes a difference
# of 200 instructions to the rest.
measure_free() {
    wanted "$1" || return 0

    parts='ngx_http_(core_run_phases|core_[a-z_]+_phase'
    parts="$parts|ratelimit_([a-z_]+_)?(handler|checker|filter|ctx))( |\$)"
    each_of "$2" 1
    with=$each

    cp "$DIR/nginx.conf" "$DIR/with.conf"
    perl -0pi -e 's/^ *(ratelimit\w*|load_module)\s[^;{]*(\{[^}]*\}|;)//mg;
                  s/^ *include .*//mg' "$DIR/nginx.conf"
    each_of "$2" 1
    mv "$DIR/with.conf" "$DIR/nginx.conf"

    parts=
    printf '%-34s %8s %8d\n' "$1" '' $((with - each))
}

# evals: the checks that Redis has made
evals() {
    for digits in 90 91 92 93; do
        redis-cli -p "$PORTS$digits" info commandstats
    done | awk -F'[=,]' '/^cmdstat_evalsha:/ { sum += $2 - $NF }
                         END { print sum + 0 }'
}

# measure_redis <name> <port's last digits>: each request must reach Redis; a
# few calls more say that the node lives
measure_redis() {
    wanted "$1" || return 0

    before=$(evals)
    measure "$1" "$2" 100000
    asked=$(($(evals) - before))
    [ "$asked" -ge $((FEW + MANY)) ] && [ "$asked" -le $((FEW + MANY + 100)) ] \
        || die "\"$1\" asked Redis $asked times"
}

# measure_leased <name> <port's last digits> <keys> [<allowed>]: few must
measure_leased() {
    wanted "$1" || return 0

    before=$(evals)
    measure "$@"
    asked=$(($(evals) - before))
    [ "$asked" -le $(((FEW + MANY) / 10)) ] \
        || die "\"$1\" asked Redis $asked times"
}

routes_conf
fill nginx.conf

start_redis "${LOAD_CPU:-1}" 90
start_cluster "${LOAD_CPU:-1}"
servers=$pids

printf '%-34s %8s %8s\n' 'instructions a request' all added
measure 'no limiter' 01 1
measure 'no limiter again' 02 1
measure_free 'location without limits' 01
measure 'limit_req' 11 1
measure 'local' 12 1
measure 'local, headers' 13 1
measure 'local, endpoint' 14 1
measure 'limit_req, new keys' 21 100000
measure 'local, new keys' 22 100000
measure 'local, headers, new keys' 23 100000
measure 'local, endpoint, new keys' 24 100000
measure 'limit_req, denying' 31 1 1
measure 'local, denying' 32 1 1
measure 'local, headers, denying' 33 1 1
measure 'local, endpoint, denying' 34 1 1
measure '4 rules, headers' 62 1
measure '8 rules, headers' 63 1
path=/v1/r2/7
measure 'no limiter, path' 01 1
measure '2 rules, both match' 71 1
measure '1,000 rules, 2 match' 72 1
measure 'route, folded' 73 1
measure 'route, 10 templates' 74 1
measure 'route, 1,000 templates' 75 1
path=/
measure_leased 'leased' 43 1
measure_leased 'leased, 3 shards' 44 1
measure_leased 'leased, denying' 45 1 1
measure_redis 'leased, new keys' 43
measure_redis 'strict' 41
measure_redis 'strict, 3 shards' 42
measure_redis '4 rules, Redis' 64
measure_redis '8 rules, Redis' 65

check_error_log
