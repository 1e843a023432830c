#!/bin/bash
#
# A PostgreSQL server on loopback, for `make run FEED=postgres` and the tests:
#
#   tools/postgres.sh <folder> <port>    runs it, until it gets SIGINT
#
# The first time, it makes the server's data in the folder, and:
#
#   connection    how to connect, without the password
#   pgpass        the password
#
# PostgreSQL does not run as root: then it is the user "postgres", and the data
# are in a folder of /tmp if this user cannot enter the one given.

set -eu

dir=$(realpath -m "$1")
port=$2
bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
user=()

mkdir -p "$dir"

if [ "$(id -u)" = 0 ]; then
    user=(setpriv --reuid=postgres --regid=postgres --init-groups)
    export HOME=/
fi

if [ ! -e "$dir/data" ]; then
    home=$dir/server
    mkdir -p "$home"

    if [ ${#user[@]} -gt 0 ]; then
        chown postgres: "$home"
        "${user[@]}" test -w "$home" || {
            home=$(mktemp -d /tmp/ratelimit-postgres.XXXXXX)
            chown postgres: "$home"
        }
    fi

    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    (umask 077; echo "127.0.0.1:$port:*:postgres:$password" > "$dir/pgpass")
    echo "host=127.0.0.1 port=$port user=postgres dbname=postgres" \
         "passfile=$dir/pgpass" > "$dir/connection"

    # shellcheck disable=SC2016
    (cd "$home" && printf '%s\n' "$password" | "${user[@]}" sh -c '
        umask 077
        cat > password
        "$1/initdb" -D data -U postgres -A scram-sha-256 -E UTF8 --locale=C \
            --no-sync --pwfile=password > initdb.log 2>&1 \
            || { cat initdb.log >&2; exit 1; }
        rm password' sh "$bin")
    ln -sfn "$home/data" "$dir/data"
fi

cd "$(realpath "$dir/data")/.."
exec "${user[@]}" "$bin/postgres" -D data -p "$port" \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off
