#!/bin/bash
#
# Builds the packages of debian/ into build/deb, in a copy of the tree. The
# version is that of CHANGES: one that is not released sorts before its release.
#
# Environment:
#   DEBEMAIL           the maintainer's address (that of the last commit)
#   SOURCE_DATE_EPOCH  the time of the build (that of CHANGES)

set -eu

cd "$(dirname "$0")/.."

source=build/deb/source
rm -rf build/deb
mkdir -p "$source"
tar -c --exclude=./build --exclude=./.git . | tar -x -C "$source"

read -r version date < <(sed -n '1s/^Changes with [^ ]* //p' CHANGES)
[ "$date" != unreleased ] || version=$version~dev

email=${DEBEMAIL:-$(git log -1 --format=%ae)}
sed -i "s/@EMAIL@/$email/" "$source/debian/control"
maintainer=$(sed -n 's/^Maintainer: //p' "$source/debian/control")
cat > "$source/debian/changelog" << END
libnginx-mod-http-ratelimit ($version) unstable; urgency=medium

  * The changes are in the file CHANGES of the source.

 -- $maintainer  $(date -R -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y CHANGES)}")
END

# make has variables of its own, which a package's build must not see
if ! (cd "$source" && env -u MAKEFLAGS -u MAKELEVEL -u NGX_SRC \
          dpkg-buildpackage -us -uc -b) > build/deb/build.log 2>&1
then
    tail -n 30 build/deb/build.log >&2
    exit 1
fi

rm -rf "$source"
ls build/deb/*.deb
