"""What an agent that runs code does in a session besides answering: files, notebooks, going back.

The flows are here; `DataAnalyst` and its asynchronous form are their faces.
"""

import filecmp
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from lagent.actions.interpreter import SandboxError, execution_results
from lagent.actions.sandboxes import Source, Sources
from lagent.agents.coder import Coder
from lagent.agents.sessions import exclusive
from lagent.analysis.look import MOST, SECONDS, found_profiles, look_code
from lagent.analysis.notebook import is_exported, read_notebook, to_notebook, write_notebook
from lagent.analysis.profiles import FileProfile, describe
from lagent.context import run_context
from lagent.flow import Flow, blocking_call, call
from lagent.journal.errors import NotCaptured
from lagent.limits import RunLimits
from lagent.memory import MemoryManager
from lagent.prompts.parsers import ParsedCode, ToolStatusCode
from lagent.prompts.parsers.fences import fenced
from lagent.prompts.prompt_files import PromptFiles
from lagent.schema import AgentMessage
from lagent.view.tokens import fit

T = TypeVar('T')

UPLOAD, REVIEW, NOTEBOOK, NOTICE = 'upload', 'review', 'notebook', 'notice'
"""Types of the messages in the inner memory that are no question, reply or result."""

HIDDEN = re.compile(r'(?:^|/)(?:\.|__pycache__/)')
"""Paths of files that are not made for the user."""

_FILES_TOKENS = 3_000  # what a model is told at once of uploaded files
_NOTEBOOK_TOKENS = 8_000


class WorkspaceCoder(Coder):
    """A `Coder` that knows the files of its sessions, and can take back, forget and write them.

    Attributes:
        prompts: the texts that the model is told about them.
    """

    prompts: PromptFiles

    def _in_turn(
        self, session: Hashable | None, flow: Callable[..., Flow[T]], *args: Any
    ) -> Flow[T]:
        """The flow of something that must not come between a reply and its result."""
        with run_context(session, RunLimits(repeated_calls=None)) as context:
            work = flow(context.session_id, *args)
            return (yield from exclusive(self, context, work, self._wait_turn))

    def _told(self, prompt: str, type_: str, /, **fields: str) -> AgentMessage:
        content = self.prompts.text(prompt, **fields)
        # The next message is the user's as well, and joined to this one as it is.
        return AgentMessage(sender=type_, content=f'{content.rstrip()}\n\n', type=type_)

    def _history(self, session_id: Hashable) -> list[AgentMessage]:
        memory = self.agent.memory
        return [] if memory is None else memory.get_memory(session_id)

    def _upload(self, session_id: Hashable, paths: Sources) -> Flow[list[FileProfile]]:
        uploaded: list[Any] = []
        failure: Exception | None = None
        try:
            for name, source in _named(paths).items():
                uploaded += yield from call(
                    self.interpreter.upload, {name: source}, session_id=session_id
                )
        except Exception as error:  # noqa: BLE001 - raised when the model knows of the others
            failure = error
        profiles: list[FileProfile] = []
        if uploaded:
            profiles = yield from self._look(uploaded, session_id)
            words = fit('\n'.join(map(describe, profiles)), _FILES_TOKENS)
            message = self._told('files', UPLOAD, files=words)
            message.extra_info = {'pinned': True, 'files': [each.path for each in profiles]}
            self.agent.update_memory(message, session_id)
        if failure is not None:
            raise failure
        return profiles

    def _look(self, infos: Sequence[Any], session_id: Hashable) -> Flow[list[FileProfile]]:
        """Have files looked at; what can't be looked at has a profile that says so."""
        profiles: list[FileProfile] = []
        for start in range(0, len(infos), MOST):
            some = infos[start : start + MOST]
            files = [(info.path, info.size) for info in some]
            code = look_code([info.path for info in some])
            try:
                result = yield from call(
                    self.interpreter.execute,
                    code,
                    session_id=session_id,
                    timeout=3 * SECONDS,
                    idempotent=True,
                )
            except (SandboxError, NotCaptured) as error:
                profiles += [
                    FileProfile(path=path, size=size, error=f'it could not be looked at: {error}')
                    for path, size in files
                ]
                continue
            profiles += found_profiles(result, files)
            if result.notices:
                # The next result will not repeat what this one was told.
                words = '\n'.join(f'[notice] {notice}' for notice in result.notices)
                message = AgentMessage(sender=NOTICE, content=f'{words}\n\n', type=NOTICE)
                self.agent.update_memory(message, session_id)
        return profiles

    def _artifacts(self, session_id: Hashable) -> Flow[list[FileProfile]]:
        made = made_files(self._history(session_id))
        if not made:
            return []
        infos = yield from call(self.interpreter.files, session_id=session_id)
        there = {info.path: info for info in infos}
        kept = [there[info.path] for info in made if info.path in there]
        return (yield from self._look_at_made(kept, session_id))

    def _look_at_made(self, infos: Sequence[Any], session_id: Hashable) -> Flow[list[FileProfile]]:
        """Have the first files that code made looked at: how many there are is its own choice."""
        profiles = yield from self._look(infos[:MOST], session_id)
        for info in infos[MOST:]:
            reason = f'it was not looked at: only the first {MOST} of {len(infos):,} files were'
            profiles.append(FileProfile(path=info.path, size=info.size, error=reason))
        return profiles

    # Sessions

    def _undo(self, session_id: Hashable) -> Flow[AgentMessage | None]:
        yield from ()
        inner = self._history(session_id)
        start = last_question(inner, self.agent.name)
        if start is None or self.agent.memory is None:
            return None
        question = inner[start]
        kept = [message for message in inner[start:] if message.type in (UPLOAD, NOTEBOOK, NOTICE)]
        _replace(self.agent.memory, session_id, [*inner[:start], *kept])
        if self.memory is not None:
            outer = self.memory.get_memory(session_id)
            _replace(self.memory, session_id, outer[: last_question(outer, self.name)])
        return question

    def _reset(self, session_id: Hashable, keypath: str | None) -> Flow[None]:
        if keypath:
            super().reset(session_id, keypath)
            return
        super().reset(session_id, recursive=True)
        yield from call(self.interpreter.close_session, session_id=session_id)

    # Notebooks

    def _export(self, session_id: Hashable, path: str | PathLike[str]) -> Flow[Path]:
        target = Path(path)
        if target.suffix != '.ipynb':
            raise ValueError(f'a notebook is a file that ends in .ipynb, not {target}')
        history = self._history(session_id)
        notebook = yield from blocking_call(to_notebook, history, self.agent.name or '')
        names = dict.fromkeys(
            name
            for message in history
            if message.type == UPLOAD and isinstance(message.extra_info, dict)
            for name in message.extra_info.get('files', ())
        )
        if target.name in names:
            raise FileExistsError(
                f'{target.name} is also a file of the session, which belongs beside the notebook; '
                'nothing was written. Export under another name.'
            )
        if target.exists() and not (yield from blocking_call(is_exported, target)):
            raise FileExistsError(
                f'{target} is not a notebook that was exported from a session, so nothing was '
                'written. Export under another name.'
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent, prefix='.export-') as scratch:
            if names:
                infos = yield from call(self.interpreter.files, session_id=session_id)
                for info in infos:
                    if info.path in names:
                        folder = Path(scratch, info.path).parent
                        yield from call(
                            self.interpreter.download, info.path, to=folder, session_id=session_id
                        )
            yield from blocking_call(_move_all, Path(scratch), target.parent)
        written: Path = yield from blocking_call(write_notebook, notebook, target)
        return written

    def _open(
        self, session_id: Hashable, path: str | PathLike[str], run_cells: bool
    ) -> Flow[list[Any]]:
        cells = yield from blocking_call(read_notebook, path)
        name = Path(path).name
        if not run_cells:
            shown = '\n\n'.join(
                fenced(cell.source, 'python') if cell.kind == 'code' else cell.source
                for cell in cells
            )
            words = fit(shown, _NOTEBOOK_TOKENS)
            message = self._told('notebook', NOTEBOOK, name=name, cells=words)
            self.agent.update_memory(message, session_id)
            return []
        results: list[Any] = []
        self.agent.update_memory(self._told('opened', NOTEBOOK, name=name), session_id)
        for cell in cells:
            if cell.kind == 'markdown':
                note = AgentMessage(
                    sender=NOTEBOOK,
                    content=f'{cell.source}\n\n',
                    type=NOTEBOOK,
                    extra_info={'cell': 'markdown'},
                )
                self.agent.update_memory(note, session_id)
                continue
            parsed = ParsedCode('interpreter', '', ToolStatusCode.VALID_TOOL, cells=[cell.source])
            asked = AgentMessage(
                sender=self.agent.name or '',
                content=fenced(cell.source, 'python'),
                formatted=parsed,
            )
            answer = yield from call(self.interpreter, asked, session_id=session_id)
            self.agent.update_memory([asked, answer], session_id)
            results += results_of(answer)
            if results and not results[-1].ok:
                break
        return results


