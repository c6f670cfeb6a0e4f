"""The interpreter on real kernels: agent message in, observation out."""

import asyncio
import threading

import pytest

from lagent.actions import AsyncInterpreter, Interpreter, execution_results
from lagent.context import run_context
from lagent.effects import subscribe
from lagent.limits import RunLimits
from lagent.prompts.parsers import CodeParser, ToolStatusCode
from lagent.schema import AgentMessage
from sandbox import Outcome

BACKENDS = [
    pytest.param({'backend': 'local', 'unsafe': True}, id='local'),
    pytest.param({'backend': 'docker'}, id='docker', marks=pytest.mark.docker),
]

PLOT = """\
import base64
from IPython.display import Image, display
png = base64.b64decode(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
)
display(Image(png))
open('dot.png', 'wb').write(png)
"""


@pytest.fixture(scope='module', params=BACKENDS)
def options(request):
    return request.param


@pytest.fixture(scope='module')
def interpreter(options):
    with Interpreter(timeout=60, **options) as interpreter:
        yield interpreter


def reply(*cells: str) -> AgentMessage:
    text = '\n\n'.join(f'```python\n{cell}\n```' for cell in cells)
    return AgentMessage(sender='Agent', content=text, formatted=CodeParser().parse_response(text))


def test_state_persists_within_a_session_only(interpreter):
    assert interpreter(reply('x = 6 * 7'), session_id='a').formatted.ok
    assert interpreter(reply('x'), session_id='a').content == '42'
    answer = interpreter(reply('x'), session_id='b')
    assert 'NameError' in answer.content
    assert answer.formatted.error.name == 'NameError'


def test_cells_run_in_order_up_to_the_first_error(interpreter):
    answer = interpreter(reply('print("one")', '1 / 0', 'print("three")'), session_id='cells')
    assert '[cell 1 of 3: ok]\none\n' in answer.content
    assert 'ZeroDivisionError' in answer.content
    assert answer.content.endswith('Cell 3 was not run, because cell 2 failed.')
    assert [result.outcome for result in execution_results(answer)] == ['ok', 'error']


def test_a_cut_reply_is_not_run(interpreter):
    text = '```python\nprint("never'
    parsed = CodeParser().parse_response(text)
    parsed['status'] = ToolStatusCode.INCOMPLETE
    answer = interpreter(AgentMessage(content=text, formatted=parsed), session_id='cut')
    assert 'nothing was run' in answer.content


def test_outputs_are_told_while_they_come(interpreter):
    events = []
    with subscribe(events.append):
        answer = interpreter(reply('for i in range(3): print(i)\n"end"'), session_id='live')
    deltas = [event.data for event in events if event.type == 'delta']
    assert ''.join(output.text for output in deltas if output.kind == 'stdout') == '0\n1\n2\n'
    assert [event.type for event in events if event.type != 'delta'] == ['begin', 'end']
    assert events[-1].data.result == answer.formatted.result == "'end'"


def test_images_and_files_survive_json(interpreter, tmp_path):
    answer = interpreter(reply(PLOT), session_id='plot')
    loaded = AgentMessage.model_validate_json(answer.model_dump_json())
    (result,) = execution_results(loaded)
    assert result.to_dict() == answer.formatted.to_dict()
    assert [info.path for info in result.artifacts] == ['dot.png']
    copy = interpreter.download('dot.png', tmp_path, session_id='plot')
    assert result.images == [copy.read_bytes()]


def test_files_go_in_and_sessions_can_be_closed(options, tmp_path):
    first, second = tmp_path / 'first.txt', tmp_path / 'second.txt'
    first.write_text('1')
    second.write_text('2')
    with Interpreter(files=[first], **options) as interpreter:
        assert interpreter(reply('open("first.txt").read()')).content == "'1'"
        interpreter.upload(second)
        assert [f.path for f in interpreter.files()] == ['first.txt', 'second.txt']
        interpreter.close_session()
        listing = 'import os\nsorted(os.listdir())'
        assert interpreter(reply(listing)).content == "['first.txt']"


def test_the_deadline_of_the_run_ends_a_cell(interpreter):
    interpreter(reply('import time'), session_id='deadline')
    with run_context(session_id='deadline', limits=RunLimits(seconds=2)):
        answer = interpreter(reply('time.sleep(100)'))
    assert answer.formatted.outcome is Outcome.TIMEOUT


def test_a_cell_can_be_interrupted(interpreter):
    started = threading.Event()

    def interrupt() -> None:
        started.wait(60)
        interpreter.interrupt('slow')

    thread = threading.Thread(target=interrupt)
    thread.start()
    with subscribe(lambda event: started.set() if event.type == 'delta' else None):
        answer = interpreter(
            reply('import time\nprint("go", flush=True)\ntime.sleep(100)'), session_id='slow'
        )
    thread.join()
    assert answer.formatted.outcome is Outcome.INTERRUPTED
    assert interpreter(reply('1 + 1'), session_id='slow').content == '2'


async def test_asynchronous_sessions_run_at_once(options):
    async with AsyncInterpreter(**options) as interpreter:
        cells = [reply(f'x = {n}', 'x * 2') for n in range(3)]
        answers = await asyncio.gather(
            *(interpreter(cell, session_id=n) for n, cell in enumerate(cells))
        )
        assert [answer.formatted[-1].result for answer in answers] == ['0', '2', '4']
        (uploaded,) = await interpreter.upload(__file__, session_id=1)
        assert await interpreter.files(session_id=1) == [uploaded]
        assert await interpreter.files(session_id=2) == []
