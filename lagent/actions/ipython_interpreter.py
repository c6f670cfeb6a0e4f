"""InternLM's Jupyter interpreters: all output in order, images as files."""

import os
import tempfile
import uuid
from collections.abc import Hashable
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from lagent import flow
from lagent.actions.base_action import tool_api
from lagent.actions.cell_text import code_in, failure, success
from lagent.actions.cells import SandboxOptions, on_portal
from lagent.actions.code_tool import AsyncCodeTool, CodeTool, seconds
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.sandbox_sessions import Scoped
from lagent.context import current_context, resolve_session
from lagent.flow import Flow
from lagent.portal import get_portal
from lagent.schema import ActionReturn, ActionStatusCode

# Nobody is there to answer, and a command of the shell would not do what a model expects.
SETUP = """\
def _set_up():
    def input(prompt='', /):
        raise NotImplementedError('input() is disabled: nobody can answer')

    def system(command):
        print('Shell commands (!) are disabled')

    def getoutput(command, *args, **kwargs):
        system(command)
        return []

    shell = get_ipython()
    shell.user_ns['input'] = input
    shell.system, shell.getoutput = system, getoutput

_set_up()
del _set_up
"""

_MANY = 256
_JPEG = b'\xff\xd8'


class IPythonInterpreter(CodeTool):
    """A Jupyter kernel.

    The result has all output in order, with the value of the last expression as the kernel shows
    it, and an item for each image. Variables are kept from call to call, for each session of its
    own, until `reset`.

    Args:
        timeout: wall clock of one call, in seconds.
        user_data_dir: folder with files for the code; by default what the environment variable
            ``USER_DATA_DIR`` names. With the back end ``'local'`` the code works in this folder;
            in a container it works in a copy of its files at the same path, and what it writes
            stays there.
        work_dir: folder that images are put into; it is made at once.
        description: replaces the tool's description.
        parser: class that reads the inputs.
        max_kernels: how many sandboxes may exist at once.
        options: see `SandboxOptions`.
    """

    _whole_traceback = True

    def __init__(
        self,
        timeout: float = 20,
        user_data_dir: str | PathLike[str] = 'ENV',
        work_dir: str | PathLike[str] = './work_dir/tmp_dir',
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
        *,
        max_kernels: int | None = None,
        **options: Unpack[SandboxOptions],
    ) -> None:
        if user_data_dir == 'ENV':
            user_data_dir = os.environ.get('USER_DATA_DIR', '')
        super().__init__(
            description,
            parser,
            timeout=timeout,
            setup=SETUP,
            folder=Path(user_data_dir).resolve() if user_data_dir else None,
            max_sessions=max_kernels or _MANY,
            **options,
        )
        self.work_dir = Path(work_dir)
        self.work_dir.mkdir(parents=True, exist_ok=True)

    @tool_api
    def run(self, command: str, timeout: int | None = None) -> ActionReturn:
        """Run Python in a Jupyter kernel.

        The kernel keeps variables, imports and files from call to call, and answers with what the
        code printed, the value of its last expression, images and errors.

        Args:
            command: the code
            timeout: how many seconds it may take
        """
        return flow.run(self._run(command, timeout, resolve_session(None)))

    def reset(self, session_id: Hashable | None = None) -> None:
        """Forget the variables; files are kept.

        Args:
            session_id: whose; inside a run its session, else 0.
        """
        get_portal().call(self._cells.restart, session_id)

    def _run(self, command: str, timeout: Any, session: Hashable) -> Flow[ActionReturn]:
        answer = ActionReturn({'text': command}, type=self.name)
        code = code_in(command)
        result = yield from self._at(self._cells.execute, code, session, seconds(timeout))
        images = [{'type': 'image', 'content': self._saved(image)} for image in result.images]
        if result.ok:
            text = {'type': 'text', 'content': success(result, figures=False)}
            answer.result = [text, *images]
        else:
            answer.errmsg = failure(result, whole=self._whole_traceback)
            answer.state = ActionStatusCode.API_ERROR
            answer.result = images or None
        return answer

    def _saved(self, image: bytes) -> str:
        suffix = 'jpg' if image.startswith(_JPEG) else 'png'
        path = self.work_dir / f'{uuid.uuid4()}.{suffix}'
        with path.open('xb') as file:
            file.write(image)
        return str(path)


class AsyncIPythonInterpreter(AsyncCodeTool, IPythonInterpreter):
    """A Jupyter kernel for each session id, awaited.

    Inside a run, sessions other than the run's own belong to this run alone: a model that makes up
    an id does not get at what is somebody else's.

    Args:
        timeout: see `IPythonInterpreter`.
        user_data_dir: see `IPythonInterpreter`.
        work_dir: see `IPythonInterpreter`; in the system's folder for temporary files by default.
        max_kernels: how many sandboxes may exist at once.
        reuse_kernel: without a meaning here; a used sandbox is never given to another session.
        startup_rate: without a meaning here.
        connection_dir: without a meaning here.
        description: replaces the tool's description.
        parser: class that reads the inputs.
        options: see `SandboxOptions`.
    """

    _whole_traceback = False

    def __init__(
        self,
        timeout: float = 20,
        user_data_dir: str | PathLike[str] = 'ENV',
        work_dir: str | PathLike[str] | None = None,
        max_kernels: int | None = None,
        reuse_kernel: bool = True,
        startup_rate: float = 32,
        connection_dir: str | PathLike[str] | None = None,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
        **options: Unpack[SandboxOptions],
    ) -> None:
        if work_dir is None:
            work_dir = Path(tempfile.gettempdir()) / 'tmp_dir'
        super().__init__(
            timeout,
            user_data_dir,
            work_dir,
            description,
            parser,
            max_kernels=max_kernels,
            **options,
        )

    @tool_api
    async def run(  # type: ignore[override]
        self,
        command: str,
        timeout: int | None = None,  # noqa: ASYNC109 - the code's wall clock
        session_id: str | None = None,
    ) -> ActionReturn:
        """Run Python in a Jupyter kernel.

        The kernel keeps variables, imports and files from call to call, and answers with what the
        code printed, the value of its last expression, images and errors.

        Args:
            command: the code
            timeout: how many seconds it may take
            session_id: which kernel
        """
        return await flow.arun(self._run(command, timeout, _scoped(session_id)))

    async def initialize(self, session_id: Hashable | None = None) -> None:
        """Start the kernel of a session ahead of its first call.

        Args:
            session_id: the session; inside a run its session, else 0.

        Raises:
            SandboxError: there is no sandbox.
        """
        await on_portal(self._cells.start, _scoped(session_id))

    async def reset(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> None:
        """Forget the variables of a session; files are kept.

        Args:
            session_id: the session; inside a run its session, else 0.
        """
        await on_portal(self._cells.restart, _scoped(session_id))

    async def close_session(self, session_id: Hashable | None = None) -> None:
        """Remove the kernel of a session, with its variables and files.

        Args:
            session_id: the session; inside a run its session, else 0.
        """
        await on_portal(self._cells.close_session, _scoped(session_id))

    async def shutdown(self, session_id: Hashable | None = None) -> None:
        """Do what `close_session` does.

        Args:
            session_id: the session; inside a run its session, else 0.
        """
        await self.close_session(session_id)


def _scoped(session_id: Hashable | None) -> Hashable:
    own, asked = resolve_session(None), resolve_session(session_id)
    return asked if current_context() is None or asked == own else Scoped(own, asked)
