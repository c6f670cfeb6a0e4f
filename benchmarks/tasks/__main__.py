"""Asks a model the tasks, and writes how many it has solved.

python -m benchmarks.tasks --model gpt-4o                    the key is in the environment
python -m benchmarks.tasks --model NAME --base-url URL       any OpenAI-compatible server
python -m benchmarks.tasks --model FOLDER --limit 10         weights in a folder; a few tasks
python -m benchmarks.tasks --recorded                        no model: the tasks' own solutions

Run again with the same settings, it goes on where it stopped.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.tasks import data
from benchmarks.tasks.recorded import recorded
from benchmarks.tasks.report import markdown
from benchmarks.tasks.run import Results, Settings, SettingsDiffer, try_all
from benchmarks.tasks.task import Task, load
from lagent.actions.interpreter import Interpreter
from lagent.errors import ConfigError, ExtraMissing
from lagent.llms.from_env import model_from_env

OUT = Path('build/tasks')


def main() -> None:
    """Read the command line and run."""
    defaults = Settings(model='')
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.tasks', description='Questions about data with exact answers.'
    )
    add = parser.add_argument
    add('names', nargs='*', metavar='TASK', help='id of a task, or a theme; all by default')
    add('--model', help='name of a served model, or folder of a local one')
    add('--base-url', help='address of an OpenAI-compatible server')
    add('--recorded', action='store_true', help="run the tasks' own solutions in place of a model")
    add('--limit', type=int, metavar='N', help='only N tasks, taken evenly from all')
    add('--out', type=Path, default=OUT, help=f'folder of the results (default: {OUT})')
    add('--parallel', type=int, default=1, metavar='N', help='tasks at the same time')
    add('--max-turn', type=int, default=defaults.max_turn, help='runs of code a task')
    add('--tokens', type=int, default=defaults.tokens, help='tokens a task')
    add('--seconds', type=float, default=defaults.seconds, help='seconds a task')
    add('--backend', default=defaults.backend, help='where code runs: docker, bubblewrap')
    add('--list', action='store_true', help='list the tasks and do nothing')
    options = parser.parse_args()
    try:
        tasks = chosen(load(), options.names, options.limit)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print('\n'.join(f'{task.theme:12} {task.id:26} {task.question}' for task in tasks))
        return
    try:
        results = tried(tasks, options)
    except (ConfigError, ExtraMissing, SettingsDiffer, data.DataError) as error:
        parser.exit(2, f'{error}\n')
    print(markdown(results))
    if any(not result.counts for result in results.by_id.values()):
        parser.exit(1, 'Some tasks could not be tried; run it again to try them once more.\n')


def tried(tasks: list[Task], options: argparse.Namespace) -> Results:
    """Try the tasks that have no result yet, and show each as it comes."""
    model = None if options.recorded else model_from_env(options.model, options.base_url)
    settings = Settings(
        model='recorded replies' if model is None else named(model, options.model),
        max_turn=options.max_turn,
        tokens=options.tokens,
        seconds=options.seconds,
        backend=options.backend,
    )
    results = Results.open(options.out / 'results.json', settings)
    missing = results.missing(tasks)
    data.fetch(name for task in missing for name in task.files)

    def model_for(task: Task) -> Any:
        return recorded(task) if model is None else model

    print(f'{len(missing)} of {len(tasks)} tasks to do', file=sys.stderr)
    with Interpreter(backend=options.backend, timeout=60) as interpreter:
        for result in try_all(missing, model_for, interpreter, settings, options.parallel):
            results.add(result)
            (options.out / 'results.md').write_text(markdown(results), encoding='utf-8')
            seconds = f'{result.seconds:.0f} s'
            print(f'  {result.id}: {result.outcome}, {seconds}', file=sys.stderr, flush=True)
    return results


def chosen(tasks: list[Task], names: list[str], limit: int | None) -> list[Task]:
    """Choose tasks.

    Args:
        tasks: all tasks.
        names: ids and themes; none for all.
        limit: how many, taken evenly; None for all.

    Returns:
        The chosen ones.

    Raises:
        ValueError: a name is unknown, or the limit is less than 1.
    """
    known = {task.id for task in tasks} | {task.theme for task in tasks}
    if unknown := set(names) - known:
        raise ValueError(f'there is no task or theme {", ".join(sorted(unknown))}')
    if limit is not None and limit < 1:
        raise ValueError(f'the limit must be at least 1, got {limit}')
    some = [task for task in tasks if not names or {task.id, task.theme} & set(names)]
    if limit is None or limit >= len(some):
        return some
    return [some[number * len(some) // limit] for number in range(limit)]


def named(model: Any, given: str | None) -> str:
    """The name of a model in the results: not where its weights lie.

    Args:
        model: the model.
        given: what the command line says.

    Returns:
        Its name.
    """
    if given and Path(given).is_dir():
        return Path(given).resolve().name
    return given or str(model.path)


if __name__ == '__main__':
    main()
