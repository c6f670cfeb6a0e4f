#!/usr/bin/env bash
# Run every numbered example and show how each ended; the output of one that fails is shown.
set -uo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT" || exit

shopt -s nullglob
scripts=(examples/[0-9][0-9]_*.py)
[ ${#scripts[@]} -gt 0 ] || die 'there are no examples'

failed=0
for script in "${scripts[@]}"; do
    started=$SECONDS
    log=$CACHE/$(basename "$script" .py).log
    if timeout 300 "$PYTHON_IN_VENV" -W error::ResourceWarning "$script" >"$log" 2>&1 </dev/null; then
        printf 'ok      %-40s %3d s\n' "$script" $((SECONDS - started))
    else
        printf 'FAILED  %-40s status %d\n' "$script" $?
        sed 's/^/        /' "$log"
        failed=$((failed + 1))
    fi
done
printf '%d of %d examples ran\n' $((${#scripts[@]} - failed)) ${#scripts[@]}
[ $failed -eq 0 ]
