"""Does one task with one library, in that library's environment: `worker.py PEER TASK IMAGE`.

Standard library only, but for the adapter. The result is the last line of the output, as JSON.
"""

import contextlib
import importlib
import json
import statistics
import sys
import time
from typing import Any, Protocol

CELLS = 10
LIMIT = 3.0
LOOP = 'while True: pass'
MEGABYTES = 10
WRITES = "import sys\nfor _ in range(100):\n    sys.stdout.write('x' * 99_999 + '\\n')"

Result = dict[str, Any]


class Peer(Protocol):
    """What an adapter provides."""

    def open(self) -> None:
        """Start a session."""
        ...

    def run(self, code: str, timeout: float) -> str:
        """Run a cell and return what it printed; raise if that is not to be had."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


def ready(peer: Peer) -> Result:
    """From nothing to the first answer."""
    started = time.perf_counter()
    peer.open()
    answer = peer.run('print(1 + 1)', 30.0)
    return {'value': time.perf_counter() - started, 'note': _differs(answer, '2')}


def round_trip(peer: Peer) -> Result:
    """A cell in a session that is warm, in milliseconds."""
    peer.open()
    times = []
    for number in range(2 * CELLS):
        started = time.perf_counter()
        answer = peer.run(f'print({number} + 1)', 30.0)
        times.append((time.perf_counter() - started) * 1e3)
        if note := _differs(answer, str(number + 1)):
            return {'value': None, 'note': note}
    return {'value': statistics.median(times[CELLS:]), 'note': ''}


def ten_cells(peer: Peer) -> Result:
    """Ten cells that build on one another, from nothing to closed."""
    started = time.perf_counter()
    peer.open()
    peer.run('x = 0', 30.0)
    answers = [peer.run('x += 1; print(x)', 30.0) for _ in range(CELLS - 1)]
    peer.close()
    taken = time.perf_counter() - started
    wrong = sum(bool(_differs(text, str(n))) for n, text in enumerate(answers, 1))
    return {'value': taken, 'note': f'{wrong} wrong' if wrong else ''}


def timeout(peer: Peer) -> Result:
    """An endless loop that may take three seconds, and what is left after it."""
    peer.open()
    peer.run('x = 41', 30.0)
    started = time.perf_counter()
    with contextlib.suppress(Exception):  # how a library says so is its own affair
        peer.run(LOOP, LIMIT)
    taken = time.perf_counter() - started
    try:
        lost = _differs(peer.run('print(x + 1)', 10.0), '42')
    except Exception:  # noqa: BLE001 - the session is of no use any more
        lost = 'next cell fails'
    return {'value': taken, 'note': lost and 'next cell fails or has lost its variables'}


def output(peer: Peer) -> Result:
    """Ten megabytes of output."""
    peer.open()
    started = time.perf_counter()
    text = peer.run(WRITES, 60.0)
    taken = time.perf_counter() - started
    arrived = len(text)
    return {'value': taken, 'note': '' if arrived >= 10**7 else f'{arrived:,} characters arrive'}


TASKS = {task.__name__: task for task in (ready, round_trip, ten_cells, timeout, output)}


def _differs(answer: str, expected: str) -> str:
    return '' if answer.strip() == expected else f'answers {answer.strip()[:40]!r}'


def main() -> None:
    """Do the task that the command line names."""
    name, task, image = sys.argv[1:]
    peer: Peer = importlib.import_module(f'peer_{name}').Adapter(image)
    try:
        result = TASKS[task](peer)
    finally:
        peer.close()
    print(json.dumps(result))


if __name__ == '__main__':
    main()
