"""A task of five steps, done by processes that are killed again and again; executed by test_chaos.

Arguments: the folder, the port of the counter, a seed, how many kills, and how: ``random``;
``moments``, which kills the first process at its first moment, the second so many moments later as
the last argument says, and so on; ``effects``, which kills at each begin and end of a cell or a
tool, and the container as well; or ``once``, which lets one process live for that many moments of
the run that the seed names. A moment is before and after each write to the journal and each effect.

Processes are forked from this one, which has only imported what they need: that makes them quick to
begin. It prints what was done as JSON.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from pathlib import Path
from typing import Any

from lagent.actions import ActionExecutor, Interpreter, tool_api
from lagent.agents import Agent
from lagent.effects import Stage, intercept
from lagent.journal import SqliteJournal
from lagent.llms import ScriptedModel
from lagent.positions import effect_id
from lagent.prompts import CodeParser
from lagent.schema import AgentMessage, FunctionCall
from sandbox import Survival, reaper

STEPS = ['cell 1', 'count', 'cell 2', 'count once', 'cell 3']
CELLS = {
    'cell 1': "x = [1]\nprint('a', file=open('log', 'a', buffering=1))\nx",
    'cell 2': (
        "import time\nx.append(2)\nprint('b', file=open('log', 'a', buffering=1))\n"
        'for number in range(5):\n    print(number, flush=True)\n    time.sleep(0.05)\nx'
    ),
    'cell 3': "x.append(3)\nprint('c', file=open('log', 'a', buffering=1))\nx, open('log').read()",
}
MOST_KILLS = 5  # of one run
GRACE = 15.0
moments_left = sys.maxsize
with_container = False  # whether all of the run's own containers die as well


def moment() -> None:
    global moments_left
    moments_left -= 1
    if moments_left < 0:
        if with_container:
            remove_containers(Path(sys.argv[1]))
        os.kill(os.getpid(), signal.SIGKILL)


def remove_containers(folder: Path) -> None:
    mine = [each.id for each in reaper.containers() if str(folder) in str(each.labels)]
    if mine:
        subprocess.run(['docker', 'rm', '-f', *mine], check=True, capture_output=True)


class Journal(SqliteJournal):
    """A journal whose writes are moments."""

    def append(self, *args: Any, **kwargs: Any) -> None:
        self.moment()
        super().append(*args, **kwargs)
        self.moment()

    def release(self, *args: Any) -> None:
        self.moment()
        super().release(*args)
        self.moment()

    def moment(self) -> None:
        if not with_container:
            moment()


def observed(effect: Any, context: Any, flow: Any) -> Any:
    if with_container and effect.kind == 'model':
        return (yield from flow)  # where it ends, the next one begins
    moment()
    result = yield from flow
    moment()
    return result


def post(path: str) -> str:
    url = f'http://127.0.0.1:{sys.argv[2]}/{path}'
    with urllib.request.urlopen(urllib.request.Request(url, method='POST'), timeout=30) as answer:
        return answer.read().decode()


@tool_api
def count() -> str:
    """Count on."""
    return post('count')


@tool_api(idempotent=True)
def count_once() -> str:
    """Count on, once for each call however often it is repeated."""
    return post(f'once/{effect_id()}')


class Worker(Agent):
    """Asks the model before each step, and keeps what each gave."""

    def __init__(self) -> None:
        super().__init__(ScriptedModel(lambda messages: f'go: {messages[-1]["content"]}'))

    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        seen: list[Any] = []
        for step in STEPS:
            seen.append(str(self.llm.chat([{'role': 'user', 'content': step}])))
            seen.append(self.cell(CELLS[step]) if step in CELLS else self.call(step))
        return json.dumps(seen)

    def cell(self, source: str) -> dict[str, Any]:
        parsed = CodeParser().parse_response(f'```python\n{source}\n```')
        result = self.interpreter(AgentMessage(content=source, formatted=parsed)).formatted
        return {
            'outcome': result.outcome,
            'stdout': result.stdout,
            'result': result.result,
            'notices': result.notices,
        }

    def call(self, step: str) -> str:
        call = FunctionCall(step.replace(' ', '_'), {})
        (result,) = self.tools(AgentMessage(content=[call])).content
        return str(result.errmsg or result.format_result())


def attempt(folder: Path, run_id: str) -> None:
    """Go on with a run to its end, and write down its answer."""
    worker = Worker()
    worker.tools = ActionExecutor([count, count_once])
    options: dict[str, Any] = {'survival': Survival(run_id, GRACE), 'rebuild': 'rerun'}
    if with_container:
        options = {'rebuild': 'snapshot'}
    with (
        Journal(folder / 'runs.db') as journal,
        Interpreter(**options) as worker.interpreter,
        intercept(observed, Stage.LIVE),
    ):
        answer = worker.run('go', run_id=run_id, session_id=0, journal=journal).content
        (folder / f'{run_id}.part').write_text(answer)
        (folder / f'{run_id}.part').replace(folder / f'{run_id}.answer')


def lived(folder: Path, run_id: str, moments: int, seconds: float) -> bool:
    """Let a process go on with a run; return whether it came to its end before it was killed."""
    global moments_left
    pid = os.fork()
    if pid == 0:
        try:
            moments_left = moments
            attempt(folder, run_id)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child of a fork must not go on with the parent
            traceback.print_exc()
            os._exit(1)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.002)
    else:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f'{run_id} ended with {code}'
    return code == 0


def main() -> None:
    """Do runs until there were as many kills as wanted."""
    global with_container
    folder, how = Path(sys.argv[1]), sys.argv[5]
    with_container = how == 'effects'
    dice, wanted = random.Random(int(sys.argv[3])), int(sys.argv[4])
    if how == 'once':
        run_id = f'once-{sys.argv[3]}'
        print(json.dumps({'runs': [run_id], 'ended': lived(folder, run_id, wanted, 120.0)}))
        return
    began = time.monotonic()
    kills, runs = 0, [f'{how}-{sys.argv[3]}-whole']
    assert lived(folder, runs[0], sys.maxsize, 120.0)
    whole = time.monotonic() - began  # seconds that a run takes which nobody kills
    while kills < wanted:
        run_id = f'{how}-{sys.argv[3]}-{len(runs)}'
        runs.append(run_id)
        of_run = 0
        while True:
            moments, seconds = sys.maxsize, 120.0
            if how in ('moments', 'effects') and not of_run:
                moments = kills * (int(sys.argv[6]) if how == 'moments' else 1)
            elif how == 'random' and kills < wanted and of_run < MOST_KILLS:
                seconds = dice.uniform(0.0, whole)
            if lived(folder, run_id, moments, seconds):
                break
            kills, of_run = kills + 1, of_run + 1
        if how in ('moments', 'effects') and not of_run:
            break  # it has no more moments
    elapsed = time.monotonic() - began
    figures = {'kills': kills, 'seconds': round(elapsed, 1), 'whole': round(whole, 2)}
    print(json.dumps({**figures, 'runs': runs}))


if __name__ == '__main__':
    main()
