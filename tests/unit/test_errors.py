"""One tree of errors: whoever catches `LagentError` catches all that lagent raises by itself."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import lagent
from lagent import errors
from lagent.errors import LagentError, ParseFailed

# Never leave lagent, or are raised in a sandbox.
INTERNAL = {
    'lagent.actions.snapshots.NoSnapshot',
    'lagent.flow.ConsumerLeft',
    'lagent.prompts.parsers.json_lenient._Unfinished',
    'lagent.prompts.parsers.tool_calls.CallError',
}


def exceptions() -> Iterator[type[BaseException]]:
    """Every exception class that a module of lagent defines."""
    for info in pkgutil.walk_packages(lagent.__path__, 'lagent.'):
        if 'guest' in info.name or info.name.endswith('__main__'):
            continue  # guests are sent to a sandbox as they are
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            is_own = isinstance(value, type) and value.__module__ == info.name
            if is_own and issubclass(value, BaseException):
                yield value


def full_name(kind: type) -> str:
    return f'{kind.__module__}.{kind.__qualname__}'


def test_every_error_is_in_the_tree() -> None:
    outside = {full_name(kind) for kind in exceptions() if not issubclass(kind, LagentError)}
    assert outside == INTERNAL


def test_the_tree_is_shown_whole() -> None:
    lines = [line for line in str(errors.__doc__).splitlines() if '── ' in line]
    shown = {line.split('── ')[1].split()[0] for line in lines}
    direct = {kind.__name__ for kind in exceptions() if LagentError in kind.__bases__}
    assert direct <= shown


def test_a_code_says_which_error_it_is() -> None:
    codes: dict[str, type] = {}
    for kind in sorted(exceptions(), key=lambda kind: len(kind.__mro__)):
        if issubclass(kind, LagentError):
            known = codes.setdefault(kind.code, kind)
            assert issubclass(kind, known), f'{full_name(kind)} has the code of {full_name(known)}'


@pytest.mark.parametrize(
    ('reason', 'told'),
    [
        ('incomplete', 'max_new_tokens'),
        ('unclosed_reasoning', 'max_new_tokens'),
        ('json', 'format'),
    ],
)
def test_what_to_do_about_replies_that_can_not_be_parsed(reason: str, told: str) -> None:
    error = str(ParseFailed(1, reason, 'x'))
    assert error.startswith(f'1 reply could not be parsed (last reason: {reason}). ')
    assert told in error
    assert str(ParseFailed(5, reason, 'x')).startswith('5 replies in a row could not be parsed')
