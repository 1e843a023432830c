#!/bin/bash
#
# Installs build/<module>.so for an nginx, in the folder of its modules; and
# build/ratelimit-feed with its unit and tables, if it was built.
#
# Environment:
#   NGINX    the nginx (the one of PATH)
#   DESTDIR  what stands before the folder, for packages

set -eu

cd "$(dirname "$0")/.."

module=ngx_http_ratelimit_module.so
nginx=${NGINX:-$(PATH=$PATH:/usr/sbin command -v nginx)}

# nginx takes this variable for the sockets of a binary upgrade
unset NGINX

if [ ! -e "build/$module" ]; then
    echo "install: no build/$module, run \"make build\" first" >&2
    exit 1
fi

# an nginx of another version, or of other options, does not load it
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '%s\n' "load_module $PWD/build/$module;" "pid $dir/pid;" 'events {}' \
    > "$dir/nginx.conf"
"$nginx" -t -q -p "$dir" -c "$dir/nginx.conf" -g 'error_log stderr;'

argument() {
    "$nginx" -V 2>&1 | tr ' ' '\n' | sed -n "s/^--$1=//p"
}

modules=$(argument modules-path)
prefix=$(argument prefix)
case ${modules:=modules} in
    /*) ;;
    *)  modules=${prefix:-/usr/local/nginx}/$modules ;;
esac

install -D -m 644 "build/$module" "${DESTDIR:-}$modules/$module"

install -D -m 755 ctl/ratelimitctl "${DESTDIR:-}/usr/local/bin/ratelimitctl"
install -D -m 644 ctl/ratelimitctl.1 \
    "${DESTDIR:-}/usr/local/share/man/man1/ratelimitctl.1"
install -D -m 644 ctl/ratelimitctl.bash \
    "${DESTDIR:-}/usr/local/share/bash-completion/completions/ratelimitctl"

if [ -e build/ratelimit-feed ]; then
    install -D -m 755 build/ratelimit-feed \
        "${DESTDIR:-}/usr/local/sbin/ratelimit-feed"
    install -D -m 644 feeder/ratelimit-feed.service \
        "${DESTDIR:-}/usr/local/lib/systemd/system/ratelimit-feed.service"
    install -D -m 644 feeder/schema.sql \
        "${DESTDIR:-}/usr/local/share/ratelimit-feed/schema.sql"
fi

echo "Installed. At the top of nginx.conf, load it with:"
echo "load_module $modules/$module;"
