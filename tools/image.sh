#!/bin/bash
#
# Makes a container image of Debian's nginx and the package of build/deb: an
# archive of the OCI's layout, build/image/<name>.tar. The files of other
# packages come by apt from where this machine gets its own; no script of theirs
# runs, and none of this needs root. The same packages give the same bytes.
#
#   tools/image.sh [<folder>]      build/image unless given
#
# Environment:
#   SOURCE_DATE_EPOCH  the time of all files (that of the last commit)

set -eu -o pipefail

cd "$(dirname "$0")/.."

name=ratelimit-nginx
mkdir -p "${1:-build/image}"
out=$(cd "${1:-build/image}" && pwd)
deb=$(echo "$PWD"/build/deb/libnginx-mod-http-ratelimit_*.deb)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# the libraries that nginx and the module name, and what the entry point runs
libraries=$({ dpkg-deb -f "$deb" Depends
               apt-cache show --no-all-versions nginx | grep ^Depends; } \
    | grep -oE '\b(lib(c6|crypt|pcre|ssl|hiredis|jansson)|zlib1g)[^ ,]*' | sort -u)
mkdir "$work/debs"
# shellcheck disable=SC2086
(cd "$work/debs" && apt-get download -qq -o APT::Sandbox::User="$(id -un)" \
    base-files busybox ca-certificates gettext-base nginx nginx-common tzdata \
    $libraries)

root=$work/root
mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root/var/lib/dpkg"
for link in bin sbin lib lib64; do
    ln -s "usr/$link" "$root/$link"
done
for file in "$work"/debs/*.deb "$deb"; do
    dpkg-deb --fsys-tarfile "$file" \
        | tar -x -C "$root" --no-same-owner --keep-directory-symlink
    # scanners read which packages are there
    dpkg-deb -f "$file" | sed '1a Status: install ok installed' \
        >> "$root/var/lib/dpkg/status"
    echo >> "$root/var/lib/dpkg/status"
done

# what scripts of the packages would do
"$root/bin/busybox" --list | (cd "$root/bin" && perl -lne 'symlink "busybox", $_')
cat "$root"/usr/share/ca-certificates/mozilla/*.crt \
    > "$root/etc/ssl/certs/ca-certificates.crt"
echo 'root:x:0:0:root:/root:/bin/sh
nginx:x:101:101:nginx:/tmp:/bin/false' > "$root/etc/passwd"
echo 'root:x:0:
nginx:x:101:' > "$root/etc/group"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

# what nobody uses there
find "$root/usr/share/doc" ! -type d ! -name copyright -delete
(cd "$root" && rm -rf boot \
    etc/{default,init.d,logrotate.d,ufw,update-motd.d} \
    etc/nginx/{sites-*,snippets} usr/{games,include,lib/systemd} \
    usr/lib/*/gconv usr/bin/{gettext*,ngettext} usr/share/zoneinfo/{posix,right} \
    usr/share/{apport,base-files,bug,ca-certificates,gettext,info,lintian} \
    usr/share/{locale,man,vim})
find "$root/usr/share/doc" -type d -empty -delete

# nginx of the packages writes there, whatever its configuration says
rm -rf "$root/var/lib/nginx"
ln -s /tmp "$root/var/lib/nginx"
ln -s /tmp/nginx.pid "$root/run/nginx.pid"
ln -s /dev/stdout "$root/var/log/nginx/access.log"
ln -s /dev/stderr "$root/var/log/nginx/error.log"
ln -s /usr/share/nginx/modules-available/mod-http-ratelimit.conf \
    "$root/etc/nginx/modules-enabled/50-mod-http-ratelimit.conf"
mkdir "$root/etc/nginx/templates"
cp -R tools/image/. "$root/"
chmod -R u=rwX,go=rX "$root"
chmod 1777 "$root/tmp" "$root/var/tmp"

pack() {
    tar -C "$1" --sort=name --mtime="@$epoch" --numeric-owner --format=ustar \
        "${@:2}"
}

# the folder that the entry point writes to is the user's
pack "$root" --owner=0 --group=0 --exclude=./etc/nginx/conf.d \
    -cf "$work/layer.tar" .
pack "$root" --owner=101 --group=101 -rf "$work/layer.tar" ./etc/nginx/conf.d

layout=$work/layout
mkdir -p "$layout/blobs/sha256"

# moves a file to its place, and prints its descriptor
blob() {
    local sum
    sum=$(sha256sum "$2" | cut -d' ' -f1)
    jq -nc --arg type "application/vnd.oci.image.$1" --arg sum "sha256:$sum" \
        --argjson size "$(stat -c %s "$2")" \
        '{mediaType: $type, digest: $sum, size: $size}'
    mv "$2" "$layout/blobs/sha256/$sum"
}

diff_id=sha256:$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
gzip -9n "$work/layer.tar"
layer=$(blob layer.v1.tar+gzip "$work/layer.tar.gz")
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
tag=$(dpkg-deb -f "$deb" Version | tr '~' -)

# a health check is Docker's own
jq -nc --arg arch "$(dpkg-deb -f "$deb" Architecture)" --arg diff "$diff_id" \
    --arg created "$created" --arg version "$tag" '{
    created: $created, architecture: $arch, os: "linux",
    config: {
        User: "101:101", ExposedPorts: {"8080/tcp": {}}, WorkingDir: "/",
        Env: ["PATH=/usr/sbin:/usr/bin"],
        Entrypoint: ["/docker-entrypoint.sh"],
        Cmd: ["nginx", "-g", "daemon off;"], StopSignal: "SIGQUIT",
        Healthcheck: {
            Test: ["CMD", "wget", "-q", "-O", "/dev/null",
                   "http://127.0.0.1:8080/healthz"],
            Interval: 10000000000, Timeout: 3000000000},
        Labels: {"org.opencontainers.image.version": $version,
                 "org.opencontainers.image.licenses": "BSD-2-Clause"}},
    rootfs: {type: "layers", diff_ids: [$diff]},
    history: [{created: $created, created_by: "tools/image.sh"}]
    }' > "$work/config"
config=$(blob config.v1+json "$work/config")
jq -nc --argjson config "$config" --argjson layer "$layer" '{
    schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
    config: $config, layers: [$layer]}' > "$work/manifest"
manifest=$(blob manifest.v1+json "$work/manifest")
echo '{"imageLayoutVersion":"1.0.0"}' > "$layout/oci-layout"
jq -nc --argjson manifest "$manifest" --arg tag "$tag" --arg name "$name" '{
    schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json",
    manifests: [$manifest + {annotations: {
        "io.containerd.image.name": "\($name):\($tag)",
        "org.opencontainers.image.ref.name": $tag}}]}' > "$layout/index.json"
# what "docker load" reads
jq -nc --argjson config "$config" --argjson layer "$layer" --arg tag "$tag" \
    --arg name "$name" 'def path: "blobs/" + sub(":"; "/");
    [{Config: ($config.digest | path), RepoTags: ["\($name):\($tag)"],
      Layers: [$layer.digest | path]}]' > "$layout/manifest.json"

pack "$layout" --owner=0 --group=0 --mode=u=rwX,go=rX \
    -cf "$work/$name.tar" blobs index.json manifest.json oci-layout
mv "$work/$name.tar" "$out/$name.tar"
echo "${out#"$PWD"/}/$name.tar"
