#!/bin/sh
#
# For how long, and for how many requests, limits are gone when a primary of a
# Cluster is killed. See README.md.
#
# RUNS      how often each line is measured (3)
# TIMEOUTS  cluster-node-timeout of each line, in ms
# MODULE, PORTS  see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

RUNS=${RUNS:-3}
TIMEOUTS=${TIMEOUTS:-1000 2000 5000 15000}

need perl perl
need redis-server redis-server
[ -e "$MODULE" ] || die "no $MODULE; make build"

# below lib.sh's ports, so that those of the bus are free too
cluster=${PORTS}50

stop_cluster() {
    "$BENCH/../tools/redis-cluster.sh" stop "$DIR/cluster" "$cluster"
}

# shellcheck disable=SC2154
trap 'code=$?; set +e; stop_cluster; (exit $code); finish' EXIT

cd "$BENCH/.."

# measure <kill the replica too> <node timeout> <full coverage>
measure() {
    for _ in $(seq "$RUNS"); do
        tools/redis-cluster.sh start "$DIR/cluster" "$cluster"

        for i in 0 1 2 3 4 5; do
            redis-cli -p $((cluster + i)) config set cluster-node-timeout "$2" \
                cluster-require-full-coverage "$3" > "$DIR/answer"
        done

        TEST_NGINX_LOAD_MODULES=$MODULE RATELIMIT_LOGS=$DIR \
            perl -I. bench/redis-failover.pl "$DIR/cluster" "$cluster" "$1" \
            $((3 * $2 / 1000 + 10)) >> "$DIR/runs"
        stop_cluster
    done

    sort -n "$DIR/runs" | awk -v runs="$RUNS" '
        NR == int((runs + 1) / 2) { printf "%8s%10s%10s\n", $1, $2, $3 }'
    rm "$DIR/runs"
}

printf '  %-44s%8s%10s%10s\n' "kill -9 of one primary of three" 'seconds' \
    meanwhile 'at last'

for ms in $TIMEOUTS; do
    printf '  %-44s' "with a replica, node timeout $ms ms"
    measure 0 "$ms" yes
done

for full in yes no; do
    printf '  %-44s' "without a replica, full coverage $full"
    measure 1 2000 $full
done
