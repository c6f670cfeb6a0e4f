#!/bin/sh
# Make a base image out of Debian packages, where no image registry can be reached.
# Needs root, mmdebstrap and the docker command. Usage: bootstrap-base.sh IMAGE
set -eu

image=$1
archive=$(mktemp --suffix=.tar)
trap 'rm -f "$archive"' EXIT INT TERM

mmdebstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    bookworm "$archive"
docker import --change 'ENV LANG=C.UTF-8' "$archive" "$image"