def results_of(message: AgentMessage) -> list[Any]:
    """The results that a message carries.

    Args:
        message: any message.

    Returns:
        The `ExecutionResult` of each cell; none for a message that is not the interpreter's.
    """
    return execution_results(message) if message.type == 'interpreter' else []


def made_files(messages: Iterable[AgentMessage]) -> list[Any]:
    """The files that code made or changed, without hidden ones.

    Args:
        messages: the messages with the results of the code.

    Returns:
        A `FileInfo` for each, as the last cell that made or changed it left it.
    """
    made = {
        info.path: info
        for message in messages
        for result in results_of(message)
        for info in result.artifacts
    }
    return [info for path, info in made.items() if not HIDDEN.search(path)]


def last_question(history: Sequence[AgentMessage], author: str | None) -> int | None:
    """Where the last question of the user is.

    Args:
        history: messages.
        author: who answers in them.

    Returns:
        Its position; None if there is none.
    """
    told = ('interpreter', UPLOAD, REVIEW, NOTEBOOK, NOTICE)
    for position in range(len(history) - 1, -1, -1):
        if history[position].sender != author and history[position].type not in told:
            return position
    return None


def _replace(manager: MemoryManager, session_id: Hashable, messages: list[AgentMessage]) -> None:
    memory = manager.get(session_id)
    if memory is not None:
        memory.load(messages)


def _named(paths: Sources) -> dict[str, Source | bytes]:
    """Names in the sandbox for files of the host; those of one call are all different."""
    if isinstance(paths, Mapping):
        return dict(paths)
    named: dict[str, Source | bytes] = {}
    for path in [paths] if isinstance(paths, str | PathLike) else paths:
        own, number = Path(path), 1
        name = own.name
        while name in named:
            number += 1
            name = f'{own.stem}-{number}{own.suffix}'
        named[name] = path
    return named


def _move_all(source: Path, target: Path) -> None:
    """Move the files below a folder, or none of them if one is in the way of another."""
    moves = [(path, target / path.relative_to(source)) for path in _files_below(source)]
    for path, place in moves:
        if place.exists() and not filecmp.cmp(path, place, shallow=False):
            raise FileExistsError(
                f'{place} is another file than the one of the session, so nothing was written. '
                'Export into a folder of its own.'
            )
    for path, place in moves:
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)
