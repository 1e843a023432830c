#!/bin/sh
#
# What counters take of Redis: bytes, by algorithm and by how many share a
# bucket; one to twenty million, on one server and on a Cluster; and what is left
# of those that are full again. See README.md.
#
# ONLY      bytes, growth, or purge (all)
# COUNTERS  how many there are, for bytes (100000)
# MILLIONS  how many, for growth (1 2 5 10 20)
# IN_CLUSTER  how many millions in the Cluster (10)
# PORTS     see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

ONLY=${ONLY:-bytes growth purge}
COUNTERS=${COUNTERS:-100000}
MILLIONS=${MILLIONS:-1 2 5 10 20}

# of the module's default, and of the cluster's counters
BUCKETS=65536
IN_CLUSTER=${IN_CLUSTER:-10}

# seconds after which growth begins nothing more: all of it takes six minutes,
# and on a busy machine ten
LIMIT=300
begun=$(date +%s)

# a token in ten minutes: none is full again while this runs
SLOW=600000000

need perl perl
need redis-server redis-server
need redis-cli redis-tools

# number <port's last digits> <section> <name>: of INFO
number() {
    redis-cli -p "$PORTS$1" info "$2" | tr -d '\r' \
        | sed -n "s/^$3:\([0-9]*\).*/\1/p"
}

# bytes <algorithm> <counters> <buckets> <requests each>
bytes() {
    redis-cli -p "${PORTS}30" flushall sync > "$DIR/answer"
    before=$(number 30 memory used_memory)
    perl "$BENCH/redis-loss.pl" fill "${PORTS}30" "$@"
    echo "$before $(number 30 memory used_memory) $2" \
        | awk '{ printf "%.0f", ($2 - $1) / $3 }'
}

bytes_table() {
    echo "bytes a counter, of $COUNTERS"
    printf '  %-17s' 'to a bucket'
    printf '%8s' 1 2 8 32 128 500 520 1024
    echo

    for algorithm in token_bucket fixed_window sliding_window; do
        printf '  %-17s' "$algorithm"

        for share in 1 2 8 32 128 500 520 1024; do
            printf '%8s' \
                "$(bytes $algorithm "$COUNTERS" $((COUNTERS / share)) 1)"
        done

        echo
    done

    printf '  %-17s' 'requests each'
    printf '%8s' 1 10 50 100 1000
    echo

    for algorithm in sliding_log concurrency; do
        printf '  %-17s' "$algorithm"

        for requests in 1 10 50 100 1000; do
            n=$((COUNTERS / requests))
            printf '%8s' "$(bytes $algorithm $n 65536 "$requests")"
        done

        echo
    done
}

# script_us <port's last digits>: the script's calls so far, and their time
script_us() {
    redis-cli -p "$PORTS$1" info commandstats | tr -d '\r' \
        | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),usec=\([0-9]*\),.*/\1 \2/p'
}

# fill <from> <to> <buckets> <period_us> <port's last digits>...
fill() {
    range="$1 $2 $3 $4"
    shift 4

    for digits in "$@"; do
        set -- "$@" "$PORTS$digits"
        shift
    done

    # shellcheck disable=SC2086
    "$REDIS_TOOL" fill "$sha" $range "$@"
}

# size_line <millions> <before> <port's last digits>...: the memory of these
# since before, keys without a TTL, and the script's time for counters there are
size_line() {
    millions=$1 before=$2 bare=0 after=0 times=
    shift 2

    for digits in "$@"; do
        after=$((after + $(number "$digits" memory used_memory)))
        bare=$((bare + $(redis-cli -p "$PORTS$digits" info keyspace \
            | sed -n 's/^db0:keys=\([0-9]*\),expires=\([0-9]*\),.*/\1 - \2/p')))
        times="$times$(script_us "$digits")
"
    done

    fill 0 200000 $BUCKETS $SLOW "$@"

    for digits in "$@"; do
        times="$times$(script_us "$digits" | sed 's/^/- /')
"
    done

    printf '%s' "$times" | awk -v n="$millions" -v bytes=$((after - before)) \
        -v buckets=$BUCKETS -v bare=$bare '
        $1 != "-" { calls -= $1; us -= $2 }
        $1 == "-" { calls += $2; us += $3 }
        END {
            printf "  %11d%12.0f%10.1f%11.1f%10.2f%10d\n", n, n * 1e6 / buckets,
                   bytes / 1e6, bytes / n / 1e6, us / calls, bare
        }'
}

