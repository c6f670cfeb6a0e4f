"""The agent that answers questions about the user's files with code, tables and plots."""

import re
from collections.abc import Hashable
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lagent.actions.interpreter import SandboxError
from lagent.actions.sandboxes import Sources
from lagent.agents.coder import AsyncCoder
from lagent.agents.seams import Config, Model
from lagent.agents.workspace import (
    HIDDEN,
    REVIEW,
    WorkspaceCoder,
    last_question,
    made_files,
    results_of,
)
from lagent.analysis.profiles import FileProfile, describe
from lagent.flow import Flow, arun, call, run
from lagent.prompts.prompt_files import PromptFiles
from lagent.schema import AgentMessage
from lagent.utils import create_object
from lagent.view import ModelView

_PREVIEW = 2_000  # characters of an artifact's preview
_FOLDER = re.compile(r'^(?:sandbox:)?(?:/mnt/data/|/workspace/|\./)?')
_LINK = re.compile(r'\]\(([^()\n]+)\)')  # one class of characters, so that it takes linear time
_QUOTED = re.compile(r'`([^`\n]+\.(?:png|jpe?g|svg|pdf|csv|tsv|xlsx|json|parquet|html|txt|md))`')


def instruction(prompts: PromptFiles, interpreter: Any) -> str:
    """The system instruction of an analyst: the prompt ``system``, with the libraries there are.

    Args:
        prompts: the texts. What is told of the libraries is the prompt with the name of the kernel
            image, or ``other`` where it is not known.
        interpreter: what runs the code.

    Returns:
        The text.
    """
    variant, packages = getattr(interpreter, 'image', None) or ('other', ())
    more = ''.join(f', {package}' for package in packages)
    return prompts.text('system', libraries=prompts.text(variant, packages=more).strip())


