#!/bin/sh
#
# Fetches from this machine's own Debian archive what its release does not
# carry or its configuration does not list. That configuration stays as it is:
# the temporary source, its lists and its cache live in <dir>.
#
#   tools/apt-fetch.sh package <name> <dir> <suite>...
#       downloads <name> as a .deb from the first suite that has it
#   tools/apt-fetch.sh source <name> <dir>
#       unpacks the source package <name>, in the version installed here where
#       the archive still has it, else in the latest that it has

set -eu

usage() {
    sed -n '3,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -ge 3 ] || usage

what=$1 name=$2
mkdir -p "$3"
dir=$(cd "$3" && pwd)
shift 3

apt=$dir/apt
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
options=
[ ! -e "$keyring" ] || options="[signed-by=$keyring] "

mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"

# The machine's entries as "label|suite|uri": apt itself reads them, so both
# formats of its sources are understood.
entries() {
    apt-get indextargets --format '$(LABEL)|$(RELEASE)|$(REPO_URI)' \
        'Created-By: Packages' 'Origin: Debian' 'Component: main' | sort -u
}

# A mirror that has stood still for weeks will do; signatures are verified.
temporary() {
    command=$1
    shift
    "$command" -qq \
        -o Dir::State::Lists="$apt/lists" \
        -o Dir::Cache="$apt/cache" \
        -o Dir::Etc::SourceList="$apt/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null \
        -o Dir::Etc::PreferencesParts=/dev/null \
        -o APT::Get::List-Cleanup=0 \
        -o Acquire::Check-Valid-Until=false \
        -o APT::Sandbox::User="$(id -un)" \
        "$@"
}

fetch_package() {
    uri=$(entries | awk -F'|' '$1 == "Debian" { print $3; exit }')

    if [ -z "$uri" ]; then
        echo "apt-fetch: no entry of the Debian archive found" \
             "(apt-get update first?)" >&2
        return 1
    fi

    for suite in "$@"; do
        echo "deb $options$uri $suite main" > "$apt/sources.list"
        echo "apt-fetch: $name from $suite"
        if temporary apt-get update \
           && (cd "$dir" && temporary apt-get download "$name")
        then
            return 0
        fi
    done

    return 1
}

fetch_source() {
    entries | awk -F'|' -v options="$options" \
        '{ print "deb-src " options $3 " " $2 " main" }' > "$apt/sources.list"
    temporary apt-get update

    installed=$(dpkg-query -W -f '${source:Version}' "$name" 2>/dev/null || true)
    cd "$dir"

    # an index may name what the archive has no more, or not yet
    for version in $installed $(versions "$installed"); do
        echo "apt-fetch: source of $name $version"
        ! temporary apt-get source "$name=$version" || return 0
    done

    return 1
}

# those that the indexes name, the latest first, but for one
versions() {
    temporary apt-cache showsrc "$name" | sed -n 's/^Version: //p' \
        | sort -rV -u | grep -vxF -e "$1"
}

case $what in
    package) [ $# -gt 0 ] || usage; fetch_package "$@" ;;
    source)  fetch_source ;;
    *)       usage ;;
esac
