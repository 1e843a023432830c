#!/bin/bash
#
# What ten million invented keys leave of the counters of known clients, in the
# table and in limit_req's tree. Takes two minutes.
#
# NGX_SRC  see compile.sh

set -eu

. "$(dirname "$0")/compile.sh"

compile flood

exec timeout 1500 "$out/flood"
