#!/bin/bash
#
# What `make run` and `make stop` do:
#
#   tools/run.sh start [cluster]    one gateway; or two and a Redis Cluster
#   tools/run.sh stop
#
# Everything lives in build/run. A process is ours, and stopped, only where it
# runs in a folder there. RUN_PORT is the first gateway's port, RUN_REDIS_PORT
# the first Redis node's, RUN_DIR another folder. With MONITOR=1, Prometheus with
# the alerts of examples/prometheus runs beside the gateways. With FEED=postgres,
# PostgreSQL with the rules of examples/postgres and what copies them.

set -eu

root=$(cd "$(dirname "$0")/.." && pwd -P)
run=${RUN_DIR:-$root/build/run}
shown=${run#"$root"/}
port=${RUN_PORT:-8080}
second=$((port + 1))
redis_port=${RUN_REDIS_PORT:-7001}
redis_last=$((redis_port + 5))
nginx=${NGINX:-$(PATH=$PATH:/usr/sbin command -v nginx)}

# nginx takes this variable for the sockets of a binary upgrade
unset NGINX

steps=$((1 + ${MONITOR:+1} + ${FEED:+1} + 0))
step=0

# on a terminal all in one line, which show() clears
say() {
    local text
    step=$((step + 1))
    text="run: $* ($step of $steps)"
    if [ -t 1 ]; then printf '\r%.79s\033[K' "$text"; else echo "$text"; fi
}

show() {
    [ ! -t 1 ] || printf '\r\033[K'
    cat
}

gateway_pid() {
    local prefix=$run/gateway-$1 pid
    pid=$(cat "$prefix/nginx.pid" 2>/dev/null) || return 1
    [[ $(tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null) \
       == *"master process"*" -p $prefix/ "* ]] && echo "$pid"
}

stop_gateways() {
    local prefix port pid i
    for prefix in "$run"/gateway-*; do
        port=${prefix##*-}
        ! pid=$(gateway_pid "$port") || kill -QUIT "$pid"
        for ((i = 0; i < 100; i++)); do
            pid=$(gateway_pid "$port") || break
            [ $i != 30 ] || kill -TERM "$pid"
            sleep 0.1
        done
        rm -rf "$prefix"
    done
    rm -f "$run/token"
}

stop_redis() {
    [ ! -d "$run/redis" ] \
        || "$root/tools/redis-cluster.sh" stop "$run/redis" "$redis_port"
}

stop_monitor() {
    local pid i
    pid=$(cat "$run/prometheus/pid" 2>/dev/null) || return 0
    for ((i = 0; i < 100; i++)); do
        [ "$(readlink "/proc/$pid/cwd")" = "$run/prometheus" ] || break
        [ $i != 0 ] || kill "$pid"
        sleep 0.1
    done
    rm -rf "$run/prometheus"
}

# PostgreSQL runs in its data
stop_feed() {
    local name cwd pid i
    for name in feeder postgres; do
        cwd=$run/postgres
        [ $name = feeder ] || cwd=$(realpath -m "$cwd/data")
        pid=$(cat "$run/postgres/$name.pid" 2>/dev/null) || continue
        for ((i = 0; i < 100; i++)); do
            [ "$(readlink "/proc/$pid/cwd")" = "$cwd" ] || break
            [ $i != 0 ] || kill -INT "$pid"
            sleep 0.1
        done
    done
    cwd=$(dirname "$(realpath -m "$run/postgres/data")")
    [[ $cwd != /tmp/ratelimit-postgres.* ]] || rm -rf "$cwd"
    rm -rf "$run/postgres"
}

check_port() {
    if (: < "/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
        show < /dev/null
        echo "run: port $1 is in use by another program" >&2
        exit 1
    fi
}

# of the endpoint, the same at all gateways
make_token() {
    [ -s "$run/token" ] \
        || (umask 077
            od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > "$run/token")
}

start_gateway() {
    local conf=$1 port=$2 prefix=$run/gateway-$2 name
    local api=$((port + 10)) operators=$((port + 2)) user=()

    say "starting a gateway on 127.0.0.1:$port, with a sample API on :$api"
    check_port "$port"
    check_port "$api"
    check_port "$operators"

    mkdir -p "$prefix/tmp"
    make_token
    (umask 077; echo "operator:$(cat "$run/token")" > "$prefix/ratelimit.tokens")
    for name in "$conf" sample-api; do
        sed -e "s#@MODULE@#$root/build/ngx_http_ratelimit_module.so#" \
            -e "s/@PORT@/$port/" -e "s/@API_PORT@/$api/" \
            -e "s/@OPERATORS_PORT@/$operators/" \
            -e "s/@REDIS@/$(seq -s ' ' -f '127.0.0.1:%.0f' "$redis_port" \
                                $((redis_port + 2)))/" \
            "$root/examples/$name.conf" > "$prefix/$name.conf"
    done

    # the checkout may be in a folder that only its owner enters
    [ "$(id -u)" != 0 ] || user=(-g 'user root root;')

    "$nginx" -e "$prefix/error.log" -p "$prefix/" -c "$prefix/$conf.conf" \
        "${user[@]}"
    curl -fsS -o /dev/null --retry 5 --retry-connrefused --max-time 5 \
        "http://127.0.0.1:$port/health"
}

# Prometheus beside the gateways of these ports
start_monitor() {
    local dir=$run/prometheus at=$((port + 20)) targets

    [ -n "${MONITOR:-}" ] || return 0
    say "starting Prometheus with the alerts on 127.0.0.1:$at"
    check_port "$at"

    mkdir -p "$dir"
    targets=$(printf ', "127.0.0.1:%s"' "$@")
    cat > "$dir/prometheus.yml" <<END
global: { scrape_interval: 5s, evaluation_interval: 5s }
rule_files: [ $root/examples/prometheus/alerts.yml ]
scrape_configs:
- job_name: gateways
  static_configs: [ { targets: [ ${targets#, } ] } ]
END

    (cd "$dir" && exec setsid prometheus --config.file=prometheus.yml \
        --storage.tsdb.path=data --web.listen-address="127.0.0.1:$at" \
        < /dev/null > log 2>&1) &
    echo $! > "$dir/pid"
    curl -fsS -o /dev/null --retry 60 --retry-delay 1 --retry-connrefused \
        --retry-all-errors --max-time 60 "http://127.0.0.1:$at/-/ready" \
        2> "$dir/ready"
}

sql() {
    psql -XqAt -v ON_ERROR_STOP=1 -d "$(cat "$run/postgres/connection")" "$@"
}

# the tables, for the endpoints at these ports
start_feed() {
    local dir=$run/postgres at=$((port + 30)) i to

    [ -n "${FEED:-}" ] || return 0
    say "starting PostgreSQL on 127.0.0.1:$at, and the feeder"
    check_port "$at"

    mkdir -p "$dir"
    (exec setsid "$root/tools/postgres.sh" "$dir" "$at" \
        < /dev/null > "$dir/log" 2>&1) &
    echo $! > "$dir/postgres.pid"
    for ((i = 0; i < 600; i++)); do
        ! sql -c 'SELECT 1' > "$dir/ready" 2>&1 || break
        sleep 0.1
    done
    sql -1 -f "$root/feeder/schema.sql" -f "$root/examples/postgres/rules.sql"

    to=("${@/#/--gateway=http://127.0.0.1:}")
    (cd "$dir" && exec setsid "$root/build/ratelimit-feed" \
        --token-file="$run/token" --database-file="$dir/connection" \
        "${to[@]/%//ratelimit}" < /dev/null > feeder.log 2>&1) &
    echo $! > "$dir/feeder.pid"
}

show_feed() {
    [ -n "${FEED:-}" ] || return 0
    cat <<END

PostgreSQL on 127.0.0.1:$((port + 30)) has more rules, in tables:

  psql "\$(cat $shown/postgres/connection)" -c 'TABLE rate_limit_tiers'
      the tier "pro" of the rule "reports"; alice has it

  curl -i -H 'X-API-Key: carol' http://127.0.0.1:$port/v1/reports
      X-RateLimit-Limit: 5; it is 8 for alice, and 6 for bob today

  psql "\$(cat $shown/postgres/connection)" \\
      -c "UPDATE rate_limit_rules SET limit_count = 4 WHERE id = 'reports'"
      4 for carol, within two seconds

  psql "\$(cat $shown/postgres/connection)" -c 'TABLE rate_limit_refused'
      the rows that a gateway refuses: none
END
}

show_monitor() {
    [ -n "${MONITOR:-}" ] || return 0
    cat <<END

Prometheus: http://127.0.0.1:$((port + 20))/alerts
END
}

stop() {
    stop_feed
    stop_monitor
    stop_gateways
    stop_redis
    rmdir "$run" 2>/dev/null || true
}

start_local() {
    stop_redis
    start_gateway local "$port"
    start_monitor "$port"
    start_feed "$((port + 2))"

    show <<END

A gateway runs on 127.0.0.1:$port: 10 requests a minute for each API key.
Requests without an API key are not limited.
In a browser: http://127.0.0.1:$((port + 2))/ratelimit/
It asks for this token: $(cat "$run/token")

  curl -i -H 'X-API-Key: alice' http://127.0.0.1:$port/v1/users
      200, and X-RateLimit-Remaining tells that 9 are left

  for i in \$(seq 12); do curl -s -o /dev/null -w '%{http_code} ' \\
      -H 'X-API-Key: alice' http://127.0.0.1:$port/v1/users; done; echo
      200 until alice has made 10, then 429

  curl -i -H 'X-API-Key: alice' http://127.0.0.1:$port/v1/users
      429, and Retry-After tells when to come back; bob is not affected

  curl -i http://127.0.0.1:$port/v1/users
      200 without X-RateLimit headers: there is no key to count by

END
    show_put
    show_feed
    show_monitor
    cat <<END

make stop ends it; its logs are in $shown/gateway-$port.
END
}

show_put() {
    cat <<END
  curl -X PUT -H "Authorization: Bearer \$(cat $shown/token)" \\
      -H 'If-Match: *' -H 'Content-Type: application/json' -d '{
      "match": {"route": "/v1/orders"}, "params": {"limit": 2, "window": 60}
      }' http://127.0.0.1:$((port + 2))/ratelimit/rules/orders
      a new rule, at once and without a reload: two of these in a minute
END
}

start_cluster() {
    steps=$((steps + 2))
    say "starting six Redis nodes on 127.0.0.1:$redis_port-$redis_last, and" \
        "making a cluster of them: some seconds"
    "$root/tools/redis-cluster.sh" start "$run/redis" "$redis_port"
    start_gateway cluster "$port"
    start_gateway cluster "$second"
    start_monitor "$port" "$second"
    start_feed "$((port + 2))" "$((second + 2))"

    show <<END

Two gateways, 127.0.0.1:$port and :$second, share one limit in a Redis Cluster
(127.0.0.1:$redis_port-$redis_last): 10 requests a minute for each API key.
Requests without an API key are not limited.
In a browser: http://127.0.0.1:$((port + 2))/ratelimit/ and
http://127.0.0.1:$((second + 2))/ratelimit/
They ask for this token: $(cat "$run/token")

  curl -i -H 'X-API-Key: alice' http://127.0.0.1:$port/v1/users
      200, and X-RateLimit-Remaining tells that 9 are left

  for i in \$(seq 6); do for port in $port $second; do
      curl -s -o /dev/null -w '%{http_code} ' -H 'X-API-Key: alice' \\
      http://127.0.0.1:\$port/v1/users; done; done; echo
      200 until alice has made 10 over both gateways, then 429

  curl -i -H 'X-API-Key: alice' http://127.0.0.1:$second/v1/users
      429 from the other gateway too; Retry-After tells when to come back

  curl -i http://127.0.0.1:$port/v1/users
      200 without X-RateLimit headers: there is no key to count by

END
    show_put
    cat <<END

  curl -s -o /dev/null -H 'X-API-Key: alice' \\
      'http://127.0.0.1:$port/v1/feed?[1-5000]'
  awk '{ print \$NF }' $shown/gateway-$port/access.log | sort | uniq -c
      who decided: few of 5000 requests asked redis, the lease paid for the rest

  curl -s http://127.0.0.1:$port/metrics
      how the calls to Redis ended, and the breakers of its nodes

  kill -STOP \$(cat $shown/redis/*/pid)
      takes Redis away: bob's /v1/users passes, X-RateLimit-Status: degraded
      (alice's 429 is remembered, until its Retry-After); of /v1/search 3 pass
      at each gateway, then 429

  kill -CONT \$(cat $shown/redis/*/pid)
      brings it back, with its counters and rules

END
    show_feed
    show_monitor
    cat <<END
make stop ends all of it; logs are in $shown.
END
}

shopt -s nullglob

case "${1:-} ${2:-}" in
    "stop ")
        stop ;;
    "start "|"start cluster")
        # a failed start leaves nothing behind
        stop_feed
        stop_monitor
        stop_gateways
        trap 'stop >&2' EXIT
        if [ -n "${2:-}" ]; then start_cluster; else start_local; fi
        trap - EXIT ;;
    *)
        sed -n '3,10s/^# \{0,1\}//p' "$0" >&2
        exit 2 ;;
esac
