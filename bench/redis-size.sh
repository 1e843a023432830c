#!/bin/sh
#
# Bytes of Redis that a counter takes, by algorithm and by how many share a
# bucket. See README.md.
#
# COUNTERS  how many there are (100000)
# PORTS     see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

COUNTERS=${COUNTERS:-100000}

need perl perl
need redis-server redis-server
need redis-cli redis-tools

used() {
    redis-cli -p "${PORTS}30" info memory \
        | sed -n 's/^used_memory:\([0-9]*\).*/\1/p'
}

# bytes <algorithm> <counters> <buckets> <requests each>
bytes() {
    redis-cli -p "${PORTS}30" flushall sync > "$DIR/answer"
    before=$(used)
    perl "$BENCH/redis-loss.pl" fill "${PORTS}30" "$@"
    echo "$before $(used) $2" | awk '{ printf "%.0f", ($2 - $1) / $3 }'
}

start_redis 0 30 --hz 1

echo "$(redis-server --version | cut -d ' ' -f 1-3), $COUNTERS counters"
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
