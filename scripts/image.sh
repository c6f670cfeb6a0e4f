#!/usr/bin/env bash
# Build a kernel image unless it is there: on a slim Python base, or, where no registry of images can
# be reached, on a base made of Debian packages.
#
#   scripts/image.sh [VARIANT]
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

variant=${1:-minimal}
NO_BASE=3 # what `sandbox build` exits with when it cannot get the base image

status=0
.venv/bin/sandbox build --variant "$variant" >/dev/null || status=$?
[ "$status" -eq "$NO_BASE" ] || exit "$status"

say 'without a registry: making the base of Debian packages instead (needs root; about 30 s)'
if ! command -v mmdebstrap >/dev/null; then
    can_apt || die 'this needs mmdebstrap, root and a Debian machine' \
        'Or name an image that is on this machine: .venv/bin/sandbox build --base NAME'
    apt_install mmdebstrap
fi
.venv/bin/sandbox build --variant "$variant" --base bootstrap >/dev/null
