#!/usr/bin/env bash
# Write the locks of the kernel images: the newest versions that fit, with the hashes of their wheels
# for every platform. The large image has what the small one has, in the same versions.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT/docker"
command -v uv >/dev/null || die 'this needs uv' 'https://docs.astral.sh/uv/'

lock() {
    local variant=$1
    shift
    # Without debugpy: the kernel does without it, and to import it takes a quarter of the start.
    uv pip compile --quiet --upgrade --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --only-binary :all: --generate-hashes --no-emit-package debugpy --no-header --no-annotate \
        "$@" "$variant.in" >"$variant.new"
    {
        echo '# Written by `make lock-images`; every wheel is checked against these hashes.'
        # What uv says at the end of debugpy is left out.
        sed '/^#/d; /^$/d' "$variant.new"
    } >"$variant.lock"
    rm "$variant.new"
}

lock minimal
lock analysis --constraint minimal.lock
