"""What a kernel tells of its last cell is data of an attacker; what it does not is inferred."""

from typing import Any

import pytest

from sandbox import SandboxPolicy
from sandbox.backends.detach import Cells, StartedCell
from sandbox.kernel.reattach import began, collected
from sandbox.kernel.supervisor import Exit
from sandbox.kernel.verdict import Ending

POLICY = SandboxPolicy(output_chars=1_000, max_outputs=3)
LAST = StartedCell('tag', 'm1', 5.0, 10.0)
DEAD = Exit(1, 3, None, 0, '')


@pytest.mark.parametrize(
    ('cells', 'kept', 'end', 'expected'),
    [
        (Cells(1, LAST), {'request': 'm1'}, None, True),
        (Cells(1, LAST), {'request': 'm0'}, None, False),
        (Cells(1, LAST), {}, None, False),
        (Cells(1, LAST), None, None, None),
        (Cells(1, LAST), None, DEAD, True),
        (Cells(1, LAST, is_same_kernel=False), {'request': ''}, None, None),
        (Cells(1, LAST, is_same_kernel=False), None, DEAD, None),
        (Cells(1, StartedCell(None, 'm1', 5.0, 10.0)), {'request': 'm1'}, None, None),
        (Cells(), {'request': ''}, None, None),
    ],
)
def test_what_is_known_of_the_last_cell(cells, kept, end, expected):
    assert began(cells, kept, Ending(exit=end)) is expected


def test_a_cell_is_collected_as_if_it_had_been_seen():
    kept = {
        'messages': [
            ['stream', {'name': 'stdout', 'text': 'a\n'}],
            ['execute_result', {'data': {'text/plain': '42'}, 'execution_count': 7}],
        ],
        'reply': {'status': 'ok', 'execution_count': 7},
        'left_out': 2,
        'left_out_bytes': 300,
    }
    ending = Ending()
    collector = collected(kept, POLICY, ending)
    assert [output.text for output in collector.outputs()] == ['a\n', '42']
    assert ending.reply == kept['reply']
    assert (collector.truncated().messages, collector.truncated().bytes) == (2, 300)


@pytest.mark.parametrize(
    'kept',
    [
        None,
        {},
        {'messages': 5, 'reply': 'ok', 'left_out': -1, 'left_out_bytes': 'x'},
        {'messages': [None, 1, [], ['stream'], [1, {}], ['stream', 'text'], ['stream', {}, 3]]},
        {'messages': [['stream', {'name': 'stdout', 'text': 5}], ['no_such', {'a': 1}]]},
        {'left_out': True, 'left_out_bytes': 1 << 60, 'reply': []},
    ],
)
def test_nonsense_is_ignored(kept: dict[str, Any]):
    ending = Ending()
    collector = collected(kept, POLICY, ending)
    assert collector.outputs() == ()
    assert ending.reply is None


def test_what_is_told_is_cut_like_everything():
    kept = {
        'messages': [['stream', {'name': 'stdout', 'text': 'x' * 100_000}]]
        + [['display_data', {'data': {'text/plain': str(number)}}] for number in range(10)]
    }
    collector = collected(kept, POLICY, Ending())
    assert collector.truncated().stdout_chars == 99_000
    assert len(collector.outputs()) == 3
    assert collector.truncated().outputs == 8
