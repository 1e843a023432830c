#!/bin/sh
#
# How long a change of rules takes to get to another gateway: PUT on one, until
# both workers of the other enforce it, under load on both; with Redis' messages,
# and without, where gateways only ask each 5 s. See README.md.
#
# CHANGES               how many (1000)
# LOAD                  requests a second to each gateway meanwhile (300)
# QUICK=1               100 changes
# MODULE, NGINX, PORTS  see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

if [ "${QUICK:-0}" = 1 ]; then
    CHANGES=${CHANGES:-100}
fi

need perl perl
need redis-server redis-server
need redis-cli redis-tools
need "$NGINX" nginx
[ -e "$MODULE" ] || die "no $MODULE; make build"

redis_port=${PORTS}60
mkdir "$DIR/redis"
redis-server --bind 127.0.0.1 --port "$redis_port" --dir "$DIR/redis" \
    --save '' --appendonly no --logfile "$DIR/redis/log" &
redis=$!
pids=$redis
until_ok redis redis-cli -p "$redis_port" ping

redis-cli -p "$redis_port" acl setuser mute on '>mute' '~*' +@all \
    resetchannels > /dev/null
echo mute > "$DIR/mute"

# gateway <port's last digits> <lines of the block>
gateway() {
    mkdir -p "$DIR/$1"
    echo a-token-of-the-bench > "$DIR/$1/tokens"

    cat > "$DIR/$1/nginx.conf" << END
load_module $MODULE;
daemon off;
worker_processes 2;
pid nginx.pid;
error_log error.log warn;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    ratelimit_redis one { server 127.0.0.1:$redis_port; timeout 5s; $2 }
    ratelimit_zone \$arg_k zone=api:8m redis=one state=$DIR/$1/rules.state;
    server {
        listen 127.0.0.1:$PORTS$1;
        add_header X-Pid \$pid always;
        location / { ratelimit zone=api; empty_gif; }
        location /rl/ { ratelimit_api zone=api write token_file=tokens; }
    }
}
END

    "$NGINX" -p "$DIR/$1/" -c "$DIR/$1/nginx.conf" -e "$DIR/$1/error.log" &
    pids="$pids $!"
}

# change <title> <lines of the block> <seconds between two changes>
change() {
    pids=$redis
    redis-cli -p "$redis_port" flushall > /dev/null
    rm -rf "$DIR/61" "$DIR/62"
    gateway 61 "$2"
    gateway 62 "$2"

    perl "$BENCH/rules.pl" "$1" "${PORTS}61" "${PORTS}62" "${CHANGES:-1000}" \
        "$3" "${LOAD:-300}" &
    pids="$! $pids"

    wait "$!" || {
        tail -n 5 "$DIR"/6?/error.log >&2
        die "failed"
    }

    for pid in $pids; do
        [ "$pid" = "$redis" ] || kill "$pid" 2> /dev/null || true
        [ "$pid" = "$redis" ] || wait "$pid" || true
    done

    pids=$redis
}

printf '%-24s%9s%9s%9s%9s%10s%8s\n' 'change of rules, ms' n p50 p99 max \
    requests wrong
change 'with messages' '' 0.05
change 'without messages' "username mute; password_file $DIR/mute;" 0.1
