# shellcheck shell=bash
#
# For the benchmarks of the table: compiles one to build/bench, with nginx's
# headers, the table, and what limit_req's tree is made of. Sourced.
#
# NGX_SRC  nginx's source tree; else the distribution's, which is fetched once

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/build/bench
mkdir -p "$out"

nginx_source() {
    local src=$out/nginx

    if [ -z "${NGX_SRC:-}" ] && [ ! -e "$src/done" ]; then
        rm -rf "$src"
        "$root/tools/deps.sh" bench >&2
        "$root/tools/apt-fetch.sh" source nginx "$src" >&2
        touch "$src/done"
    fi

    [ -n "${NGX_SRC:-}" ] || NGX_SRC=$(dirname "$src"/nginx-*/src)
    [ -e "$NGX_SRC/src/core/ngx_slab.c" ] \
        || { echo "bench: no nginx source in \"$NGX_SRC\"" >&2; return 1; }
}

# compile <name>
compile() {
    nginx_source
    make --no-print-directory -C "$root/bench" NGX_SRC="$NGX_SRC" "../build/bench/$1"
}