size_head() {
    printf '  %11s%12s%10s%11s%10s%10s\n' millions 'to a bucket' MB \
        'bytes each' 'us a call' 'no TTL'
}

growth() {
    echo "token buckets in $BUCKETS buckets, of one server"
    size_head

    redis-cli -p "${PORTS}30" flushall sync > "$DIR/answer"
    before=$(number 30 memory used_memory)
    from=0

    for millions in $MILLIONS; do

        if [ $(($(date +%s) - begun)) -gt $LIMIT ]; then
            echo "  $millions: no time left"
            continue
        fi

        fill $from "${millions}000000" $BUCKETS $SLOW 30
        from=${millions}000000
        size_line "$millions" "$before" 30
    done

    redis-cli -p "${PORTS}30" flushall sync > "$DIR/answer"
    echo "token buckets in $BUCKETS buckets, of a Cluster of three primaries"
    size_head

    start_cluster 0
    before=0

    for digits in 91 92 93; do
        perl "$BENCH/redis-loss.pl" sha "$PORTS$digits" > "$DIR/answer"
        before=$((before + $(number $digits memory used_memory)))
    done

    if [ $(($(date +%s) - begun)) -gt $LIMIT ]; then
        echo "  $IN_CLUSTER: no time left"
        return
    fi

    fill 0 "${IN_CLUSTER}000000" $BUCKETS $SLOW 91 92 93
    size_line "$IN_CLUSTER" "$before" 91 92 93

    for digits in 91 92 93; do
        number $digits memory used_memory \
            | awk '{ printf "  used_memory of one: %.1f MB\n", $1 / 1e6 }'
        redis-cli -p "$PORTS$digits" flushall sync > "$DIR/answer"
    done
}

# The counters of purge: a token each of ten thousand that take two minutes.
# They are all made before the first is full again.
PURGED=250000
PURGE_BUCKETS=2048
PURGE_SECONDS=120

purge_line() {
    printf '  %-46s%10d%9.1f\n' "$1" \
        "$("$REDIS_TOOL" count $PURGE_BUCKETS "${PORTS}31")" \
        "$(echo "$(number 31 memory used_memory) $purge_empty" \
               | awk '{ print ($1 - $2) / 1e6 }')"
}

purge_begin() {
    start_redis 0 31 --hz 1 --maxmemory 1gb
    perl "$BENCH/redis-loss.pl" sha "${PORTS}31" > "$DIR/answer"
    purge_empty=$(number 31 memory used_memory)
    fill 0 $PURGED $PURGE_BUCKETS ${PURGE_SECONDS}000000 31
    [ "$("$REDIS_TOOL" count $PURGE_BUCKETS "${PORTS}31")" -eq $PURGED ] \
        || die "purge: the machine is too busy, counters were full too soon"
    purge_full=$(purge_line "all in use")
    purge_until=$(($(date +%s) + PURGE_SECONDS + 1))
}

purge_end() {
    while [ "$(date +%s)" -lt $purge_until ]; do
        sleep 1
    done

    echo "$PURGED token buckets in $PURGE_BUCKETS buckets"
    printf '  %-46s%10s%9s\n' '' counters MB
    echo "$purge_full"
    purge_line 'all full again, nothing written since'

    new=$((PURGED + PURGE_BUCKETS * 4))
    fill $PURGED $new $PURGE_BUCKETS $SLOW 31
    purge_line "$((new - PURGED)) new counters later"

    last=$((PURGED + PURGE_BUCKETS * 32))
    fill $new $last $PURGE_BUCKETS $SLOW 31
    purge_line "$((last - PURGED)) new counters later"
}

start_redis 0 30 --hz 1 --maxmemory 2gb
compile_redis
sha=$(perl "$BENCH/redis-loss.pl" sha "${PORTS}30")

redis-server --version | cut -d ' ' -f 1-3

case $ONLY in *purge*) purge_begin ;; esac
case $ONLY in *bytes*) bytes_table ;; esac
case $ONLY in *growth*) growth ;; esac
case $ONLY in *purge*) purge_end ;; esac
