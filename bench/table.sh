#!/bin/bash
#
# The shared table alone: ns a check, bytes a counter, counters kept. Needs
# 600 MB of memory and nginx's headers (nginx-dev), takes about a minute.

set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/build/bench
mkdir -p "$out"

make --no-print-directory -s -C "$root/t/unit" nginx_cflags > "$out/cflags"
read -ra cflags < "$out/cflags"

"${CC:-cc}" -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra \
    -I"$root/src/core" -I"$root/src/shm" "${cflags[@]}" -o "$out/table" \
    "$root/bench/table.c" "$root/src/shm/ngx_ratelimit_table.c" \
    "$root/src/shm/ngx_ratelimit_lock.c" \
    "$root/src/core/ngx_ratelimit_token_bucket.c" -lm -lpthread

exec timeout 180 "$out/table"
