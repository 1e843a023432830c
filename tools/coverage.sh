#!/bin/bash
#
# Which lines of src/ the tests run: unit tests and t/*.t, or the files given,
# with a count of each line. Ends with a table of the files below 90 % and the
# whole; build/coverage/lines.txt has the numbers of the lines that did not run.
#
# A worker that is killed by a test leaves no count.

set -eu

cd "$(dirname "$0")/.."

tools/deps.sh coverage
mkdir -p build/coverage
find build -name '*.gcda' -delete

export COVERAGE=yes

result=0
make --no-print-directory -s -C t/unit -j"$(nproc)" -O > build/coverage/unit.log \
    || { result=1; grep -B 5 FAILED build/coverage/unit.log; }
tools/test.sh "$@" || result=1

gcovr --root . --filter src/ --filter ngx_http_ratelimit_module.c \
    --gcov-ignore-parse-errors -j "$(nproc)" --json build/coverage/lines.json \
    --txt build/coverage/lines.txt build/coverage/objs build/lib \
    2> build/coverage/gcovr.log

python3 - << 'END'
import json
files = json.load(open("build/coverage/lines.json"))["files"]
total = ran = 0
for file in files:
    lines = [line for line in file["lines"] if not line["gcovr/noncode"]]
    hit = sum(1 for line in lines if line["count"])
    total += len(lines)
    ran += hit
    if lines and hit < 0.9 * len(lines):
        print("%5.1f %% of %4d lines  %s"
              % (100 * hit / len(lines), len(lines), file["file"]))
print("coverage: %.1f %% of %d lines of src/" % (100 * ran / total, total))
END

exit $result
