#!/bin/bash
#
# For test.sh: runs one file, and keeps what it says beside its results where it
# fails. Of a file that dies before its first test, or by a signal, prove says no
# more than "No plan found".

log=$RATELIMIT_LOGS/$(echo "${1%.t}" | tr / -).log

perl -I. "$1" 2> "$log"
result=$?

[ $result -le 128 ] \
    || echo "$1: signal $((result - 128)) ended it; 9: memory may be out" >> "$log"

[ $result != 0 ] || rm -f "$log"
exit $result
