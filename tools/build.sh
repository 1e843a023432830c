#!/bin/bash
#
# Builds the module with nginx's own build system; does nothing where nothing
# changed.
#
#   tools/build.sh dynamic <builddir>    -> <builddir>/<module>.so
#   tools/build.sh static <builddir>     -> <builddir>/nginx
#
# Environment:
#   NGX_SRC        nginx's source tree; else the distribution's (nginx-dev)
#   NGX_CONFIGURE  configure arguments for NGX_SRC (those of your nginx -V)
#   CC, CC_OPT, LD_OPT

set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
kind=$1
mkdir -p "$2"
objs=$(cd "$2" && pwd)

cc_opt=${CC_OPT--O2 -fPIC -fstack-protector-strong -Wformat \
-Werror=format-security -D_FORTIFY_SOURCE=2}
ld_opt=${LD_OPT--fPIC -Wl,-z,relro -Wl,-z,now}

# The distribution's headers come with the flags its nginx was made with: the
# module is loaded only by an nginx of the same flags.
if [ -n "${NGX_SRC:-}" ]; then
    src=$(cd "$NGX_SRC" && pwd)
    version=$(md5sum "$src/src/core/nginx.h")
    read -ra flags <<< "${NGX_CONFIGURE:---with-compat --with-threads \
--with-http_ssl_module --with-http_v2_module --with-http_realip_module \
--with-http_auth_request_module --with-http_stub_status_module}"
else
    src=$(dirname "$(dpkg -L nginx-dev | grep '/conf_flags$')")
    version=$(dpkg-query -W -f '${Version}' nginx-dev)
    # shellcheck disable=SC1091
    . "$src/conf_flags"
    flags=("${NGX_CONF_FLAGS[@]}")
fi

case $kind in
    dynamic) add=--add-dynamic-module=$root target=modules ;;
    static)  add=--add-module=$root target=build ;;
    *)       echo "build: dynamic or static?" >&2; exit 2 ;;
esac

configuration="$src $version $add ${CC:-cc} $cc_opt $ld_opt ${flags[*]}
$(cat "$root/config" "$root/config.make")
$(cd "$root" && find src | sort)"

tree=$src

# configure leaves a Makefile in its folder: of a tree that is not ours a
# copy made of links is configured
if [ -n "${NGX_SRC:-}" ]; then
    tree=$objs/tree
fi

if [ "$configuration" != "$(cat "$objs/configured" 2>/dev/null)" ]; then
    echo "build: compiling the module for nginx in $src: about a minute"
    rm -rf "${objs:?}"/*

    if [ "$tree" != "$src" ]; then
        mkdir "$tree"
        for name in auto conf configure contrib html man src; do
            [ ! -e "$src/$name" ] || cp -rs "$src/$name" "$tree/"
        done
    fi

    configure=./configure
    [ -e "$tree/configure" ] || configure=auto/configure

    if ! (cd "$tree" && $configure --builddir="$objs" --with-cc="${CC:-cc}" \
              --with-cc-opt="$cc_opt" --with-ld-opt="$ld_opt" \
              "${flags[@]}" "$add") > "$objs/configure.log" 2>&1
    then
        tail -n 20 "$objs/configure.log" >&2
        exit 1
    fi

    printf '%s\n' "$configuration" > "$objs/configured"
fi

[ $target = modules ] || target=$objs/nginx

${MAKE:-make} --no-print-directory -s -j "$(nproc)" -C "$tree" \
    -f "$objs/Makefile" "$target"
