#!/bin/bash
#
# The static checks. All of them run; the result is a failure if one fails.
#
#   tools/check.sh [<check>...]    style includes budget scripts params unstable
#                                  core feeder gcc clang symbols circles tidy

set -u

cd "$(dirname "$0")/.." || exit 1

root=$PWD
out=$root/build/check
mkdir -p "$out"

# besides nginx's own -W -Wall -Wpointer-arith -Werror
warnings="-O2 -Wextra -Wno-unused-parameter -Wno-missing-field-initializers \
-Wmissing-prototypes -Wstrict-prototypes -Wvla -Werror"

check_style() {
    tools/check-style.sh
}

check_includes() {
    tools/check-includes.sh
}

# No folder has more lines than docs/architecture.md allows.
check_budget() {
    local folder most lines rows=0 failed=0

    while read -r folder most; do
        rows=$((rows + 1))
        lines=$(find "$folder" -type f -print0 | xargs -0 cat | wc -l)

        if [ "$lines" -gt "$most" ]; then
            echo "$folder has $lines lines, its budget is $most" >&2
            failed=1
        fi
    done < <(sed -n '/^### Budget/,/^##[^#]*$/p' docs/architecture.md \
             | sed -nE 's/^\| `([^`]+)` \| ([0-9,]+) .*/\1 \2/p' | tr -d ,)

    [ "$rows" -gt 0 ] && [ $failed = 0 ]
}

# the tables of a rule's parameters in docs/ are those of the code
check_params() {
    make --no-print-directory -s -C t/unit test_param
}

# a test that failed once is mended before anything else
check_unstable() {
    ! grep -v '^#' t/unstable
}

check_scripts() {
    local file files failed=0

    mapfile -t files < <(git ls-files '*.sh' .ci/run ctl/ratelimitctl ctl/ratelimitctl.bash)
    shellcheck -x -P SCRIPTDIR -S warning "${files[@]}" || failed=1

    # what no test runs
    mapfile -t files < <(git ls-files '*.pl')
    for file in "${files[@]}"; do
        perl -I. -Itools -c "$file" 2> "$out/perl.log" \
            || { cat "$out/perl.log" >&2; failed=1; }
    done

    return $failed
}

# src/core without any nginx header
check_core() {
    local file files cc includes failed=0

    read -ra includes <<< "$(find src/core -type d -printf '-I%p ')"
    mapfile -t files < <(find src/core -name '*.c')

    for file in "${files[@]}"; do
        for cc in gcc clang; do
            $cc -std=c11 -D_DEFAULT_SOURCE -O2 -Wall -Wextra -Werror \
                "${includes[@]}" -c -o /dev/null "$file" || failed=1
        done
    done
    return $failed
}

check_feeder() {
    local cc failed=0

    read -ra feeder <<< "-std=c11 -D_GNU_SOURCE -I$(pg_config --includedir)"
    for cc in gcc clang; do
        # shellcheck disable=SC2086
        $cc "${feeder[@]}" -Wall $warnings -c -o /dev/null \
            feeder/ratelimit-feed.c || failed=1
    done
    clang-tidy --quiet --config-file=.clang-tidy feeder/ratelimit-feed.c -- \
        "${feeder[@]}" 2> "$out/tidy.log" \
        || { cat "$out/tidy.log" >&2; failed=1; }
    return $failed
}

check_gcc() {
    CC=gcc CC_OPT=$warnings LD_OPT='' tools/build.sh dynamic "$out/gcc"
}

check_clang() {
    CC=clang CC_OPT=$warnings LD_OPT='' tools/build.sh dynamic "$out/clang"
}

# A dynamic module shows three names, all of them nginx's. In a static build all
# names meet, so each begins with the prefix.
check_symbols() {
    check_gcc || return 1
    nm -D --defined-only "$out/gcc/ngx_http_ratelimit_module.so" | awk '
        $NF !~ /^ngx_(modules|module_names|module_order)$/ {
            print "exported: " $NF
            failed = 1
        }
        END { exit failed || NR == 0 }' || return 1

    find "$out/gcc" -name '*.o' ! -name '*_modules.o' -print0 \
        | xargs -0 nm -A --defined-only --extern-only | awk '
        $NF !~ /^ngx_rl_/ && $NF != "ngx_http_ratelimit_module" {
            print "symbol without the prefix: " $0
            failed = 1
        }
        END { exit failed || NR == 0 }'
}

check_circles() {
    check_gcc && tools/check-circles.sh "$out/gcc"
}

check_tidy() {
    local tree includes files

    # for the headers that configure makes; what does not compile fails there
    check_clang > /dev/null 2>&1

    tree=$out/clang/tree
    [ -d "$tree" ] \
        || tree=$(dirname "$(dpkg -L nginx-dev | grep '/conf_flags$')")
    read -ra includes <<< "$(sed -n '/^ALL_INCS/,/^$/p' "$out/clang/Makefile" \
                             | tr -d '\\\n' | sed 's/^ALL_INCS =//')"

    mapfile -t files < <(find "$root"/*.c "$root/src" -name '*.c')

    (cd "$tree" && printf '%s\n' "${files[@]}" \
        | xargs -P "$(nproc)" -I {} clang-tidy --quiet \
              --config-file="$root/.clang-tidy" {} -- "${includes[@]}" \
          2> "$out/tidy.log") || { cat "$out/tidy.log" >&2; return 1; }
}

[ $# -gt 0 ] || set -- style includes budget scripts params unstable core \
                  feeder gcc clang symbols circles tidy

failed=
for check in "$@"; do
    echo "check: $check"
    "check_$check" || failed="$failed $check"
done

if [ -n "$failed" ]; then
    echo "check: failed:$failed" >&2
    exit 1
fi
