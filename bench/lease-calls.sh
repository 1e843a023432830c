#!/bin/sh
#
# How many calls a check takes with leases, by how many requests a second one
# counter has on one node: the simulator's answer, for bench/figures. A limit
# that is far away, one worker, requests by chance (Poisson), Redis 0.3 ms
# away. Half a minute.

set -eu

cd "$(dirname "$0")/.."
make --no-print-directory -s -C t/sim

for rate in 5 10 15 20 25 30 40 50 100 200 500 1000 2000 5000; do
    seconds=$((60000 / rate))
    [ $seconds -le 120 ] || seconds=120
    [ $seconds -ge 20 ] || seconds=20

    build/sim/sim nodes=1 limit=100000000 window=10 rate=$rate \
            seconds=$seconds \
        | awk -v name="calls@$rate" 'NR == 2 { printf "%-13s%10s\n", name, $4 }'
done
