# What the scripts share: source it, it does nothing by itself.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=$ROOT/.cache
PYTHON_IN_VENV=$ROOT/.venv/bin/python
export PYTHON_IN_VENV
mkdir -p "$CACHE"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    say "$1"
    shift
    [ $# -eq 0 ] || printf '    %s\n' "$@" >&2
    exit 1
}

# patiently LABEL COMMAND...: keep the command's output in a log, and show every ten seconds where it
# is; when it fails, show the end of the log. It stays in the foreground, so Ctrl-C reaches it.
patiently() {
    local label=$1 log ticker status=0 started=$SECONDS
    shift
    log=$CACHE/$(printf '%s' "$label" | tr -cs 'A-Za-z0-9' '-').log
    say "$label"
    : >"$log"
    _tick "$log" &
    ticker=$!
    "$@" >"$log" 2>&1 </dev/null || status=$?
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    if [ $status -ne 0 ]; then
        tail -n 30 "$log" >&2
        say "$label: failed with status $status after $((SECONDS - started)) s; all of it: $log"
        return $status
    fi
    [ $((SECONDS - started)) -lt 2 ] || say "$label: done in $((SECONDS - started)) s"
}

# A process substitution that never writes: `read` on it waits without a `sleep` left behind. The
# script may be interrupted before it ends the ticker, which then sees that the script is gone.
_tick() {
    local log=$1 started=$SECONDS next=10 never
    exec {never}<> <(:)
    while kill -0 $$ 2>/dev/null; do
        read -r -t 1 -u "$never" || true
        if [ $((SECONDS - started)) -ge $next ]; then
            printf '    %3d s  %.80s\n' $((SECONDS - started)) "$(tail -n 1 "$log")" >&2
            next=$((next + 10))
        fi
    done
}

is_root() { [ "$(id -u)" -eq 0 ]; }

can_apt() { is_root && [ -e /etc/debian_version ] && command -v apt-get >/dev/null; }

# apt_install PACKAGE...: only after can_apt said yes.
apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    patiently 'refreshing the package lists' apt-get update -q
    patiently "installing $*" apt-get install -q -y --no-install-recommends "$@"
}
