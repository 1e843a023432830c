#!/bin/bash
#
# For test.sh: runs one file, and keeps what it says beside its results where it
# fails.

log=$RATELIMIT_LOGS/$(echo "${1%.t}" | tr / -).log

perl -I. "$1" 2> "$log"
result=$?

[ $result != 0 ] || rm -f "$log"
exit $result
