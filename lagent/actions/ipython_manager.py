"""InternLM's interactive shells for batches: many sessions at once, called directly."""

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any, Unpack

from lagent.actions.cell_text import code_in, failure, success
from lagent.actions.cells import SandboxOptions
from lagent.actions.code_tool import CodeTool
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.sandbox_sessions import Scoped
from lagent.context import current_context
from lagent.portal import get_portal
from lagent.schema import ActionReturn, ActionStatusCode

_MOST_SESSIONS = 1024


class IPythonInteractiveManager(CodeTool):
    """Interactive Python shells by session, for one command or a batch of them.

    Values are shown as ``repr`` gives them. It has no APIs: it is called directly, and not by an
    executor.

    Args:
        max_workers: how many commands run at once; the others wait for their turn.
        timeout: wall clock of one command, in seconds.
        ci_lock: without a meaning here; sandboxes can be started at once.
        description: replaces the tool's description.
        parser: accepted as every tool's.
        options: see `SandboxOptions`.
    """

    def __init__(
        self,
        max_workers: int = 50,
        timeout: float = 20,
        ci_lock: Any = None,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
        **options: Unpack[SandboxOptions],
    ) -> None:
        super().__init__(
            description, parser, timeout=timeout, max_sessions=_MOST_SESSIONS, **options
        )
        self.max_workers = max_workers
        self._turns = asyncio.Semaphore(max_workers)

    def __call__(  # type: ignore[override]
        self,
        commands: str | Sequence[str],
        session_ids: int | Sequence[int] | None = None,
    ) -> ActionReturn | list[ActionReturn]:
        """Run a command, or several at once.

        Args:
            commands: the code, or several pieces of code.
            session_ids: the session of each; 0, 1, ... by default.

        Returns:
            The result, or the list of results in the order of the commands.

        Raises:
            ValueError: there isn't one session a command, or two commands share one.
        """
        batch = [commands] if isinstance(commands, str) else list(commands)
        given = range(len(batch)) if session_ids is None else session_ids
        sessions = list(given) if isinstance(given, Sequence) else [given]
        if len(sessions) != len(batch) or len(set(sessions)) != len(sessions):
            raise ValueError(
                f'each of the {len(batch)} commands needs a session of its own, got {sessions}'
            )
        results = get_portal().call(self._run_all, batch, sessions)
        return results[0] if isinstance(commands, str) else results

    def reset(self) -> None:
        """Forget the variables of all sessions; files are kept."""
        get_portal().call(self._cells.restart_all)

    def clear(self) -> None:
        """Remove all sandboxes; the next commands get new ones."""
        get_portal().call(self._cells.close_all)

    async def _run_all(self, commands: list[str], sessions: list[int]) -> list[ActionReturn]:
        return await asyncio.gather(*map(self._run_one, commands, sessions))

    async def _run_one(self, command: str, session: int) -> ActionReturn:
        async with self._turns:
            result = await self._cells.execute(code_in(command), _within_run(session))
        answer = ActionReturn({'command': command}, type=self.name)
        if result.ok:
            answer.result = [{'type': 'text', 'content': success(result).strip()}]
        else:
            answer.errmsg, answer.state = failure(result), ActionStatusCode.API_ERROR
        return answer


def _within_run(session: int) -> Hashable:
    context = current_context()
    return session if context is None else Scoped(context.session_id, session)
