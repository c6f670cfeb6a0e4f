"""Runs the benchmarks and writes what they gave.

python -m benchmarks                      all of them, some twenty minutes
python -m benchmarks --quick              fewer samples, a few minutes
python -m benchmarks round_trip churn     only these
python -m benchmarks --docs               and write the figures into docs/performance.md
"""

import argparse
import asyncio
import importlib
import resource
import sys
import time
from pathlib import Path

from benchmarks import machine, report
from benchmarks.harness import Measurement, Run

NAMES = (
    *('agent', 'round_trip', 'throughput', 'cold_start', 'warm_acquire', 'restart'),
    *('deadlines', 'churn', 'sessions'),
)
RESULTS = Path('benchmarks/results')


async def run_all(names: list[str], run: Run) -> list[Measurement]:
    """Run benchmarks one after the other, and show each figure as it comes."""
    measurements: list[Measurement] = []
    for name in names:
        started = time.monotonic()
        print(f'# {name}', file=sys.stderr)
        async for measurement in importlib.import_module(f'benchmarks.{name}').measure(run):
            print(f'  {report.line(measurement)}', file=sys.stderr, flush=True)
            measurements.append(measurement)
        print(f'  ({time.monotonic() - started:.0f} s)', file=sys.stderr)
    return measurements


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks', description='Ours beside its floor, in the same run.'
    )
    parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(NAMES)}')
    parser.add_argument('--quick', action='store_true', help='fewer samples')
    parser.add_argument('--out', type=Path, default=RESULTS, help='folder of the results')
    parser.add_argument('--docs', action='store_true', help='write docs/performance.md, too')
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f'there is no {", ".join(sorted(unknown))}; there are {", ".join(NAMES)}')
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # three sockets a session, and more
    about = machine.describe()
    run = Run(quick=options.quick)
    measurements = asyncio.run(run_all(options.names or list(NAMES), run))
    results = report.Results(about, measurements, quick=options.quick)
    report.write(results, options.out)
    if options.docs:
        report.write_docs(results)
    print(report.tables(results))


if __name__ == '__main__':
    main()
