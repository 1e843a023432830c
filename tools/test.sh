#!/bin/bash
#
# Runs t/*/*.t, or the files given, under prove, on the installed nginx and
# build/*.so. With SAN=address,undefined, or COVERAGE=yes, on an nginx built from
# the distribution's source with these sanitizers, or with what counts the lines
# that run, and with the module linked in.
#
# Several files run at once. A Redis server or cluster that several files share
# is started once, and none of them changes it.
#
# JOBS            how many files run at once (three a processor: most wait)
# RATELIMIT_LOGS  the folder of the logs (build/t), each file's removed when it
#                 passes; a run begins with an empty one
# AGAIN           so many files that fail run once more, each alone; those that
#                 then pass are to be added to t/unstable (0)

set -eu

cd "$(dirname "$0")/.."

# make test-page runs those of t/page: they need a browser
shopt -s extglob
files=("$@")
[ $# -gt 0 ] || files=(t/!(page)/*.t)
jobs=${JOBS:-$((3 * $(nproc)))}

# these begin, because they take longest
slowest=(chaos/chaos redis/fake-redis redis/sentinel rules/swap engine/nodes
         rules/redis redis/acl conf/conf api/faults tools/run rules/control
         redis/breaker redis/topology sim/sim tools/plots rules/kill
         rules/lost engine/shards)

export RATELIMIT_LOGS=${RATELIMIT_LOGS:-build/t}

# tests have sockets there, whose paths have 107 bytes at most
logs=$(realpath -m "$RATELIMIT_LOGS")
if [ ${#logs} -gt 70 ]; then
    RATELIMIT_LOGS=$(mktemp -d)
    echo "test: $logs is too long for sockets, the logs are in $RATELIMIT_LOGS"
fi

redis=$RATELIMIT_LOGS/$$-redis

# a process that holds the ports until this one ends
coproc PORTS {
    exec perl -I. -Mt::Ports -e 'print t::Ports::free_ports(7), "\n";
                                 close STDOUT; readline'
}
read -r cluster_port <&"${PORTS[0]}"
redis_port=$((cluster_port + 6))

cleanup() {
    tools/redis-cluster.sh stop-one "$redis" $redis_port
    tools/redis-cluster.sh stop "$redis" $cluster_port
}

# own_nginx <folder> <compiler> <flags> <flags to compile with>
own_nginx() {
    local modules="--with-threads --with-http_ssl_module --with-http_v2_module \
--with-http_realip_module --with-http_auth_request_module \
--with-http_stub_status_module"

    tools/deps.sh san

    if [ -z "${NGX_SRC:-}" ]; then
        if [ ! -e build/san/src/done ]; then
            rm -rf build/san/src
            tools/apt-fetch.sh source nginx build/san/src
            touch build/san/src/done
        fi
        NGX_SRC=$(echo "$PWD"/build/san/src/nginx-*/)
    fi

    NGX_SRC=$NGX_SRC CC=$2 LD_OPT=$3 CC_OPT="-g $3 $4" \
        NGX_CONFIGURE="--with-debug ${NGX_CONFIGURE:-$modules}" \
        tools/build.sh static "$1"

    export TEST_NGINX_BINARY=$PWD/$1/nginx
    export RATELIMIT_STATIC=1
}

if [ -n "${SAN:-}" ]; then

    # clang, because its sanitizers are one runtime, with one file for all
    # reports, and can be told which sources not to judge; each allocation of a
    # pool on its own, so that overruns are seen
    own_nginx build/san/objs clang \
        "-fsanitize=$SAN -fno-omit-frame-pointer" \
        "-O1 -fsanitize-ignorelist=$PWD/tools/sanitize.ignore \
-DNGX_DEBUG_PALLOC=1"

elif [ -n "${COVERAGE:-}" ]; then
    own_nginx build/coverage/objs gcc --coverage \
        "-O0 -fprofile-update=atomic -Wno-error"
fi

# what earlier runs that failed or died left to look into
for dir in "$RATELIMIT_LOGS"/[0-9]*; do
    pid=${dir##*/}
    [ -d "/proc/${pid%%-*}" ] || rm -rf "$dir"
done

trap cleanup EXIT
trap 'exit 1' INT TERM HUP

mkdir -p "$RATELIMIT_LOGS"
${CC:-cc} -O2 -Wall -Wextra -Werror -shared -fPIC \
    -o "$RATELIMIT_LOGS/clock.so.$$" t/clock.c
mv "$RATELIMIT_LOGS/clock.so.$$" "$RATELIMIT_LOGS/clock.so"

# once for the files that run it, plots.t without sanitizers
if grep -qE 'build/sim|plots\.pl' "${files[@]}"; then
    ${MAKE:-make} --no-print-directory -s -j "$(nproc)" -C t/sim SAN=
    ${MAKE:-make} --no-print-directory -s -j "$(nproc)" -C t/sim \
        SAN="${SAN:-}"
fi

if grep -qw redis_port "${files[@]}"; then
    tools/redis-cluster.sh start-one "$redis" $redis_port
    export RATELIMIT_REDIS_PORT=$redis_port
fi

if grep -qw cluster_ports "${files[@]}"; then
    tools/redis-cluster.sh start "$redis" $cluster_port
    export RATELIMIT_CLUSTER_PORTS
    RATELIMIT_CLUSTER_PORTS=$(seq -s ' ' $cluster_port $((cluster_port + 5)))
fi

ordered=()
for name in "${slowest[@]}"; do
    for file in "${files[@]}"; do
        [ "$file" != "t/$name.t" ] || ordered+=("$file")
    done
done
for file in "${files[@]}"; do
    [[ " ${ordered[*]} " == *" $file "* ]] || ordered+=("$file")
done

# the faults say how far they are
verbose=()
what='test files'
steps=${#ordered[@]}
passed='^\[[\d:]+\] (\S+) \.+ ok'
if [ "${RATELIMIT_CHAOS:-}" = full ]; then
    verbose=(-v)
    what=faults
    steps=0
    passed='^(?:ok\b|1\.\.)'
fi

# a file's own words go to a log of its own, which stays where the file fails
rm -f "$RATELIMIT_LOGS"/*.log
result=0
tools/progress.pl "$what" $steps "$passed" \
    prove "${verbose[@]}" --timer -j "$jobs" \
    --exec "bash tools/test-file.sh" "${ordered[@]}" < /dev/null || result=$?

failed=()
for file in "${ordered[@]}"; do
    log=${file%.t}
    [ ! -e "$RATELIMIT_LOGS/${log//\//-}.log" ] || failed+=("$file")
done

if [ $result -eq 1 ] && [ ${#failed[@]} -gt 0 ] \
    && [ ${#failed[@]} -le "${AGAIN:-0}" ]
then
    mkdir -p "$RATELIMIT_LOGS/unstable"
    mv "$RATELIMIT_LOGS"/*.log "$RATELIMIT_LOGS/unstable/"
    result=0

    for file in "${failed[@]}"; do
        if prove --exec "bash tools/test-file.sh" "$file" < /dev/null; then
            echo "unstable: add \"$file $(date +%F)\" to t/unstable: it" \
                 "passed alone, its log is in $RATELIMIT_LOGS/unstable"
        else
            result=1
        fi
    done
fi

for log in "$RATELIMIT_LOGS"/*.log; do
    [ -e "$log" ] || continue
    name=${log##*/}
    echo "failed: ${name%.log}, the last lines of $log:"
    tail -n 30 "$log" | sed 's/^/    /'
done

exit $result
