#!/bin/sh
#
# A flood of invented keys, through nginx: how many of the known clients keep
# their counters. See README.md. Takes three minutes; ten at most.
#
# KNOWN    clients that have come twice before (1000000)
# FLOOD    invented keys (10000000)
# ZONE     (64m)
# MODULE, NGINX, PORTS  see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

KNOWN=${KNOWN:-1000000}
FLOOD=${FLOOD:-10000000}
ZONE=${ZONE:-64m}

need wrk wrk
need "$NGINX" nginx
[ -e "$MODULE" ] || die "no $MODULE; make build"

cat > "$DIR/flood.conf" <<END
load_module $MODULE;
worker_processes 1;
pid $DIR/nginx.pid;
error_log $DIR/error.log warn;

events {}

http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path $DIR/body;
    proxy_temp_path $DIR/proxy;
    fastcgi_temp_path $DIR/fastcgi;
    uwsgi_temp_path $DIR/uwsgi;
    scgi_temp_path $DIR/scgi;

    # a token an hour: what was taken stays taken
    ratelimit_zone \$http_x_api_key zone=api:$ZONE rate=1r/h capacity=1000;

    server {
        listen 127.0.0.1:${PORTS}61;

        location / {
            ratelimit zone=api;
            empty_gif;
        }
    }
}
END

"$NGINX" -p "$DIR/" -c "$DIR/flood.conf" -e "$DIR/error.log" \
    -g 'daemon off;' &
pids="$pids $!"
until_ok nginx curl -sf "http://127.0.0.1:${PORTS}61/"

# run <what> <keys> <seconds at most> [<uses>]: its result to $DIR/result
run() {
    wrk -t 1 -c 32 -d "$3s" -s "$BENCH/flood.lua" \
        "http://127.0.0.1:${PORTS}61/" -- "$1" "$2" "${4:-0}" > "$DIR/wrk" \
        || { cat "$DIR/wrk" >&2; die "wrk failed"; }

    sed -n 's/^result //p' "$DIR/wrk" > "$DIR/result"
    [ -s "$DIR/result" ] || die "\"$1\" took longer than $3 s"
}

look() {
    run look "$KNOWN" 120 "$2"
    awk '{ printf "  %s, known clients kept: %.4f %%, of %d\n", when,
                  100 * $2 / ($2 + $3), $2 + $3 }' when="$1" "$DIR/result"
}

echo "$KNOWN known clients, a zone of $ZONE"
run known "$KNOWN" 120
look "before the flood" 3

run flood "$FLOOD" 300
awk '{ printf "  invented keys: %d\n", $1 }' "$DIR/result"
look "after it" 4

check_error_log