class DataAnalyst(WorkspaceCoder):
    """A `Coder` for data: knows the user's files, checks its answers, keeps what it made.

    It plans, runs code, looks at errors, corrects them, checks, and answers. A reply without code
    is the answer. One that comes right after code that failed, or that refers to files that don't
    exist, is given back once, with the reason; then it counts. The answer's `extra_info` has, under
    ``'artifacts'``, the files that were made for it: path, size, kind, and a preview in words.

    Attributes:
        prompts: the texts that the model is told; see `PromptFiles`.
        reviews: how many answers to one question may be given back.
    """

    def __init__(
        self,
        llm: Model | Config | None = None,
        interpreter: Any = None,
        template: Any = None,
        *,
        language: str = 'en',
        prompts: str | PathLike[str] | None = None,
        max_turn: int = 20,
        reviews: int = 1,
        **kwargs: Any,
    ) -> None:
        """Build the analyst.

        Args:
            llm: the model, or the configuration dict of one.
            interpreter: an `Interpreter`, or the configuration dict of one; by default one with
                the Docker back end, which counts with the model's tokenizer if there is one. More
                libraries: ``Interpreter(SandboxPolicy(variant='analysis'))``.
            template: the system instruction; by default see `instruction`.
            language: language of the prompts: ``'en'``, ``'zh'``, or one that `prompts` has.
            prompts: folder whose prompts go before lagent's own.
            max_turn: how many times code may be run before the answer.
            reviews: see the class; 0 takes every answer.
            kwargs: see `Coder`.

        Raises:
            ValueError: there are no prompts in this language, or a number is out of range.
        """
        if reviews < 0:
            raise ValueError(f'reviews must not be negative, got {reviews}')
        self.prompts = PromptFiles('analyst', language, prompts)
        self.reviews = reviews
        runs = create_object(interpreter or {'type': self._interpreter})
        system = instruction(self.prompts, runs) if template is None else template
        super().__init__(llm, runs, system, max_turn=max_turn, **kwargs)
        model = self.agent.llm
        if interpreter is None and getattr(model, 'tokenizer', None) is not None:
            self.interpreter.view = ModelView(tokenizer=model.tokenize)

    def upload(self, paths: Sources, session_id: Hashable | None = None) -> list[FileProfile]:
        """Give files to a session; the model is told what they are.

        They are looked at inside the sandbox. Of files of the same name in one call, the later ones
        are stored under another name, which the profile tells; a file of an earlier call is
        replaced.

        Args:
            paths: a file of the host, or several; or a dict of names in the sandbox and what is to
                lie there, paths or bytes.
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            What was found out about each file, in order.

        Raises:
            SandboxError: a file was refused, or there is no sandbox. Files before it are there,
                and the model knows of them.
        """
        return run(self._in_turn(session_id, self._upload, paths))

    def files(self, session_id: Hashable | None = None) -> list[Any]:
        """List the files of a session.

        Args:
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            A `FileInfo` for each.
        """
        return run(call(self.interpreter.files, session_id=session_id))

    def artifacts(self, session_id: Hashable | None = None) -> list[FileProfile]:
        """The files that code has made or changed in a session and that are still there.

        Args:
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            What is in each, in the order in which they were made. `interpreter.download` gets them.
        """
        return run(self._in_turn(session_id, self._artifacts))

    def undo(self, session_id: Hashable | None = None) -> AgentMessage | None:
        """Forget the last question of a session, and what was said and run for it.

        Only the conversation goes back: variables and files stay as the code has left them.

        Args:
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            The question; None if there was none.
        """
        return run(self._in_turn(session_id, self._undo))

    def reset(
        self,
        session_id: Hashable = 0,
        keypath: str | None = None,
        recursive: bool = False,
    ) -> None:
        """Forget a session: the conversation, the variables and the files.

        Args:
            session_id: the session.
            keypath: forget only the memory of the layer at this path, and keep the sandbox.
            recursive: taken for the sake of `Layer.reset`; without a path everything is forgotten.
        """
        run(self._in_turn(session_id, self._reset, keypath))

    def export(self, path: str | PathLike[str], session_id: Hashable | None = None) -> Path:
        """Write a session as a Jupyter notebook, with the uploaded files that it needs beside it.

        Args:
            path: the notebook's path, which ends in ``.ipynb``.
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            The path.

        Raises:
            ExtraMissing: the extra `notebook` is not installed.
            FileExistsError: a file of the host would be replaced that is neither a notebook from
                an export nor a file of this session; nothing was written.
            ValueError: the path doesn't end in ``.ipynb``.
        """
        return run(self._in_turn(session_id, self._export, path))

    def open_notebook(
        self, path: str | PathLike[str], *, run_cells: bool, session_id: Hashable | None = None
    ) -> list[Any]:
        """Go on with a notebook in a session.

        Args:
            path: the notebook.
            run_cells: whether its code is run in the sandbox, in order, up to the first cell that
                fails. Otherwise the model is only shown it.
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            The results of the cells that were run.

        Raises:
            ExtraMissing: the extra `notebook` is not installed.
            ValueError: it is no notebook; nothing was changed.
        """
        return run(self._in_turn(session_id, self._open, path, run_cells))

    # Answers

    def _solve(
        self, message: tuple[AgentMessage, ...], session_id: Hashable, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        before = len(self._history(session_id))
        answer = yield from super()._solve(message, session_id, kwargs)
        made = made_files(self._history(session_id)[before:])
        if made:
            profiles = yield from self._look_at_made(made, session_id)
            info = answer.extra_info if isinstance(answer.extra_info, dict) else {}
            answer.extra_info = {**info, 'artifacts': [_artifact(each) for each in profiles]}
        return answer

    def _objection(self, reply: AgentMessage, session_id: Hashable) -> Flow[AgentMessage | None]:
        turn = self._last_turn(session_id)
        if sum(message.type == REVIEW for message in turn) >= self.reviews:
            return None
        results = [result for message in turn for result in results_of(message)]
        if results and results[-1].outcome == 'interrupted':
            return None  # by the user, who wants no more of it
        if results and not results[-1].ok:
            return self._told('failed', REVIEW, outcome=_failure(results[-1]))
        asked = str(turn[0].content) if turn else ''
        named = [name for name in _references(str(reply.content)) if name not in asked]
        if not named:
            return None
        try:
            infos = yield from call(self.interpreter.files, session_id=session_id)
        except SandboxError:
            return None
        there = [info.path for info in infos if not HIDDEN.search(info.path)]
        missing = [name for name in named if name not in there]
        if not missing:
            return None
        return self._told(
            'missing',
            REVIEW,
            missing=', '.join(map(_shown, missing[:50])),
            files=', '.join(map(_shown, there[:50])) or '-',
        )

    def _last_turn(self, session_id: Hashable) -> list[AgentMessage]:
        """The last question of the inner memory, and what followed it."""
        history = self._history(session_id)
        return history[last_question(history, self.agent.name) or 0 :]


class AsyncDataAnalyst(AsyncCoder, DataAnalyst):
    """A `DataAnalyst` whose methods are coroutines."""

    async def upload(  # type: ignore[override]
        self, paths: Sources, session_id: Hashable | None = None
    ) -> list[FileProfile]:
        """See `DataAnalyst.upload`."""
        return await arun(self._in_turn(session_id, self._upload, paths))

    async def files(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> list[Any]:
        """See `DataAnalyst.files`."""
        return await arun(call(self.interpreter.files, session_id=session_id))

    async def artifacts(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> list[FileProfile]:
        """See `DataAnalyst.artifacts`."""
        return await arun(self._in_turn(session_id, self._artifacts))

    async def undo(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> AgentMessage | None:
        """See `DataAnalyst.undo`."""
        return await arun(self._in_turn(session_id, self._undo))

    async def reset(  # type: ignore[override]
        self, session_id: Hashable = 0, keypath: str | None = None, recursive: bool = False
    ) -> None:
        """See `DataAnalyst.reset`."""
        await arun(self._in_turn(session_id, self._reset, keypath))

    async def export(  # type: ignore[override]
        self, path: str | PathLike[str], session_id: Hashable | None = None
    ) -> Path:
        """See `DataAnalyst.export`."""
        return await arun(self._in_turn(session_id, self._export, path))

    async def open_notebook(  # type: ignore[override]
        self, path: str | PathLike[str], *, run_cells: bool, session_id: Hashable | None = None
    ) -> list[Any]:
        """See `DataAnalyst.open_notebook`."""
        return await arun(self._in_turn(session_id, self._open, path, run_cells))


def _artifact(profile: FileProfile) -> dict[str, Any]:
    about = {'path': profile.path, 'size': profile.size, 'kind': profile.kind}
    return {**about, 'preview': describe(profile)[:_PREVIEW]}


def _failure(result: Any) -> str:
    return _shown(result.error.name[:100]) if result.error else str(result.outcome)


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _references(text: str) -> list[str]:
    """The files that an answer links to or names in backticks."""
    found = [*_LINK.findall(text), *_QUOTED.findall(text)]
    names = (_FOLDER.sub('', unquote(name.strip(' \t<>'))) for name in found)
    is_file = re.compile(r'(?![\w+.-]+:)[^#]*\.\w{1,8}').fullmatch
    return list(dict.fromkeys(name for name in names if is_file(name)))
