#!/usr/bin/env bash
# Build wheel and sdist into dist/, install the wheel into an environment of its own, use it there.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

rm -rf dist
patiently 'building wheel and sdist' "$PYTHON_IN_VENV" -m build --outdir dist .
patiently 'making an environment for the wheel' "$PYTHON_IN_VENV" -m venv "$scratch/venv"
patiently 'installing the wheel into it' \
    "$scratch/venv/bin/python" -m pip install -c requirements/constraints.txt dist/*.whl

# From a directory where the source tree cannot be imported instead of the wheel.
cp scripts/check_install.py "$scratch/"
(cd "$scratch" && venv/bin/python -W error check_install.py)
for command in lagent sandbox; do
    (cd "$scratch" && venv/bin/$command --help >/dev/null) || die "the wheel's command $command does not start"
done
du -h dist/*
