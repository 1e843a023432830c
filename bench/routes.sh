#!/bin/sh
#
# Path templates alone: ns a path in sets of ten to ten thousand. Takes a few
# seconds.

set -eu

root=$(cd "$(dirname "$0")/.." && pwd)

make --no-print-directory -C "$root/bench" ../build/bench/routes

exec timeout 120 "$root/build/bench/routes"
