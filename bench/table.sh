#!/bin/bash
#
# The shared table alone, beside limit_req's tree: ns a check, bytes a counter,
# counters kept. Needs 2.2 GB of memory and nginx's headers (nginx-dev), takes
# three minutes.
#
# NGX_SRC  nginx's source tree, for the tree's parts; else the distribution's,
#          which is fetched once

set -eu

. "$(dirname "$0")/compile.sh"

compile table

exec timeout 590 "$out/table"
