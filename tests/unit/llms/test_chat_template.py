"""Dialogs for tokenizers with a chat template, with a template that only knows strings."""

from typing import Any

import jinja2
import pytest

from lagent.llms import BadRequest
from lagent.llms.chat_template import chat_prompt, has_chat_template

TEMPLATE = '{% for m in messages %}{{ m.role + ":" + m.content + ";" }}{% endfor %}'


class Tokenizer:
    """Ids are code points."""

    chat_template: str | None = TEMPLATE

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        *,
        tokenize: bool,
        return_dict: bool,
        add_generation_prompt: bool,
        continue_final_message: bool,
    ) -> list[int]:
        assert tokenize
        assert not return_dict
        self.messages = messages
        text = jinja2.Template(TEMPLATE, undefined=jinja2.StrictUndefined).render(messages=messages)
        text = text.removesuffix(';') if continue_final_message else text
        return [ord(c) for c in text + 'assistant:' * add_generation_prompt]


def text_of(dialog: Any, prefill: str = '') -> tuple[str, str]:
    prompt = chat_prompt(Tokenizer(), dialog, prefill)
    return ''.join(map(chr, prompt.token_ids)), prompt.opening


def test_content_is_always_a_string() -> None:
    dialog = [
        {'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}]},
        {'role': 'assistant', 'tool_calls': [{'id': 'c1', 'function': {'name': 'python'}}]},
        {'role': 'tool', 'tool_call_id': 'c1', 'content': None},
    ]
    assert text_of(dialog) == ('user:hi;assistant:;tool:;assistant:', '')


def test_arguments_are_decoded_for_the_template() -> None:
    tokenizer = Tokenizer()
    calls = [
        {'id': 'c1', 'function': {'name': 'f', 'arguments': '{"a": 1}'}},
        {'id': 'c2', 'function': {'name': 'f', 'arguments': '{"a": '}},
    ]
    chat_prompt(tokenizer, [{'role': 'assistant', 'content': '', 'tool_calls': calls}])
    arguments = [c['function']['arguments'] for c in tokenizer.messages[0]['tool_calls']]
    assert arguments == [{'a': 1}, '{"a": ']


def test_a_reply_can_be_begun_for_the_model() -> None:
    ask = {'role': 'user', 'content': 'q'}
    assert text_of([ask], '```python\n') == ('user:q;assistant:```python\n', '```python\n')
    begun = [ask, {'role': 'assistant', 'content': 'So'}]
    assert text_of(begun) == ('user:q;assistant:So', '')
    assert text_of(begun, 'ignored') == ('user:q;assistant:So', '')


def test_what_the_model_cannot_read_is_refused() -> None:
    with pytest.raises(BadRequest, match='image_url'):
        text_of([{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {}}]}])


def test_other_content_is_written_as_json() -> None:
    assert text_of([{'role': 'user', 'content': {'a': 'é'}}])[0] == 'user:{"a": "é"};assistant:'
    assert text_of('a text')[0] == 'user:a text;assistant:'


def test_base_models_have_no_chat_template() -> None:
    base = Tokenizer()
    base.chat_template = None
    assert has_chat_template(Tokenizer())
    assert not has_chat_template(base)
    assert not has_chat_template(None)
