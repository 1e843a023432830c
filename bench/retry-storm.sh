#!/bin/sh
#
# A storm of retries: 64 connections that ask again at once and are all
# rejected. What a rejection takes of the worker's CPU, beside nginx's
# "return 429"; and how long clients below their limit wait meanwhile. See
# README.md. Takes three minutes.
#
# ROUNDS                how often each variant is measured (7)
# SECONDS_EACH          for how long each time (1)
# WORKER_CPU, LOAD_CPU  the cores (0, 1)
# MODULE, NGINX, PORTS  see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

ROUNDS=${ROUNDS:-7}
SECONDS_EACH=${SECONDS_EACH:-1}
WORKER_CPU=${WORKER_CPU:-0}
LOAD_CPU=${LOAD_CPU:-1}

need wrk wrk
need "${CC:-cc}" gcc
need "$NGINX" nginx
[ -e "$MODULE" ] || die "no $MODULE; make build"

cat > "$DIR/storm.conf" << END
load_module $MODULE;
daemon off;
worker_processes 1;
pid $DIR/nginx.pid;
error_log $DIR/error.log warn;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 1000000000;
    keepalive_time 1d;
    client_body_temp_path $DIR/body;
    proxy_temp_path $DIR/proxy;
    fastcgi_temp_path $DIR/fastcgi;
    uwsgi_temp_path $DIR/uwsgi;
    scgi_temp_path $DIR/scgi;
    ratelimit_zone \$http_x_api_key zone=spent:1m rate=1r/d;
    ratelimit_zone \$http_x_api_key zone=growth:1m rate=1r/d retry=growth;
    ratelimit_zone \$http_x_api_key zone=open:1m rate=1000000r/s;
    server {
        listen 127.0.0.1:${PORTS}51 reuseport;
        location / { return 429; }
        location = /json {
            default_type application/json;
            return 429 '{"error":{"code":"RATE_LIMIT_EXCEEDED"}}';
        }
        location = /bare {
            ratelimit zone=spent;
            ratelimit_headers off;
            ratelimit_response off;
            empty_gif;
        }
        location = /headers {
            ratelimit zone=spent;
            ratelimit_response off;
            empty_gif;
        }
        location = /rejected { ratelimit zone=spent; empty_gif; }
        location = /early { ratelimit zone=growth; empty_gif; }
        location = /below { ratelimit zone=open; empty_gif; }
        location = /none { empty_gif; }
    }
}
END

"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -o "$DIR/latency" "$BENCH/latency.c" -lm

taskset -c "$WORKER_CPU" "$NGINX" -p "$DIR/" -c "$DIR/storm.conf" \
    -e "$DIR/error.log" &
pids="$pids $!"
url=http://127.0.0.1:${PORTS}51
until_ok nginx curl -s "$url/none"
worker=$(cat "/proc/$(cat "$DIR/nginx.pid")/task/$(cat "$DIR/nginx.pid")/children")
worker=${worker% }

printf 'GET /below HTTP/1.1\r\nHost: bench\r\nX-API-Key: other\r\n\r\n' \
    > "$DIR/below"

for path in rejected early; do
    curl -s -H 'X-API-Key: storm' "$url/$path" > "$DIR/answer"
done

# storm <path> <seconds>: requests and milliseconds, of answers that are all 429
# unless the path is "none"
storm() {
    printf 'done = function(s) io.write(string.format("result %%d %%d %%d\\n",
            s.requests, s.duration / 1000, s.errors.status)) end\n' \
        > "$DIR/done.lua"

    taskset -c "$LOAD_CPU" nice -n 19 wrk -t 1 -c 64 -d "$2s" \
        -s "$DIR/done.lua" -H 'X-API-Key: storm' "$url/$1" > "$DIR/wrk.$1"
    sed -n 's/^result //p' "$DIR/wrk.$1"
}

# cpu_ns: that the worker has run
cpu_ns() {
    cut -d ' ' -f 1 "/proc/$worker/schedstat"
}

