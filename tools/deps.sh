#!/bin/sh
#
# Installs the packages a command needs and this machine misses:
#
#   tools/deps.sh build|run|test|check|bench|san|page|audit|monitor|statsd|
#                 feeder|postgres|deb|image...
#
# Says nothing where all is there. Uses sudo where the caller is not root.
# No service is started by an installation. A system without apt-get is told what
# a build needs. With NGX_SRC, it needs no nginx of the distribution.

set -eu

cd "$(dirname "$0")/.."

packages() {
    case $1 in
        build) echo gcc make libhiredis-dev libjansson-dev libssl-dev \
                    libpcre2-dev zlib1g-dev
               [ -n "${NGX_SRC:-}" ] || echo nginx nginx-dev ;;
        run)   echo nginx redis-server redis-tools curl procps tzdata ;;
        test)  echo nginx nginx-dev redis-server redis-tools curl procps \
                    tzdata jq libcmocka-dev openssl liblua5.1-0-dev pkg-config \
                    gettext-base nghttp2-client perl python3 fail2ban ;;
        check) echo nginx-dev clang clang-tidy binutils shellcheck perl \
                    python3 git libpq-dev libcurl4-openssl-dev ;;
        bench) echo wrk curl libnginx-mod-http-lua lua-nginx-redis valgrind \
                    dpkg-dev perl ;;
        audit) echo rsyslog rsyslog-kafka kcat ;;
        feeder) echo gcc make libpq-dev libcurl4-openssl-dev ;;
        postgres) echo postgresql util-linux ;;
        deb)   echo nginx nginx-dev debhelper dpkg-dev fakeroot lintian \
                    mmdebstrap libhiredis-dev libjansson-dev libssl-dev \
                    libpcre2-dev zlib1g-dev libpq-dev \
                    libcurl4-openssl-dev ;;
        image) echo dpkg-dev jq runc ;;
        monitor) echo prometheus ;;
        statsd) echo rsyslog collectd-core ;;
        san)   echo dpkg-dev clang llvm libclang-rt-dev ;;
        page)  echo chromium
               command -v npm > /dev/null || echo nodejs npm ;;
        *)     echo "deps: unknown set \"$1\"" >&2; return 2 ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo > /dev/null; then
        sudo "$@"
    else
        echo "deps: neither root nor sudo; as root, run: $*" >&2
        return 1
    fi
}

# A package that brings a service would start it. Debian asks this file first.
policy=/usr/sbin/policy-rc.d
policy_made=

policy_remove() {
    [ -z "$policy_made" ] || as_root rm -f "$policy"
    policy_made=
}

policy_make() {
    [ ! -e "$policy" ] || return 0
    policy_made=yes
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" > /dev/null
    as_root chmod 755 "$policy"
}

install() {
    trap policy_remove EXIT
    trap 'exit 1' INT TERM HUP
    policy_make
    mkdir -p build/deps
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y \
             --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" \
             < /dev/null > build/deps/install.log 2>&1
    then
        tail -n 20 build/deps/install.log >&2
        return 1
    fi
    policy_remove
}

update() {
    as_root apt-get update -qq -o DPkg::Lock::Timeout=300 \
        || echo "deps: apt-get update failed, trying what is known" >&2
}

has_test_nginx() {
    perl -e 'for (@INC) { exit 0 if -e "$_/Test/Nginx/Socket.pm" } exit 1'
}

# Debian carries Test::Nginx only in testing and later. It is plain Perl, so
# that one package fits every release.
install_test_nginx() {
    has_test_nginx && return 0
    update

    if apt-cache show libtest-nginx-perl > /dev/null 2>&1; then
        echo "deps: installing libtest-nginx-perl"
        install libtest-nginx-perl
        return
    fi

    echo "deps: installing libtest-nginx-perl from a later Debian release"
    rm -f build/deps/libtest-nginx-perl_*.deb
    sh tools/apt-fetch.sh package libtest-nginx-perl build/deps testing sid
    install ./build/deps/libtest-nginx-perl_*.deb
    has_test_nginx
}

# A browser is driven from a package of npm. The lock file says which bytes.
install_npm() {
    if ! cmp -s t/page/package-lock.json build/page/package-lock.json; then
        echo "deps: installing what t/page/package.json names"
        mkdir -p build/page
        cp t/page/package.json build/page/
        cp t/page/package-lock.json build/page/package-lock.json
        (cd build/page && npm ci --no-audit --no-fund --loglevel=error \
             > /dev/null) || { rm build/page/package-lock.json; return 1; }
    fi
}

if ! command -v apt-get > /dev/null; then
    [ "$1" = build ] || exit 0
    echo "deps: no apt-get here; a build needs gcc, make and the headers of" \
         "hiredis, jansson, OpenSSL, PCRE2 and zlib" >&2
    [ -n "${NGX_SRC:-}" ] && exit 0
    echo "deps: and nginx's source tree: make build NGX_SRC=<folder>" >&2
    exit 1
fi

wanted=
for set in "$@"; do
    wanted="$wanted $(packages "$set")"
done

# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted \
                2>/dev/null | awk '$1 == "installed" { print $2 }' || true)
missing=
for package in $wanted; do
    case "
$installed
" in
        *"
$package
"*) ;;
        *) missing="$missing $package" ;;
    esac
done

if [ -n "$missing" ]; then
    echo "deps: installing$missing"
    update
    # shellcheck disable=SC2086
    install $missing
fi

for set in "$@"; do
    [ "$set" != test ] || install_test_nginx
    [ "$set" != page ] || install_npm
done
