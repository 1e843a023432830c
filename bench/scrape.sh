#!/bin/sh
#
# What a scrape of "ratelimit_metrics" costs one worker: its CPU time, with all
# rules counted in all workers, a full table, and leases. See README.md.
#
# RULES                 of one zone (1000)
# WORKERS               (16)
# SCRAPES               how many (200)
# MODULE, NGINX, PORTS  see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

RULES=${RULES:-1000}
WORKERS=${WORKERS:-16}

need perl perl
need redis-server redis-server
need "$NGINX" nginx
[ -e "$MODULE" ] || die "no $MODULE; make build"

mkdir "$DIR/redis"
redis-server --bind 127.0.0.1 --port "${PORTS}60" --dir "$DIR/redis" \
    --save '' --appendonly no --logfile "$DIR/redis/log" &
pids=$!
until_ok redis redis-cli -p "${PORTS}60" ping

{
    cat << END_OF_HEAD
load_module $MODULE;
daemon off;
worker_processes $WORKERS;
pid $DIR/nginx.pid;
error_log $DIR/error.log warn;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path $DIR/body;
    proxy_temp_path $DIR/proxy;
    fastcgi_temp_path $DIR/fastcgi;
    uwsgi_temp_path $DIR/uwsgi;
    scgi_temp_path $DIR/scgi;
    ratelimit_redis one { server 127.0.0.1:${PORTS}60; timeout 5s; }
    ratelimit_zone \$arg_k zone=local:1m rate=2r/d;
    ratelimit_zone \$arg_k zone=api:16m redis=one;
END_OF_HEAD

    awk -v n="$RULES" 'BEGIN {
        for (i = 1; i <= n; i++) {
            print "ratelimit_rule rule-" i " zone=api match=/r" i " rate=100r/s;"
        }
    }'

    cat << END_OF_SERVER
    server {
        listen 127.0.0.1:${PORTS}61 reuseport;
        location / { ratelimit zone=api; ratelimit zone=local; empty_gif; }
        location = /metrics { ratelimit_metrics; }
    }
}
END_OF_SERVER
} > "$DIR/nginx.conf"

"$NGINX" -p "$DIR/" -c "$DIR/nginx.conf" -e "$DIR/error.log" &
pids="$pids $!"

perl "$BENCH/scrape.pl" "${PORTS}61" "$!" "$RULES" "$WORKERS" \
    "${SCRAPES:-200}" || die "no figures; $(cat "$DIR/error.log")"
