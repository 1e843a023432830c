#!/bin/sh
#
# Files of src/ that call each other in a circle: none may be of more than five
# files. A connection and its event handlers may form one; for the rest, the
# code stands in the wrong file.
#
#   tools/check-circles.sh <folder of object files>

set -eu

find "$1" -path '*/addon/*.o' -exec nm -A {} + | python3 -c '
import os, re, sys

MOST = 5
home, uses = {}, {}

for line in sys.stdin:
    path, kind, name = re.match(r"(.*?\.o):\S* *(\w) (\S+)", line).groups()
    unit = os.path.basename(path)[:-2]
    if kind == "T":
        home[name] = unit
    elif kind == "U":
        uses.setdefault(unit, set()).add(name)

calls = {unit: {home[name] for name in names if name in home} - {unit}
         for unit, names in uses.items()}


def reached(unit):
    seen, new = set(), [unit]
    while new:
        for called in calls.get(new.pop(), ()):
            if called not in seen:
                seen.add(called)
                new.append(called)
    return seen


reach = {unit: reached(unit) for unit in calls}
circles = {frozenset(other for other in reach[unit] if unit in reach.get(other, ()))
           for unit in calls}
large = [sorted(circle) for circle in circles if len(circle) > MOST]

for circle in large:
    print("circle of %d files:" % len(circle))
    for unit in circle:
        print("  %s -> %s" % (unit, " ".join(sorted(calls[unit] & set(circle)))))

sys.exit(len(large) > 0 or not calls)
'
