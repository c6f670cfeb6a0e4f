"""Dialogs for tokenizers with a chat template, with a template that only knows strings."""

from typing import Any

import jinja2
import pytest

from lagent.errors import ConfigError
from lagent.llms import BadRequest, Completion, chat_template
from lagent.llms.chat_template import (
    Prompt,
    TokenDialogs,
    as_prompt,
    chat_prompt,
    has_chat_template,
)

TEMPLATE = '{% for m in messages %}{{ m.role + ":" + m.content + ";" }}{% endfor %}'


class Tokenizer:
    """Ids are code points."""

    chat_template: str | None = TEMPLATE

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        *,
        tokenize: bool,
        return_dict: bool = False,
        add_generation_prompt: bool,
        continue_final_message: bool,
    ) -> list[int] | str:
        assert not return_dict
        assert messages, 'transformers writes no empty dialog'
        self.messages = messages
        source = str(self.chat_template)
        text = jinja2.Template(source, undefined=jinja2.StrictUndefined).render(messages=messages)
        text = text.removesuffix(';') if continue_final_message else text
        text += 'assistant:' * add_generation_prompt
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(c) for c in text]


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


def test_what_utf_8_cannot_hold_is_replaced_as_tokenizers_refuse_it() -> None:
    assert text_of([{'role': 'user', 'content': 'a\ud800'}])[0].startswith('user:a\ufffd;')


def test_arguments_are_decoded_for_the_template() -> None:
    tokenizer = Tokenizer()
    calls = [
        {'id': 'c1', 'function': {'name': 'f', 'arguments': '{"a": 1}'}},
        {'id': 'c2', 'function': {'name': 'f', 'arguments': '{"a": '}},
        {'id': 'c3', 'function': {'name': 'f', 'arguments': '[' * 100_000}},
    ]
    chat_prompt(tokenizer, [{'role': 'assistant', 'content': '', 'tool_calls': calls}])
    arguments = [c['function']['arguments'] for c in tokenizer.messages[0]['tool_calls']]
    assert arguments == [{'a': 1}, '{"a": ', '[' * 100_000]


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


class Model(TokenDialogs):
    """Its replies have ids that no tokenizer gives: whatever has them was not tokenized again."""

    def __init__(self, prefill: str = '', template: str = TEMPLATE) -> None:
        self.tokenizer, self.prefill = Tokenizer(), prefill
        self.tokenizer.chat_template = template

    def reply(self, asked: Prompt, text: str, *more: int) -> Completion:
        ids = [-ord(c) for c in text]
        return Completion(text, token_ids=[*ids, *more], prompt_token_ids=asked.token_ids)


ASK = {'role': 'user', 'content': 'q'}
AGAIN = {'role': 'user', 'content': 'more'}


def said(text: str) -> dict[str, Any]:
    return {'role': 'assistant', 'content': text}


@pytest.mark.parametrize('ends', [(), (ord(';'),)])
def test_what_follows_a_reply_leaves_its_tokens_alone(ends: tuple[int, ...]) -> None:
    model = Model()
    reply = model.reply(model.prompt_of([ASK]), 'yes', *ends)
    # What is said may be anything, the words that stand for the reply too.
    again = {'role': 'user', 'content': 'more' + chat_template._SAID}
    following = model.next_prompt(reply, [again])
    head = [*reply.prompt_token_ids, *(-ord(c) for c in 'yes')]
    assert following.token_ids[: len(head)] == head
    assert ''.join(map(chr, following.token_ids[len(head) :])) == (
        f';user:more{chat_template._SAID};assistant:'
    )


def test_a_dialog_continues_replies_as_they_were_written() -> None:
    model = Model(prefill='So')
    dialog = [ASK]
    for text in ('yes', 'no', 'well'):
        asked = model.prompt_of(dialog)
        assert asked.opening == 'So'
        reply = model.reply(asked, text)
        dialog += [said(reply), AGAIN]
        following = model.prompt_of(dialog).token_ids
        begun = [*asked.token_ids, *reply.token_ids]
        assert following[: len(begun)] == begun
    text = ''.join(chr(abs(id_)) for id_ in following)
    turns = [f'assistant:So{reply};user:more;' for reply in ('yes', 'no', 'well')]
    assert text == f'user:q;{"".join(turns)}assistant:So'


def test_a_reply_to_something_else_is_a_text() -> None:
    model = Model()
    reply = model.reply(model.prompt_of([ASK]), 'yes')
    plain = model.prompt_of([AGAIN, said('yes'), AGAIN])
    assert model.prompt_of([AGAIN, said(reply), AGAIN]) == plain
    later = model.reply(plain, 'no')
    following = model.prompt_of([AGAIN, said(reply), AGAIN, said(later), AGAIN]).token_ids
    assert following[: len(plain.token_ids)] == plain.token_ids
    assert following[len(plain.token_ids)] == -ord('n')


def test_what_another_model_wrote_is_told_as_text_and_ends_no_conversation() -> None:
    model, other = Model(), Model()
    dialog: list[dict[str, Any]] = []
    for text in ('yes', 'no', 'well'):
        told = other.reply(Prompt([1, 2]), 'and?')
        dialog.append({'role': 'user', 'content': told})
        reply = model.reply(model.prompt_of(dialog), text)
        dialog.append(said(reply))
    following = model.prompt_of([*dialog, AGAIN]).token_ids
    assert following[: len(reply.prompt_token_ids)] == [*reply.prompt_token_ids]
    turns = [f'user:and?;assistant:{reply};' for reply in ('yes', 'no', 'well')]
    assert ''.join(chr(abs(id_)) for id_ in following) == f'{"".join(turns)}user:more;assistant:'
    written = ''.join(chr(-id_) for id_ in following if id_ < 0)
    assert written == 'yesnowell', 'each reply as it was written'


def test_a_dialog_may_begin_with_a_reply() -> None:
    model = Model()
    reply = model.reply(model.prompt_of([ASK]), 'yes')
    plain = model.prompt_of([said('yes'), AGAIN])
    assert model.prompt_of([said(reply), AGAIN]) == plain
    later = model.reply(plain, 'no')
    following = model.prompt_of([said(reply), AGAIN, said(later), AGAIN]).token_ids
    assert following[: len(plain.token_ids) + 2] == [*plain.token_ids, -ord('n'), -ord('o')]


def test_replies_without_ids_are_texts() -> None:
    model = Model()
    plain = Completion('yes', token_ids=[1])
    assert model.prompt_of([ASK, said(plain), AGAIN]) == model.prompt_of([ASK, said('yes'), AGAIN])
    assert model.prompt_of('q') == model.prompt_of([ASK])
    with pytest.raises(ConfigError, match='return_token_ids'):
        model.next_prompt(plain, [AGAIN])


def test_a_template_that_rewrites_replies_is_refused() -> None:
    model = Model(template='{% for m in messages %}{{ m.content | upper }}{% endfor %}')
    with pytest.raises(ConfigError, match='changes replies'):
        model.next_prompt(model.reply(Prompt([1]), 'yes'), [AGAIN])


@pytest.mark.parametrize('given', [[1, 2], (1, 2), {'prompt_token_ids': (1, 2)}, Prompt([1, 2])])
def test_token_ids_may_stand_for_a_dialog(given: Any) -> None:
    assert as_prompt(given) == Prompt([1, 2])


@pytest.mark.parametrize('given', ['q', [ASK], [], {'prompt': 'q'}, None])
def test_what_is_no_token_ids(given: Any) -> None:
    assert as_prompt(given) is None
