# shellcheck shell=sh
#
# What run.sh and instructions.sh share: their needs, one directory for all that
# a run writes, and the servers, which end with the script. Sourced.
#
# MODULE  the module to measure
# NGINX   the nginx to load it into
# PORTS   the first digits of all ports: 183 takes 18300 to 18399, and 28391 to
#         28393 for the cluster's bus

BENCH=$(cd "$(dirname "$0")" && pwd)
MODULE=${MODULE:-$BENCH/../build/ngx_http_ratelimit_module.so}
nginx_path=${NGINX:-/usr/sbin/nginx}

# not exported: nginx takes it for the sockets of a binary upgrade
unset NGINX
NGINX=$nginx_path

PORTS=${PORTS:-183}

DIR=$(mktemp -d)
chmod 755 "$DIR"
pids=

die() {
    echo "bench: $*" >&2
    exit 1
}

finish() {
    status=$?
    trap - EXIT
    trap '' INT TERM HUP

    for pid in $pids; do
        kill "$pid" 2> /dev/null || true
    done

    for pid in $pids; do
        wait "$pid" 2> /dev/null || true
    done

    rm -rf "$DIR"
    exit "$status"
}

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# need <command> <package>
need() {
    command -v "$1" > /dev/null || die "no $1; install $2"
}

# fill <template>: to $DIR, with its words replaced
fill() {
    sed -e "s|@MODULE@|$MODULE|g" -e "s|@DIR@|$DIR|g" \
        -e "s|@BENCH@|$BENCH|g" -e "s|@P@|$PORTS|g" \
        -e "s|@PEER_MODULES@|${PEER_MODULES:-}|" -e "s|@PEER@|${PEER:-}|" \
        "$BENCH/$1" > "$DIR/$1"
}

# rules_server <port's last digits> <rules>: a zone, of whose rules two match
# the path /v1/r2/7
rules_server() {
    awk -v port="$PORTS$1" -v n="$2" 'BEGIN {
        zone = "rules_" n
        big = "rate=100r/m capacity=1000000000"
        print "ratelimit_zone $http_x_api_key zone=" zone ":16m " big ";"
        for (i = 2; i <= n; i++) {
            print "ratelimit_rule r" i " zone=" zone " \"match=/v1/r" i \
                  "/{id}\" " big ";"
        }
        print "server { listen 127.0.0.1:" port "; location / {"
        print "ratelimit zone=" zone "; ratelimit_headers off; empty_gif; } }"
    }'
}

# routes_server <port's last digits> <templates>: counts by the route, of
# templates of which one is that of /v1/r2/7; none: by the folded path
routes_server() {
    awk -v port="$PORTS$1" -v n="$2" 'BEGIN {
        zone = "routes_" n
        print "ratelimit_zone $ratelimit_route zone=" zone ":16m " \
              "rate=100r/m capacity=1000000000;"
        print "server { listen 127.0.0.1:" port "; location / {"
        for (i = 1; i <= n; i++) {
            print "ratelimit_route \"/v1/r" i "/{id}\";"
        }
        print "ratelimit zone=" zone "; ratelimit_headers off; empty_gif; } }"
    }'
}

# routes_conf: many rules, many templates; $DIR/nginx.conf includes it
routes_conf() {
    {
        rules_server 71 2
        rules_server 72 1000
        routes_server 73 0
        routes_server 74 10
        routes_server 75 1000
    } > "$DIR/routes.conf"
}

# compile_redis: redis.c, to $REDIS_TOOL
compile_redis() {
    # shellcheck disable=SC2034
    REDIS_TOOL=$BENCH/../build/bench/redis
    make --no-print-directory -C "$BENCH" ../build/bench/redis \
        || die "redis.c needs cc and libhiredis-dev"
}

# until_ok <what> <command>: tries the command for ten seconds
until_ok() {
    what=$1 tries=100
    shift

    until "$@" > /dev/null 2>&1; do
        tries=$((tries - 1))

        if [ "$tries" -eq 0 ]; then
            tail -n 5 "$DIR"/error.log "$DIR"/redis*/log >&2 || true
            die "$what does not answer"
        fi

        sleep 0.1
    done
}

# start_redis <cpu> <port's last digits> [<option>...]
start_redis() {
    cpu=$1 port=$PORTS$2
    shift 2
    mkdir "$DIR/redis$port"

    taskset -c "$cpu" redis-server --bind 127.0.0.1 --port "$port" \
        --dir "$DIR/redis$port" --save '' --appendonly no \
        --logfile "$DIR/redis$port/log" "$@" &
    pids="$pids $!"
    until_ok "redis on port $port" redis-cli -p "$port" ping
}

# start_cluster <cpu>: three primaries, replicas have no part in a check
start_cluster() {
    nodes=
    for digits in 91 92 93; do
        start_redis "$1" $digits --cluster-enabled yes
        nodes="$nodes 127.0.0.1:$PORTS$digits"
    done

    # shellcheck disable=SC2086
    redis-cli --cluster create $nodes --cluster-yes > "$DIR/create" \
        || { cat "$DIR/create" >&2; die "the cluster cannot be made"; }

    for digits in 91 92 93; do
        until_ok "the cluster" cluster_serves "$PORTS$digits"
    done
}

cluster_serves() {
    redis-cli -p "$1" cluster info | grep -q cluster_state:ok
}

# The error log is at "warn": whatever stands in it failed the run, but for the
# warning about $ratelimit_route, which the routes' servers invite.
check_error_log() {
    grep -v '\[warn\].* counts by \$ratelimit_route' "$DIR/error.log" \
        > "$DIR/wrong" || return 0
    head -20 "$DIR/wrong" >&2
    die "nginx wrote the above to its error log"
}
