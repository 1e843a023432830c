#!/bin/sh
#
# Path templates alone: ns a path in sets of ten to ten thousand. Takes a few
# seconds, needs nothing but a compiler.

set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/build/bench
mkdir -p "$out"

"${CC:-cc}" -std=c11 -D_DEFAULT_SOURCE -O2 -Wall -Wextra -I"$root/src/core" \
    -o "$out/routes" "$root/bench/routes.c" \
    "$root/src/core/ngx_ratelimit_route_set.c" \
    "$root/src/core/ngx_ratelimit_route.c"

exec timeout 120 "$out/routes"
