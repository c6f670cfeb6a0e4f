"""How much of a tool's answer goes on to the model."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lagent.schema import ActionReturn
from lagent.utils.counts import many


def bounded(result: ActionReturn, longest: int) -> ActionReturn:
    """An answer of bounded length.

    Args:
        result: the answer.
        longest: how many characters its items may have together, and how many its error.

    Returns:
        The same where it is short enough. Else a copy: of a text that is too long both ends are
        kept, other items and those behind it are left out; what is missing is told in its place.
    """
    errmsg = result.errmsg
    if errmsg is not None and len(errmsg) > longest:
        errmsg = _cut(errmsg, longest, longest)
    items = result.result
    if isinstance(items, list) and sum(map(_length, items)) > longest:
        items = list(_first(items, longest))
    if errmsg is result.errmsg and items is result.result:
        return result
    return replace(result, errmsg=errmsg, result=items)


def _first(items: list[Any], longest: int) -> Iterator[Any]:
    left = longest
    for number, item in enumerate(items):
        size = _length(item)
        if size <= left:
            left -= size
            yield item
            continue
        behind = items[number + 1 :]
        if isinstance(item, dict) and item.get('type') == 'text':
            yield {**item, 'content': _cut(str(item.get('content')), left, longest)}
        else:
            behind = [item, *behind]
        if behind:
            size = sum(map(_length, behind))
            words = f'{many(len(behind), "item")} of {many(size, "character")}'
            yield {'type': 'text', 'content': _mark(words, longest)}
        return


def _length(item: Any) -> int:
    content = item.get('content') if isinstance(item, dict) else item
    return len(content if isinstance(content, str) else str(content))


def _cut(text: str, room: int, longest: int) -> str:
    head, tail = text[: room - room // 2], text[len(text) - room // 2 :]
    return f'{head}\n{_mark(many(len(text) - room, "character"), longest)}\n{tail}'


def _mark(what: str, longest: int) -> str:
    return (
        f'[... {what} left out: max_result_chars of the ActionExecutor is {longest:,}. '
        'Ask for less, or for a part ...]'
    )
