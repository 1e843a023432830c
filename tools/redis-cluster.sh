#!/bin/bash
#
# Redis servers on loopback, without persistence:
#
#   tools/redis-cluster.sh start <dir> <port>      3 primaries, 3 replicas on
#                                                  <port>..<port>+5
#   tools/redis-cluster.sh stop <dir> <port>
#   tools/redis-cluster.sh start-one <dir> <port>  a single server
#   tools/redis-cluster.sh stop-one <dir> <port>
#
# <dir>/<port> holds what a server writes. A server is ours, and stopped, only
# where the process of its pid file lives in that folder. A start finds servers
# of ours that work and leaves them.

set -eu

[ $# = 3 ] || { sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

action=$1 first=$3
ports=$first

case $action in
    start|stop)         ports=$(seq "$first" $((first + 5))) ;;
    start-one|stop-one) ;;
    *)                  exec "$0" ;;
esac

mkdir -p "$2"
dir=$(cd "$2" && pwd -P)

cli() {
    timeout 5 redis-cli -h 127.0.0.1 -p "$@"
}

# prints the pid of our server on a port
pid_of() {
    local pid
    pid=$(cat "$dir/$1/pid" 2>/dev/null) || return 1
    [ "$(readlink "/proc/$pid/cwd")" = "$dir/$1" ] && echo "$pid"
}

listening() {
    (: < "/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

stop_all() {
    local port pid i

    for port in $ports; do
        pid=$(pid_of "$port") || continue
        kill "$pid"
        kill -CONT "$pid"
    done

    for port in $ports; do
        for ((i = 0; i < 100; i++)); do
            pid=$(pid_of "$port") || break
            [ $i != 50 ] || kill -KILL "$pid"
            sleep 0.1
        done
        rm -rf "${dir:?}/$port"
    done
}

start_server() {
    local port=$1 i
    shift

    if listening "$port"; then
        echo "redis: port $port is in use by another program" >&2
        return 1
    fi

    mkdir -p "$dir/$port" || return 1
    redis-server --port "$port" --bind 127.0.0.1 --daemonize yes \
        --dir "$dir/$port" --pidfile "$dir/$port/pid" \
        --logfile "$dir/$port/log" --save '' --appendonly no \
        --shutdown-timeout 0 "$@" > /dev/null || return 1

    for ((i = 0; i < 100; i++)); do
        [ "$(cli "$port" ping 2>/dev/null)" != PONG ] || return 0
        sleep 0.05
    done

    echo "redis: no server on port $port:" >&2
    tail -n 3 "$dir/$port/log" >&2
    return 1
}

# all know all, every slot is served, every replica follows its primary
healthy() {
    local port info links=0
    for port in $ports; do
        pid_of "$port" > /dev/null || return 1
        info=$(cli "$port" cluster info 2>/dev/null) || return 1
        [[ $info == *cluster_state:ok* ]] || return 1
        [[ $info == *cluster_known_nodes:6* ]] || return 1
        [ "$(cli "$port" cluster nodes 2>/dev/null | grep -c slave)" = 3 ] \
            || return 1
        info=$(cli "$port" info replication 2>/dev/null) || return 1
        [[ $info != *master_link_status:up* ]] || links=$((links + 1))
    done
    [ $links = 3 ]
}

start_cluster() {
    local port i nodes=()

    if healthy; then
        return 0
    fi

    stop_all

    for port in $ports; do
        start_server "$port" --cluster-enabled yes \
            --cluster-config-file nodes.conf --cluster-node-timeout 2000 \
            --repl-diskless-sync-delay 0 || return 1
        nodes+=("127.0.0.1:$port")
    done

    if ! redis-cli --cluster create "${nodes[@]}" --cluster-replicas 1 \
             --cluster-yes > "$dir/create.log" 2>&1
    then
        tail -n 5 "$dir/create.log" >&2
        return 1
    fi

    for ((i = 0; i < 150; i++)); do
        ! healthy || return 0
        sleep 0.2
    done

    echo "redis: the cluster on port $first.. is not ready in 30 s" >&2
    return 1
}

case $action in
    start)
        start_cluster || { stop_all; exit 1; } ;;
    start-one)
        if pid_of "$first" > /dev/null && [ "$(cli "$first" ping)" = PONG ]
        then
            exit 0
        fi
        stop_all
        start_server "$first" || { stop_all; exit 1; } ;;
    stop|stop-one)
        stop_all
        rm -f "$dir/create.log"
        rmdir "$dir" 2>/dev/null || true ;;
esac
