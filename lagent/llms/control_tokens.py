"""Texts that a tokenizer reads as control tokens, where somebody only wrote them.

A template makes one text of a dialog, and ``<|im_end|>`` in it ends a message whoever wrote it:
what a tool printed, or a file holds, could begin a message of the system's.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from lagent.llms.base_llm import Message

# The program writes the first two; and models ask for tools with control tokens.
_MAY_HOLD_THEM = frozenset({'system', 'developer', 'assistant'})


def broken_up(tokenizer: Any, messages: Sequence[Any]) -> list[Any]:
    """Messages of which a tokenizer reads no control tokens but those of the model and the program.

    Args:
        tokenizer: a tokenizer of transformers' kind; of another one nothing is known.
        messages: messages whose content is written as `str` writes it; texts stay as they are.

    Returns:
        The messages; in those of users and tools a space follows the first character of each such
        text.
    """
    control = _control_tokens(tokenizer)
    return [
        message
        if isinstance(message, str) or message.get('role') in _MAY_HOLD_THEM
        else _broken_up(message, control)
        for message in messages
    ]


def _broken_up(message: Message, control: re.Pattern[str]) -> Message:
    text = str(message['content'])
    if not control.search(text):
        return message
    return {**message, 'content': control.sub(lambda found: f'{found[0][0]} {found[0][1:]}', text)}


def _control_tokens(tokenizer: Any) -> re.Pattern[str]:
    added = getattr(tokenizer, 'added_tokens_decoder', None)  # Mistral's own has a method there
    tokens = added.values() if isinstance(added, Mapping) else ()
    special = {getattr(each, 'content', each) for each in tokens if getattr(each, 'special', True)}
    return _any_of(frozenset(special.union(getattr(tokenizer, 'all_special_tokens', ()))))


@lru_cache(maxsize=32)
def _any_of(tokens: frozenset[str]) -> re.Pattern[str]:
    # The longest first: one may be the beginning of another one.
    texts = sorted(
        (token for token in tokens if len(token) > 1), key=lambda text: (-len(text), text)
    )
    return re.compile('|'.join(map(re.escape, texts)) or r'(?!)')
