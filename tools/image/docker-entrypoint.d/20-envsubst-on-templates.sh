#!/bin/sh
#
# Makes a configuration of each template: ${NAME} becomes the value of that
# environment variable. Of variables that are not there, nginx's own among them,
# the text stays.

set -e

from=${NGINX_ENVSUBST_TEMPLATE_DIR:-/etc/nginx/templates}
suffix=${NGINX_ENVSUBST_TEMPLATE_SUFFIX:-.template}
to=${NGINX_ENVSUBST_OUTPUT_DIR:-/etc/nginx/conf.d}

# shellcheck disable=SC2016
names=$(awk -v like="${NGINX_ENVSUBST_FILTER:-}" 'BEGIN {
    for (name in ENVIRON) if (name ~ like) printf "${%s} ", name }')

for template in "$from"/*"$suffix"; do
    [ -f "$template" ] || continue
    name=${template##*/}
    envsubst "$names" < "$template" > "$to/${name%"$suffix"}"
done
