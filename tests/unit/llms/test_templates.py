"""How dialogs are written, beyond what InternLM's users rely on (which the shared suite checks)."""

from typing import Any

import pytest

from lagent.llms import CHAT_META, INTERNLM2_META, BaseAPILLM, BaseLLM
from lagent.llms.base_api import APITemplateParser
from lagent.llms.base_llm import LMTemplateParser


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {'role': role, 'content': content, **more}


def test_internlm2() -> None:
    write = LMTemplateParser(INTERNLM2_META)
    dialog = [says('system', 'S', name='plugin'), says('user', 'U'), says('assistant', 'A')]
    assert write([*dialog, says('environment', 'E', name='interpreter')]) == (
        '<|im_start|>system name=<|plugin|>\nS<|im_end|>\n'
        '<|im_start|>user\nU<|im_end|>\n'
        '<|im_start|>assistant\nA<|im_end|>\n'
        '<|im_start|>environment name=<|interpreter|>\nE<|im_end|>\n'
        '<|im_start|>assistant\n'
    )


def test_a_name_does_not_trouble_a_plain_begin() -> None:
    meta = [{'role': 'user', 'begin': '<u>', 'end': '</u>'}, {'role': 'assistant', 'begin': '<a>'}]
    assert LMTemplateParser(meta)([says('user', 'x', name='bob')]) == '<u>x</u><a>'


@pytest.mark.parametrize('parser', [LMTemplateParser, APITemplateParser])
def test_an_unknown_role_is_named(parser: Any) -> None:
    with pytest.raises(KeyError, match=r"'narrator'.*'user'"):
        parser([{'role': 'user', 'api_role': 'user'}])([says('narrator', 'x')])


def test_what_a_tool_said_is_never_the_systems_word() -> None:
    write = APITemplateParser(CHAT_META)
    assert write([says('user', 'q'), says('environment', 'out')]) == [says('user', 'q\nout')]


def test_answers_to_tool_calls_stay_apart() -> None:
    calls = [{'id': 'c1', 'function': {'name': 'python', 'arguments': '{}'}}]
    dialog = [
        says('user', 'q'),
        says('assistant', None, tool_calls=calls),
        says('tool', '1', tool_call_id='c1'),
        says('tool', 'ZeroDivisionError', tool_call_id='c2'),
        says('tool', 'unknown tool', tool_call_id='c3'),
    ]
    assert APITemplateParser(CHAT_META)(dialog) == dialog


def test_content_in_parts_is_not_joined() -> None:
    image = [{'type': 'image_url', 'image_url': {'url': 'data:,x'}}]
    dialog = [says('user', 'look'), says('user', image)]
    assert APITemplateParser(CHAT_META)(dialog) == dialog


def test_fallback_role_and_empty_dialog() -> None:
    meta = [{'role': 'user', 'api_role': 'u'}, {'role': 'tool', 'fallback_role': 'user'}]
    assert APITemplateParser(meta)([says('tool', 'x')]) == [says('u', 'x')]
    assert APITemplateParser(meta)([]) == []


def test_joining_changes_nobodys_messages() -> None:
    dialog = [says('user', 'a'), says('user', 'b')]
    assert BaseAPILLM('m', meta_template=CHAT_META).template_parser(dialog) == [
        says('user', 'a\nb')
    ]
    assert dialog == [says('user', 'a'), says('user', 'b')]


def test_an_empty_dialog_is_an_empty_prompt() -> None:
    assert BaseLLM('p', meta_template=INTERNLM2_META).render([]) == ''
