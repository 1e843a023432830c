#!/bin/sh
#
# What a killed Redis forgets of what it has counted, and what it costs to have
# it forget less. See README.md for how to read it.
#
# RUNS   how often each line is measured (5)
# RATE   calls a second (10000)
# ONLY   loss, or price (both)
# PORTS  see lib.sh

set -eu

. "$(dirname "$0")/lib.sh"

RUNS=${RUNS:-5}
RATE=${RATE:-10000}
ONLY=${ONLY:-loss price}

# seconds: of load before a kill, and of a cut before it
LOAD=3
CUT=5

need perl perl
need redis-server redis-server
need redis-cli redis-tools
need redis-benchmark redis-tools

TOOL=$BENCH/redis-loss.pl

# server <port's last digits> [<option>...]: as start_redis, again in its folder
server() {
    port=$PORTS$1
    shift
    mkdir -p "$DIR/redis$port"

    redis-server --bind 127.0.0.1 --port "$port" --dir "$DIR/redis$port" \
        --save '' --repl-diskless-sync-delay 0 \
        --logfile "$DIR/redis$port/log" "$@" &
    server=$!
    pids="$pids $server"
    until_ok "redis on port $port" serves "$port"
}

serves() {
    redis-cli -p "$1" ping | grep -q PONG
}

# end <pid>...: and nobody's but this script's
end() {
    kill -9 "$@"

    for pid in "$@"; do
        wait "$pid" 2> /dev/null || true
        pids=$(printf ' %s ' "$pids" | sed "s/ $pid / /")
    done
}

load() {
    perl "$TOOL" load "${PORTS}30" "$RATE" 30 > "$DIR/load" &
    load=$!
    pids="$pids $load"
}

# lost <port's last digits>: counted, of which lost, and refused, to $DIR/<line>
lost() {
    wait "$load"
    read -r counted refused < "$DIR/load"
    [ "$counted" -gt 0 ] || die "nothing was counted"
    echo "$((counted - $(perl "$TOOL" count "$PORTS$1"))) $counted $refused" \
        >> "$DIR/line$line"
}

# killed and started again: killed <option>...
killed() {
    rm -rf "$DIR/redis${PORTS}30"
    server 30 "$@"
    load
    sleep "$LOAD"
    end "$server"
    server 30 "$@"
    lost 30
    end "$server"
}

in_step() {
    redis-cli -p "${PORTS}31" info replication \
        | grep -q master_link_status:up
}

# killed, and its replica, maybe cut off before, takes over:
# promoted <seconds of cut> <option>...
promoted() {
    cut=$1
    shift

    server 30 "$@"
    primary=$server
    perl "$TOOL" cut "${PORTS}32" "${PORTS}30" &
    proxy=$!
    pids="$pids $proxy"
    server 31 --replicaof 127.0.0.1 "${PORTS}32"
    replica=$server
    until_ok "the replica" in_step

    load
    sleep "$LOAD"

    if [ "$cut" -gt 0 ]; then
        kill -USR1 "$proxy"
        sleep "$cut"
    fi

    bytes=$(redis-cli -p "${PORTS}30" info replication \
                | sed -n 's/master_repl_offset:\([0-9]*\).*/\1/p')
    end "$primary"
    redis-cli -p "${PORTS}31" replicaof no one > "$DIR/answer"
    lost 31
    end "$replica" "$proxy"
    echo $((bytes / counted)) >> "$DIR/bytes"
}

# killed and started again before anybody takes over: its replica follows it
followed() {
    server 30 "$@"
    primary=$server
    server 31 --replicaof 127.0.0.1 "${PORTS}30"
    replica=$server
    until_ok "the replica" in_step

    load
    sleep "$LOAD"
    end "$primary"
    server 30 "$@"
    until_ok "the replica" synced
    lost 31
    end "$server" "$replica"
}

# of its second life
synced() {
    redis-cli -p "${PORTS}30" info replication | grep -q state=online
}

# median of a column of lines of numbers: median <file> <column>
median() {
    cut -d ' ' -f "$2" "$1" | sort -n \
        | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

row() {
    name=$1
    shift
    line=$((line + 1))

    for _ in $(seq "$RUNS"); do
        "$@"
    done

    printf '  %-49s %8s %8s %8s %8s\n' "$name" \
        "$(median "$DIR/line$line" 1)" \
        "$(cut -d ' ' -f 1 "$DIR/line$line" | sort -n | tail -n 1)" \
        "$(median "$DIR/line$line" 3)" "$(median "$DIR/line$line" 2)"
}

loss() {
    line=0

    printf '  %-49s %8s %8s %8s %8s\n' "kill -9, median of $RUNS runs" lost \
        most refused counted
    row 'restarted, no persistence' killed
    row 'restarted, appendonly, everysec' \
        killed --appendonly yes --appendfsync everysec
    row 'restarted, appendonly, always' \
        killed --appendonly yes --appendfsync always
    row 'restarted, no persistence, with a replica' followed
    row 'replica promoted' promoted 0
    row 'replica promoted, min-replicas' promoted 0 \
        --min-replicas-to-write 1 --min-replicas-max-lag 1
    row "replica cut off for $CUT s, promoted" promoted "$CUT"
    row "replica cut off for $CUT s, promoted, min-replicas" promoted "$CUT" \
        --min-replicas-to-write 1 --min-replicas-max-lag 1
    echo "  bytes of a call to a replica: $(median "$DIR/bytes" 1)"
}

# calls a second: speed <port's last digits> <calls in one write>
speed() {
    redis-benchmark -p "$PORTS$1" -c 4 -P "$2" -n $((20000 * $2)) -r 65536 \
        --csv EVALSHA "$sha" 1 'rl:{__rand_int__}' t abcdefgh 1 1 100 600000 1 \
        | tail -n 1 | sed 's/.*","\([0-9]*\)[.0-9]*","[^"]*","[^"]*","[^"]*","[^"]*","[^"]*","[^"]*"$/\1/'
}

price() {
    server 40
    server 41 --appendonly yes --appendfsync everysec
    server 42 --appendonly yes --appendfsync always

    for port in 40 41 42; do
        sha=$(perl "$TOOL" sha "$PORTS$port")
    done

    printf '  %-31s %12s %12s %12s\n' "calls/s, median of $RUNS runs" none \
        everysec always

    for n in 1 16; do
        for _ in $(seq "$RUNS"); do
            echo "$(speed 40 $n) $(speed 41 $n) $(speed 42 $n)"
        done > "$DIR/speeds"

        awk '{ print $1, $2, $3, $2 / $1, $3 / $1 }' "$DIR/speeds" \
            > "$DIR/ratios"
        printf '  %-31s %12s %12s %12s\n' "4 connections, $n a write" \
            "$(median "$DIR/ratios" 1)" "$(median "$DIR/ratios" 2)" \
            "$(median "$DIR/ratios" 3)"
        printf '  %-31s %12s %12.2f %12.2f\n' '  to none' '' \
            "$(median "$DIR/ratios" 4)" "$(median "$DIR/ratios" 5)"
    done
}

echo "$(date -u +%Y-%m-%d), $(nproc --all) cores of" \
     "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
     "$(uname -sr), $(redis-server --version | cut -d ' ' -f 1-3)," \
     "$RATE calls a second"

for part in $ONLY; do
    "$part"
done
