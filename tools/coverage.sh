#!/bin/bash
#
# Which lines of src/ the tests run: unit tests and t/*/*.t, or the files given,
# with a count of each line. Ends with a table of the files below 90 % and the
# whole; build/coverage/lines.txt has the numbers of the lines that did not run.
#
# A worker that a test kills leaves no count.

set -eu

cd "$(dirname "$0")/.."

tools/deps.sh san
mkdir -p build/coverage
find build -name '*.gcda' -delete

export COVERAGE=yes

result=0
make --no-print-directory -s -C t/unit -j"$(nproc)" -O > build/coverage/unit.log \
    || { result=1; grep -B 5 FAILED build/coverage/unit.log; }
tools/test.sh "$@" || result=1

find build/coverage/objs/addon build/coverage/objs/*.gcda build/lib \
        -name '*.gcda' -exec gcov --json-format --stdout {} + \
        2> build/coverage/gcov.log | python3 -c '
import collections, json, os, sys

root = os.getcwd() + "/"
lines = collections.defaultdict(collections.Counter)

for part in map(json.loads, sys.stdin):
    for file in part["files"]:
        path = os.path.join(part["current_working_directory"], file["file"])
        path = os.path.realpath(path).removeprefix(root)
        if path.startswith(("src/", "ngx_http_ratelimit_module.c")):
            for line in file["lines"]:
                lines[path][line["line_number"]] += line["count"]

with open("build/coverage/lines.txt", "w") as out:
    for path in sorted(lines):
        missed = [str(n) for n, count in sorted(lines[path].items()) if not count]
        print(path + ":", *missed, file=out)

        ran = len(lines[path]) - len(missed)
        if ran < 0.9 * len(lines[path]):
            print("%5.1f %% of %4d lines  %s"
                  % (100 * ran / len(lines[path]), len(lines[path]), path))

counts = [count for path in lines for count in lines[path].values()]
print("coverage: %.1f %% of %d lines of src/"
      % (100 * sum(1 for count in counts if count) / len(counts), len(counts)))
'

exit $result