# one_cpu <path>: a line "cpu <path> <ns a request>"
one_cpu() {
    before=$(cpu_ns)
    result=$(storm "$1" "$SECONDS_EACH")
    after=$(cpu_ns)
    echo "$result" | awk -v path="$1" -v ns=$((after - before)) '
        { if ((path != "none") != ($3 > 0.99 * $1)) exit 1
          printf "cpu %s %.1f\n", path, ns / $1 }' \
        || die "\"$1\" was not answered as expected: $result"
}

# one_wait <path>: a line "wait <path> <p50> <p99>" of clients below their limit,
# in microseconds, while that path is stormed
one_wait() {
    if [ "$1" != calm ]; then
        storm "$1" $((SECONDS_EACH + 3)) > "$DIR/storm" &
        load=$!
        sleep 0.3
    fi

    AWAKE=0 "$DIR/latency" "$LOAD_CPU" "$WORKER_CPU" "${PORTS}51" 1000 \
        $((SECONDS_EACH + 1)) < "$DIR/below" > "$DIR/latency.out" \
        || die "latency: $(cat "$DIR/latency.out")"

    awk -v path="$1" '/^result/ { print "wait", path, $6, $7 }' \
        "$DIR/latency.out"

    if [ "$1" != calm ]; then
        wait "$load"
    fi
}

cpu_paths='429 json bare headers rejected early none'
wait_paths='calm 429 rejected early'

i=0
while [ "$i" -lt "$ROUNDS" ]; do
    i=$((i + 1))

    for path in $cpu_paths; do
        one_cpu "$path"
    done

    for path in $wait_paths; do
        one_wait "$path"
    done

    # the next round goes the other way
    cpu_paths=$(printf '%s\n' $cpu_paths | tac | paste -s -d ' ' -)
    wait_paths=$(printf '%s\n' $wait_paths | tac | paste -s -d ' ' -)
done > "$DIR/lines"

# The medians, with the least and the greatest; of the CPU also that of each
# round's ratio to "return 429".
awk '
    function median(list, n,    i, j, x) {
        for (i = 2; i <= n; i++) {
            x = list[i]
            for (j = i - 1; j && list[j] > x; j--) list[j + 1] = list[j]
            list[j + 1] = x
        }
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }

    function column(kind, path, field,    i, n, list) {
        n = seen[kind, path]
        for (i = 1; i <= n; i++) list[i] = value[kind, path, field, i]
        middle = median(list, n)
        least = list[1]
        greatest = list[n]
    }

    function ratio(path,    i, n, list) {
        n = seen["cpu", path]
        for (i = 1; i <= n; i++) {
            list[i] = value["cpu", path, 3, i] / value["cpu", "429", 3, i]
        }
        return median(list, n)
    }

    {
        n = ++seen[$1, $2]
        value[$1, $2, 3, n] = $3
        value[$1, $2, 4, n] = $4
    }

    END {
        name["calm"] = "no storm"
        name["429"] = "return 429, the page of nginx"
        name["json"] = "return 429 with 40 bytes of JSON"
        name["bare"] = "rejected, that page, no headers"
        name["headers"] = "rejected, that page, headers"
        name["rejected"] = "rejected, JSON, headers"
        name["early"] = "too early, retry=growth"
        name["none"] = "empty_gif, 200"

        printf "%-34s %14s %31s\n", "64 connections, all rejected", \
               "CPU us/request", "of return 429"
        n = split("429 json bare headers rejected early none", paths, " ")
        for (i = 1; i <= n; i++) {
            column("cpu", paths[i], 3)
            printf "  %-32s %14.2f (%.2f to %.2f) %14.3f\n", name[paths[i]], \
                   middle / 1000, least / 1000, greatest / 1000, \
                   ratio(paths[i])
        }

        printf "\n%-34s %14s %14s\n", "clients below their limit", "p50 us", \
               "p99 us"
        n = split("calm 429 rejected early", paths, " ")
        for (i = 1; i <= n; i++) {
            column("wait", paths[i], 3)
            printf "  %-32s %14d", name[paths[i]], middle
            column("wait", paths[i], 4)
            printf " %14d (%d to %d)\n", middle, least, greatest
        }
    }' "$DIR/lines"

check_error_log
