#!/bin/sh
#
# Runs what is in /docker-entrypoint.d before nginx starts, in the order of the
# names: a *.envsh in this shell, a *.sh as a program. Both must be executable.

set -e

if [ "$1" = nginx ]; then
    for file in /docker-entrypoint.d/*; do
        [ -x "$file" ] || continue
        # shellcheck source=/dev/null
        case $file in
            *.envsh) . "$file" ;;
            *.sh)    "$file" ;;
        esac
    done
fi

exec "$@"
