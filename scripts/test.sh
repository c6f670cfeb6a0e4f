#!/usr/bin/env bash
# Run all tests but those for a GPU: first most of them, several at a time, then one by one those
# that are marked `alone`. It fails if either part does.
#
#   scripts/test.sh [OPTIONS OF PYTEST...]    -m chooses among both parts, -n 0 runs one at a time
set -uo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT" || exit

NOTHING_CHOSEN=5 # pytest's exit status
INTERRUPTED=2

chosen='not gpu'
options=()
while [ $# -gt 0 ]; do
    if [ "$1" = -m ] && [ $# -gt 1 ]; then
        chosen=$2
        shift
    else
        options+=("$1")
    fi
    shift
done

# What waits for containers leaves the cores free. A file stays with one process: its tests share
# what they have started.
workers=$(($(nproc) + 1))
together=(-n "$((workers < 6 ? workers : 6))" --dist loadfile --no-loadscope-reorder)

failed=0 ran=no verdicts=()
part() {
    local name=$1 status=0 verdict
    shift
    printf '\n--- %s\n' "$name"
    "$PYTHON_IN_VENV" -m pytest "$@" || status=$?
    case $status in
        0) ran=yes verdict=passed ;;
        "$NOTHING_CHOSEN") verdict='none was chosen' ;;
        "$INTERRUPTED") exit "$status" ;;
        *) ran=yes failed=$status verdict="FAILED, status $status" ;;
    esac
    verdicts+=("$name: $verdict")
}

part 'several at a time' "${together[@]}" "${options[@]}" -m "($chosen) and not alone"
part 'one by one' "${options[@]}" -m "($chosen) and alone"

[ "$ran" = yes ] || failed=$NOTHING_CHOSEN
printf '\n'
printf 'tests, %s\n' "${verdicts[@]}"
exit "$failed"
