"""No answer of a tool fills a model's context by itself."""

import asyncio
import inspect
import logging
from typing import Any

import pytest

from lagent.actions import ActionExecutor, AsyncActionExecutor, BaseAction
from lagent.agents import ReAct
from lagent.llms import ScriptedModel
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, FunctionCall

LONG = 'begin' + 'x' * 50_000_000 + 'end'


class Says(BaseAction):
    """Gives what it was made with."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def run(self) -> Any:
        """Answer."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Opaque:
    """An object without a text."""


class Telling(Opaque):
    def __str__(self) -> str:
        return '<3 at 0x0 and more>'


def asked(answer: Any, face: type = ActionExecutor, **options: Any) -> ActionReturn:
    executor = face([Says(answer)], **options)
    message = executor(AgentMessage(sender='agent', content=FunctionCall('Says', {})))
    if inspect.isawaitable(message):
        message = asyncio.run(_await(message))
    return message.content


async def _await(awaitable: Any) -> Any:
    return await awaitable


@pytest.mark.parametrize('face', [ActionExecutor, AsyncActionExecutor])
def test_both_ends_of_a_long_answer_are_kept_and_the_rest_is_counted(face: type) -> None:
    result = asked(LONG, face)
    text = result.format_result()
    head, mark, tail = text.split('\n')
    assert (len(head), len(tail)) == (50_000, 50_000)
    assert (head[:6], tail[-4:]) == ('beginx', 'xend')
    assert mark.startswith(f'[... {len(LONG) - 100_000:,} characters left out: max_result_chars')
    assert 'is 100,000' in mark
    assert result.state == ActionStatusCode.SUCCESS
    assert result.type == 'Says'


def test_the_limit_is_the_executors() -> None:
    assert asked('x' * 100_000).format_result() == 'x' * 100_000
    assert asked('x' * 11, max_result_chars=11).format_result() == 'x' * 11
    shown = asked('123456', max_result_chars=5).format_result()
    assert shown.startswith('123\n[... 1 character left out: ')
    assert shown.endswith('\n56')
    assert asked(LONG, max_result_chars=None).format_result() == LONG
    with pytest.raises(ValueError, match='max_result_chars must be positive, got 0'):
        ActionExecutor([], max_result_chars=0)


def test_a_long_error_is_cut_as_well() -> None:
    for answer in (ValueError(LONG), ActionReturn(errmsg=LONG, state=ActionStatusCode.HTTP_ERROR)):
        result = asked(answer)
        assert result.errmsg.startswith('beginx')
        assert len(result.errmsg) < 100_300
        assert result.state != ActionStatusCode.SUCCESS


def items(*contents: Any, kind: str = 'text') -> ActionReturn:
    return ActionReturn(result=[{'type': kind, 'content': content} for content in contents])


def test_items_share_the_limit_and_those_behind_it_are_counted() -> None:
    assert (
        asked(items('12345', '6789', 10), max_result_chars=11).result
        == items('12345', '6789', 10).result
    )
    first, cut, told = asked(items('12345', '67890', '1', '23'), max_result_chars=9).result
    assert first == {'type': 'text', 'content': '12345'}
    assert cut['content'].startswith('67\n[... 1 character left out')
    assert cut['content'].endswith('\n90')
    assert told['content'].startswith('[... 2 items of 3 characters left out')


def test_what_is_no_text_is_left_out_whole() -> None:
    small, large = {'type': 'image', 'content': 'a.png'}, {'type': 'image', 'content': LONG}
    first, told = asked(ActionReturn(result=[small, large])).result
    assert first == small
    assert told['type'] == 'text'
    assert told['content'].startswith('[... 1 item of 50,000,008 characters left out')


def test_the_model_is_shown_the_bounded_answer() -> None:
    replies = ['{"thought_process": "", "action": {"name": "Says", "parameters": {}}}']
    llm = ScriptedModel([*replies, '{"thought_process": "", "conclusion": "done"}'])
    agent = ReAct(llm, [Says(LONG)])
    assert 'done' in str(agent('q').content)
    assert 100_000 < len(str(llm.calls[1].messages)) < 110_000


@pytest.mark.parametrize('answer', [Opaque(), (n for n in range(3)), lambda: 1, object()])
def test_an_object_without_a_text_is_told_as_one(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, 'lagent.actions'):
        result = asked(answer)
    kind = type(answer).__name__
    words = f'It returned a {kind}, which has no text of its own.'
    assert (result.state, result.format_result()) == (ActionStatusCode.SUCCESS, words)
    (record,) = caplog.records
    assert f'Says returned a {kind}' in record.getMessage()


@pytest.mark.parametrize(
    ('answer', 'text'),
    [
        (Telling(), '<3 at 0x0 and more>'),
        ('<Opaque object at 0x7f00>', '<Opaque object at 0x7f00>'),
        (None, 'None'),
        ([1], '[1]'),
    ],
)
def test_a_text_of_its_own_is_kept(answer: Any, text: str) -> None:
    assert asked(answer).format_result() == text
