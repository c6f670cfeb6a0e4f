"""Runs the benchmarks and writes what they gave.

python -m benchmarks                      all of them, some twenty minutes
python -m benchmarks --quick              fewer samples, a few minutes
python -m benchmarks round_trip churn     only these
python -m benchmarks --docs               and write the figures into docs/performance.md
python -m benchmarks --from FILE --docs   the same with the figures of an earlier run
"""

import argparse
import asyncio
import importlib
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine, report
from benchmarks.harness import Measurement, Run, Skipped

NAMES = (
    *('agent', 'round_trip', 'throughput', 'cold_start', 'warm_acquire', 'restart'),
    *('deadlines', 'churn', 'sessions', 'journal_cost', 'llm_throughput'),
)
SLOW = ('llm_throughput',)
"""Not part of a quick run unless named: an engine takes minutes to start."""
RESULTS = Path('build/benchmarks')


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks', description='Ours beside its floor, in the same run.'
    )
    parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(NAMES)}')
    parser.add_argument('--quick', action='store_true', help='fewer samples')
    parser.add_argument('--out', type=Path, default=RESULTS, help='folder of the results')
    parser.add_argument('--from', type=Path, dest='earlier', metavar='FILE', help='measure nothing')
    parser.add_argument('--docs', action='store_true', help='write docs/performance.md, too')
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f'there is no {", ".join(sorted(unknown))}; there are {", ".join(NAMES)}')
    if options.earlier:
        results = report.Results.from_json(options.earlier.read_text(encoding='utf-8'))
    else:
        usual = [name for name in NAMES if not (options.quick and name in SLOW)]
        results = measured(options.names or usual, quick=options.quick)
        report.write(results, options.out)
    if options.docs:
        report.write_docs(results)
    print(report.tables(results))


def measured(names: Sequence[str], *, quick: bool) -> report.Results:
    """Describe the machine, then run benchmarks."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # three sockets a session, and more
    about = machine.describe()
    return report.Results(about, asyncio.run(run_all(names, Run(quick=quick))), quick=quick)


async def run_all(names: Sequence[str], run: Run) -> list[Measurement]:
    """Run benchmarks one after the other, and show each figure as it comes."""
    measurements: list[Measurement] = []
    for name in names:
        started = time.monotonic()
        print(f'# {name}', file=sys.stderr)
        try:
            async for measurement in importlib.import_module(f'benchmarks.{name}').measure(run):
                print(f'  {report.line(measurement)}', file=sys.stderr, flush=True)
                measurements.append(measurement)
        except Skipped as reason:
            print(f'  skipped: {reason}', file=sys.stderr)
        print(f'  ({time.monotonic() - started:.0f} s)', file=sys.stderr)
    return measurements


if __name__ == '__main__':
    main()
