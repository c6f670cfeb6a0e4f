"""What counts as solved.

The answer is what stands behind ``ANSWER:`` in a line of its own; nothing else of a reply is looked
at, so that no number in a sentence is an answer by accident. A reply with two such lines that
differ has given no answer. Emphasis and quotes around an answer don't count.

* A number is the whole answer but for a unit that the task allows. Groups of three digits may be
  separated by commas. It is right if it differs by no more than half a unit of the last decimal
  that is asked for; where none is asked for, it must be equal.
* A text is equal to the right one but for case, spaces and a full stop at its end.
* A list is a JSON array, a Python list, or values separated by commas. It has the right length, and
  each value is right by the rules above, in order where the task says so.
* A file exists under the name that was asked for, and holds what the task says. That a picture
  shows the right plot is not checked, only that there is a picture.
"""

import ast
import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.tasks.task import Task

Verdict = Literal['solved', 'no answer', 'unreadable answer', 'wrong answer', 'wrong file']
"""How an answer was judged."""

MOST = 2_000
"""Characters that an answer may have."""

_TAIL = 200  # characters of a reply without an answer that are kept

_LINE = re.compile(r'(?:final\s+)?answer\s*[*_]*\s*:\s*[*_]*\s*(.*)', re.IGNORECASE)
_NUMBER = re.compile(
    r'([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:e[+-]?\d{1,3})?)(.*)',
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
_AROUND = ' \t*_`"\'“”‘’'


@dataclass(frozen=True, slots=True)
class Judged:
    """How an answer was judged, and why.

    Attributes:
        verdict: see `Verdict`.
        answer: the answer that was found, cut to `MOST` characters.
        reason: what is wrong, in words.
    """

    verdict: Verdict
    answer: str = ''
    reason: str = ''


def judge(task: Task, reply: str) -> Judged:
    """Judge the words of an answer; files are the business of `benchmarks.tasks.files`.

    Args:
        task: the task.
        reply: the whole reply.

    Returns:
        Whether it has the right answer.
    """
    lines = [found for line in reply.splitlines() if (found := _answer_in(line)) is not None]
    answers = list(dict.fromkeys(lines))
    if not answers or not any(answers):
        return Judged('no answer', reason=f'there is none; the reply ends {reply[-_TAIL:]!r}')
    if len(answers) > 1:
        reason = f'there are {len(answers)} different answers'
        return Judged('unreadable answer', ' | '.join(answers)[:MOST], reason)
    answer = answers[0]
    if len(answer) > MOST:
        return Judged('unreadable answer', answer[:MOST], f'it has {len(answer):,} characters')
    try:
        right = _is_right(task, answer)
    except ValueError as error:
        return Judged('unreadable answer', answer, str(error))
    return Judged('solved' if right else 'wrong answer', answer)


def _answer_in(line: str) -> str | None:
    found = _LINE.fullmatch(line.strip(' \t*_`#>'))
    return None if found is None else found[1].strip()


def _is_right(task: Task, answer: str) -> bool:
    if task.check == 'number':
        return is_close(number(answer, task.units), task.answer, task.decimals)
    if task.check == 'text':
        return plain(answer) in map(plain, (task.answer, *task.also))
    values = _values(answer)
    if len(values) != len(task.answer):
        return False
    if not task.ordered:
        return sorted(map(plain, map(str, values))) == sorted(map(plain, task.answer))
    return all(
        is_same(value, right, task.decimals, task.units)
        for value, right in zip(values, task.answer, strict=True)
    )


def is_same(value: Any, right: Any, decimals: int | None, units: tuple[str, ...] = ()) -> bool:
    """Tell whether a value is a right one, by the rules of numbers or of texts.

    Args:
        value: what was given.
        right: a number or a text.
        decimals: see `Task`.
        units: see `Task`.

    Returns:
        Whether it is; False for a text that should be a number and is none.
    """
    if isinstance(right, str):
        return isinstance(value, str) and plain(value) == plain(right)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        return is_close(number(str(value), units), right, decimals)
    except ValueError:
        return False


def is_close(value: float, right: float, decimals: int | None) -> bool:
    """Tell whether a number is a right one.

    Args:
        value: what was given.
        right: the right number, rounded.
        decimals: how many decimals count; None for all.

    Returns:
        Whether it is.
    """
    if decimals is None:
        return value == right
    # What the arithmetic of the comparison itself may lose.
    noise = 4e-16 * max(1.0, abs(right))
    return abs(value - right) <= 0.5 * 10.0**-decimals + noise


def number(text: str, units: tuple[str, ...] = ()) -> float:
    """Read a text that is a number, and nothing else but a unit.

    Args:
        text: the text.
        units: units that may stand behind it.

    Returns:
        The number.

    Raises:
        ValueError: it is no number.
    """
    bare = unicodedata.normalize('NFKC', text).strip(_AROUND).replace('\N{MINUS SIGN}', '-')
    found = _NUMBER.fullmatch(bare)
    digits, rest = (found[1], found[2]) if found else ('', bare)
    unit = rest.strip(f'{_AROUND}.').casefold()
    if not re.search(r'\d', digits) or (unit and unit not in {each.casefold() for each in units}):
        raise ValueError(f'{text[:100]!r} is no number')
    value = float(digits.replace(',', ''))
    # An integer beyond 2**53 would be rounded, and so perhaps become the right one.
    return int(digits.replace(',', '')) if re.fullmatch(r'[+-]?[\d,]+', digits) else value


def plain(text: str) -> str:
    """Bring a text into the form that is compared.

    Args:
        text: the text.

    Returns:
        It in lower case, without what stands around it, with single spaces.
    """
    words = ' '.join(unicodedata.normalize('NFKC', text).split())
    return words.strip(_AROUND).removesuffix('.').strip(_AROUND).casefold()


def _values(answer: str) -> list[Any]:
    bare = answer.strip(' \t*_`').removesuffix('.').strip(' \t*_`')
    if not bare.startswith(('[', '(')):
        return [part.strip() for part in bare.split(',')]
    for read in (json.loads, ast.literal_eval):
        try:
            values = read(bare)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            continue
        if isinstance(values, list | tuple):
            return list(values)
    raise ValueError('it is no list')
