#!/bin/sh
#
# Networks alone: ns a lookup in lists of ten to ten thousand. Takes a second.

set -eu

root=$(cd "$(dirname "$0")/.." && pwd)

make --no-print-directory -C "$root/bench" ../build/bench/networks

exec timeout 120 "$root/build/bench/networks"
