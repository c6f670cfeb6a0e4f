"""A run whose process and container are both gone goes on with the variables and files it had."""

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from sandbox import reaper

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, os, signal, sys
from lagent.actions import Interpreter
from lagent.agents import Agent
from lagent.llms import ScriptedModel
from lagent.prompts import CodeParser
from lagent.schema import AgentMessage
from sandbox import Survival

CELLS = [
    'import threading\\nclass Guest:\\n    def __init__(self, name): self.name = name\\n'
    'guests = [Guest("Ada")]\\nopen("list.txt", "w").write("Ada")',
    'guests.append(Guest("Ben"))\\nlog = open("log.txt", "w")\\nlock = threading.Lock()\\n'
    'numbers = (n for n in range(3))',
    '[guest.name for guest in guests] + [open("list.txt").read()]',
]


class Worker(Agent):
    def __init__(self, interpreter):
        super().__init__(ScriptedModel(lambda _: ''))
        self.interpreter = interpreter

    def forward(self, *message, **kwargs):
        for number, source in enumerate(CELLS):
            if number == 2 and sys.argv[3] == 'dies':
                self.tell()
                os.kill(os.getpid(), signal.SIGKILL)
            parsed = CodeParser().parse_response(f'```python\\n{source}\\n```')
            result = self.interpreter(AgentMessage(content=source, formatted=parsed)).formatted
            assert result.ok, result.text
        self.tell()
        return [result.result, *result.notices]

    def tell(self):
        box = self.interpreter._preparations.open_boxes()[0][0]
        print(box.container_id, flush=True)


with Interpreter(survival=Survival(sys.argv[2], 60), rebuild='snapshot') as interpreter:
    answer = Worker(interpreter).run('go', run_id='r', session_id=0, journal=sys.argv[1])
print(json.dumps(answer.content))
"""


def attempt(journal: Path, scope: str, how: str) -> 'subprocess.CompletedProcess[str]':
    command = [sys.executable, '-c', PROGRAM, str(journal), scope, how]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=300, check=False
    )


@pytest.mark.alone
@pytest.mark.docker
def test_process_and_container_are_gone(tmp_path):
    scope = uuid.uuid4().hex
    died = attempt(tmp_path / 'j.db', scope, 'dies')
    assert died.returncode == -signal.SIGKILL
    container = died.stdout.strip()
    assert container in alive()
    subprocess.run(['docker', 'rm', '-f', container], check=True, capture_output=True)
    lived = attempt(tmp_path / 'j.db', scope, 'lives')
    assert lived.returncode == 0
    another, said = lived.stdout.splitlines()
    assert "['Ada', 'Ben', 'Ada']" in said
    assert 'Restored: threading (module), Guest (type), guests (list).' in said
    for name in ('log (TextIOWrapper: ', 'lock (lock: ', 'numbers (generator: '):
        assert name in said
    assert 'Files restored: list.txt, log.txt.' in said
    assert len(another) == len(container)
    assert not {container, another} & alive()


def alive() -> set[str]:
    return {each.id for each in reaper.containers()}
