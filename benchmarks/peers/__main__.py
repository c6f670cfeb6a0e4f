"""Runs the same tasks with each library, in turns: `python -m benchmarks.peers [--rounds N]`."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.peers import image

HERE = Path(__file__).parent
HOME = Path('build/peers')
PATIENCE = 60.0
"""Seconds that one task may take."""

TASKS = {
    'ready': 'nothing to first `1 + 1`, s',
    'round_trip': 'warm cell, ms',
    'ten_cells': 'ten cells, nothing to closed, s',
    'timeout': 'endless loop with a limit of 3 s: control back, s',
    'output': '10 MB of stdout in 100 writes, s',
}
PEERS = {
    'sandbox': '',
    'pool': '',
    'llm_sandbox': 'llm-sandbox[docker]',
    'autogen': 'autogen-ext[docker-jupyter-executor]',
    'smolagents': 'smolagents[docker]',
}
"""Adapters and what pip installs for them; nothing for ours."""


@dataclass
class Column:
    """What one library gave.

    Attributes:
        name: Its adapter.
        python: The interpreter of its environment.
        title: Its name and version.
        values: Samples of each task.
        notes: What went wrong in each task.
    """

    name: str
    python: str
    title: str
    values: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def sample(self, task: str) -> None:
        """Do a task once."""
        result = self._run(task)
        if result['value'] is not None:
            self.values.setdefault(task, []).append(result['value'])
        if result['note']:
            self.notes[task] = result['note']

    def _run(self, task: str) -> dict[str, Any]:
        command = [self.python, str(HERE / 'worker.py'), self.name, task, image.TAG]
        ours = {'PYTHONPATH': str(Path.cwd())} if not PEERS[self.name] else {}
        said = ''
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                check=False,
                text=True,
                timeout=PATIENCE,
                env={**os.environ, **ours},
            )
            said = done.stderr
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            return {'value': None, 'note': f'not within {PATIENCE:.0f} s'}
        except (IndexError, ValueError):
            last = said.strip().splitlines()[-1:] or ['nothing said']
            return {'value': None, 'note': f'fails: {last[0][:120]}'}
        finally:
            image.remove_containers()

    def cell(self, task: str) -> str:
        """Return a cell of the table."""
        samples, note = self.values.get(task), self.notes.get(task, '')
        if not samples:
            return note or '-'
        spread = f' [{min(samples):.3g} - {max(samples):.3g}]' if len(samples) > 1 else ''
        figure = f'{statistics.median(samples):.3g}{spread}'
        return f'{figure}; {note}' if note else figure


def column(name: str) -> Column:
    """Make the environment of a library, unless it is there."""
    package = PEERS[name]
    if not package:
        return Column(name, sys.executable, {'sandbox': 'sandbox', 'pool': 'sandbox, warm'}[name])
    home = HOME / name
    python = str(home.absolute() / 'bin/python')
    if not Path(python).exists():
        print(f'installing {package}', file=sys.stderr)
        venv.create(home, with_pip=True)
    subprocess.run([python, '-m', 'pip', 'install', '--quiet', package], check=True)
    plain = package.partition('[')[0]
    ask = f'from importlib.metadata import version; print(version({plain!r}))'
    told = subprocess.run([python, '-c', ask], check=True, capture_output=True, text=True)
    return Column(name, python, f'{plain} {told.stdout.strip()}')


def table(columns: list[Column]) -> str:
    """Return the results as Markdown."""
    rows = [(words, *(one.cell(task) for one in columns)) for task, words in TASKS.items()]
    return report.table(('', *(one.title for one in columns)), rows)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.peers')
    parser.add_argument('names', nargs='*', metavar='PEER', help=f'of {", ".join(PEERS)}')
    parser.add_argument('--rounds', type=int, default=3, help='samples of each task')
    parser.add_argument('--docs', action='store_true', help='write docs/performance.md, too')
    options = parser.parse_args()
    if unknown := set(options.names) - set(PEERS):
        parser.error(f'there is no {", ".join(sorted(unknown))}; there are {", ".join(PEERS)}')
    image.build()
    columns = [column(name) for name in options.names or PEERS]
    for number in range(options.rounds):
        for task, words in TASKS.items():
            for one in columns[:: -1 if number % 2 else 1]:
                one.sample(task)
                print(f'{one.title}: {words}: {one.cell(task)}', file=sys.stderr, flush=True)
    text = table(columns)
    if options.docs:
        page = report.DOCS.read_text(encoding='utf-8')
        report.DOCS.write_text(report.fill(page, 'peers', text), encoding='utf-8')
    print(text)


if __name__ == '__main__':
    main()
