"""Which code a message asks to be run."""

import pytest

from lagent.actions.code import requested_code
from lagent.prompts.parsers import ToolStatusCode
from lagent.schema import AgentMessage, FunctionCall


def parsed(action, status=ToolStatusCode.VALID_TOOL, **more):
    return {'tool_type': 'interpreter', 'thought': '', 'action': action, 'status': status} | more


@pytest.mark.parametrize(
    ('formatted', 'cells'),
    [
        (parsed('x = 1'), ['x = 1']),
        (parsed('x = 1', status=1), ['x = 1']),
        (parsed('a\n\nb', cells=['a', 'b']), ['a', 'b']),
        (parsed({'name': 'run', 'parameters': {'command': 'x'}}), ['x']),
        (parsed(FunctionCall('run', {'code': 'x'})), ['x']),
        ({'action': 'x'}, ['x']),
        ({'name': 'run', 'parameters': {'command': 'x'}}, ['x']),
        ({'name': 'run', 'parameters': 'x'}, ['x']),
        (FunctionCall('run', {'code': 'x'}), ['x']),
    ],
)
def test_code_is_found(formatted, cells):
    assert requested_code(AgentMessage(content='prose', formatted=formatted)).cells == cells
    assert requested_code(AgentMessage(content=formatted)).cells == cells


@pytest.mark.parametrize(
    ('formatted', 'words'),
    [
        (parsed(None, ToolStatusCode.NO_TOOL), 'The reply has no code, so nothing was run.'),
        (
            parsed('x = (', ToolStatusCode.INCOMPLETE, hint='Be brief.'),
            'The reply ended inside the code, so nothing was run. Be brief.',
        ),
        (
            parsed('x', ToolStatusCode.PARSING_ERROR),
            'The code in the reply could not be read, so nothing was run.',
        ),
        (
            parsed({'name': 'search', 'parameters': {'query': 'x'}}),
            'The reply calls a tool and has no code, so nothing was run.',
        ),
        (parsed(''), None),
    ],
)
def test_what_is_not_run(formatted, words):
    request = requested_code(AgentMessage(content='x', formatted=formatted))
    if words is None:
        assert request == ([''], '')
    else:
        assert request == ([], words)


def test_the_hint_may_be_an_attribute():
    class Parsed(dict):
        hint = 'Close the fence.'

    message = AgentMessage(content='', formatted=Parsed(parsed('x', ToolStatusCode.PARSING_ERROR)))
    assert requested_code(message).refusal.endswith('so nothing was run. Close the fence.')


@pytest.mark.parametrize('content', ['print(1)', None, ['x'], {'parameters': 5}, {'text': 'x'}])
def test_prose_is_never_run(content):
    with pytest.raises(ValueError, match='output_format'):
        requested_code(AgentMessage(content=content))
