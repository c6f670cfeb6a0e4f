"""The agent of a recorded run, made again by the function that the run names."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lagent.actions.closing import AsyncClosing
from lagent.actions.hooked import settle
from lagent.errors import JournalError
from lagent.journal.contract import Run

OWN = 'lagent.cli:remade'
"""What makes the agent of a recorded `lagent run`, with arguments as JSON behind it.

No other function is given any: a journal must not say what else is called with what.
"""


def factory_of(run: Run, given: str | None = None) -> partial[Any]:
    """What makes the agent of a run.

    Args:
        run: the run.
        given: ``module:function``, in place of what the run names.

    Returns:
        The function, with its arguments.

    Raises:
        JournalError: there is none, or it can't be imported.
    """
    name, _, arguments = (given or run.factory).partition(' ')
    module, _, attribute = name.partition(':')
    if not module or not attribute or (arguments and name != OWN):
        told = (
            'The journal does not say how the agent is made' if given is None else 'That is no name'
        )
        raise JournalError(f'{told}. Give --agent MODULE:FUNCTION, a function that returns it.')
    # As with `python -m`; a command has only the folder that it lies in on its path.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise JournalError(
            f'{module}:{attribute}, which makes the agent, could not be had: {error}. Start this '
            'where the module can be imported, or give --agent MODULE:FUNCTION.'
        ) from error
    return partial(function, **(json.loads(arguments) if arguments else {}))


@contextmanager
def made(factory: Callable[[], Any]) -> Iterator[Any]:
    """An agent that is closed behind the ``with`` block, whichever way it is closed.

    Args:
        factory: gives the agent, or a context manager that does.

    Yields:
        The agent.
    """
    with ExitStack() as stack:
        agent = factory()
        if isinstance(agent, AsyncClosing):
            stack.callback(settle, agent.close)
        elif hasattr(agent, '__enter__'):
            agent = stack.enter_context(agent)
        yield agent
