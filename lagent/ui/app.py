"""The web application: its addresses, and what each gives."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from lagent.actions.interpreter import SandboxError
from lagent.console import printable
from lagent.errors import LagentError
from lagent.ui.live import Live
from lagent.ui.markdown import code_css
from lagent.ui.render import Page
from lagent.ui.security import COOKIE, FRAMED, Guard, Keys
from lagent.ui.session import Refused, Session, scratch_file
from lagent.ui.sessions import Sessions

MOST_SHOWN = 2
MAX_UPLOAD = 1 << 30
MAX_QUESTION = 400_000  # bytes of the body
_MAX_NAME = 255
_MAX_PICTURE = 32 << 20
_PICTURES = {
    b'\x89PNG\r\n\x1a\n': 'image/png',
    b'\xff\xd8\xff': 'image/jpeg',
    b'GIF8': 'image/gif',
    b'RIFF': 'image/webp',
}
_FOREVER = {'cache-control': 'private, max-age=31536000, immutable'}

Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """Answers requests.

    Args:
        sessions: what is served.
        keys: the secrets of the server.
        model: name of the model.
    """

    def __init__(self, sessions: Sessions, keys: Keys, model: str) -> None:
        self._sessions, self._keys = sessions, keys
        self._page = Page(sessions, keys.base, model)
        self.live = Live(sessions, self._page)
        self._transfers = asyncio.Semaphore(8)

    def app(self, host: str) -> Starlette:
        """The application.

        Args:
            host: the address that the server listens at.

        Returns:
            It, for any ASGI server.
        """
        static = StaticFiles(packages=[('lagent.ui', 'static')])
        one = '/s/{number}'
        routes: list[Any] = [
            Route('/', self.whole),
            Route('/enter', self.enter),
            Route('/live', self.stream),
            Route('/sessions', self.open, methods=['POST']),
            Route('/static/code.css', self.code_css),
            Mount('/static', static),
            Route(f'{one}/files', self.upload, methods=['POST']),
            Route(f'{one}/files', self.download),
            Route(f'{one}/notebook', self.notebook),
            Route(f'{one}/media/{{name}}', self.media),
            Route(f'{one}/ask', self.ask, methods=['POST']),
            *(
                Route(f'{one}/{what}', self._doing(what), methods=['POST'])
                for what in ('stop', 'undo', 'reset', 'close')
            ),
        ]
        return Starlette(
            routes=[Mount(self._keys.base, routes=routes)],
            middleware=[Middleware(Guard, keys=self._keys, host=host)],
            exception_handlers={
                Refused: _refused,
                SandboxError: _failed,
                LagentError: _failed,
                HTTPException: _http,
            },
        )

    # Pages

    async def enter(self, request: Request) -> Response:
        """Take the token of a link for a cookie."""
        # What looks ahead must not use it up.
        if request.method == 'HEAD' or 'sec-purpose' in request.headers:
            return Response(status_code=503)
        is_good = self._keys.use(request.query_params.get('token', ''))
        if not is_good and not self._keys.knows(request.cookies.get(COOKIE)):
            text = 'It can be used once. `lagent ui` has printed another one in its terminal.'
            return self._message('This link was used already', text, 403)
        # Not a redirect: a browser that came from elsewhere would not send the cookie after one.
        answer = self._message('Opening', 'The page opens.', 200, f'{self._keys.base}/')
        if is_good:
            answer.set_cookie(
                COOKIE, self._keys.cookie, path=self._keys.base, httponly=True, samesite='strict'
            )
        return answer

    async def whole(self, request: Request) -> Response:
        """The page, with one session or two beside one another."""
        shown = self._shown(request) or self._sessions.all()[-1:]
        return HTMLResponse(await asyncio.to_thread(self._page.whole, shown))

    async def stream(self, request: Request) -> Response:
        """What changes in the page from now on."""
        if self.live.is_full:
            raise HTTPException(503, 'Too many pages are open.')
        last = request.headers.get('last-event-id', request.query_params.get('seen', ''))
        return StreamingResponse(
            self.live.events(_number(last), self._shown(request)), media_type='text/event-stream'
        )

    async def code_css(self, request: Request) -> Response:
        """The style sheet of code."""
        return Response(code_css(), media_type='text/css')

    # What a user does

    async def open(self, request: Request) -> Response:
        """Begin a session."""
        session = await asyncio.to_thread(self._sessions.open)
        return JSONResponse({'session': session.number}, 201)

    async def ask(self, request: Request) -> Response:
        """Have a question answered."""
        session = self._session(request)
        try:
            question = json.loads(await _body(request, MAX_QUESTION))['question']
        except (ValueError, LookupError, TypeError, RecursionError):
            raise HTTPException(422, 'The body is {"question": "..."}.') from None
        if not isinstance(question, str) or not question.strip():
            raise HTTPException(422, 'There is no question.')
        session.ask(question.encode('utf-8', 'replace').decode('utf-8').strip())
        return Response(status_code=202)

    def _doing(self, what: str) -> Handler:
        async def do(request: Request) -> Response:
            session = self._session(request)
            if what == 'close':
                await asyncio.to_thread(self._sessions.close, session)
            else:
                await asyncio.to_thread(getattr(session, what))
            return Response(status_code=202)

        return do

    async def upload(self, request: Request) -> Response:
        """Take a file: its name is in the query, and the body is its bytes."""
        session = self._session(request)
        name = request.query_params.get('name', '')
        if not name or len(name.encode('utf-8', 'replace')) > _MAX_NAME:
            raise HTTPException(422, 'A file needs a name of at most 255 bytes.')
        path = scratch_file()
        try:
            async with self._transfers:
                await _receive(request, path)
            session.upload(name, path)
        except BaseException:
            shutil.rmtree(path.parent, ignore_errors=True)
            raise
        return Response(status_code=202)

    # What a user takes away

    async def download(self, request: Request) -> Response:
        """A file of the session: always as a download, but for a picture that the page shows."""
        session, name = self._session(request), request.query_params.get('name', '')
        is_shown = request.query_params.get('show') == '1'
        return await self._file(lambda folder: session.download(name, folder), is_shown=is_shown)

    async def notebook(self, request: Request) -> Response:
        """The session as a notebook."""
        session = self._session(request)
        return await self._file(
            lambda folder: session.export(folder / f'session-{session.number}.ipynb')
        )

    async def media(self, request: Request) -> Response:
        """An image of an output, or its HTML, which may do nothing."""
        found = self._session(request).media.get(request.path_params['name'])
        if found is None:
            raise HTTPException(404, 'This is not kept any more.')
        mime, data = found
        kind = f'{mime}; charset=utf-8' if mime == 'text/html' else mime
        headers = {'content-security-policy': FRAMED, 'x-frame-options': 'SAMEORIGIN', **_FOREVER}
        return Response(data, headers=headers, media_type=kind)

    async def _file(self, fetch: Callable[[Path], Path], *, is_shown: bool = False) -> Response:
        folder = Path(tempfile.mkdtemp(prefix='lagent-ui-'))
        try:
            async with self._transfers:
                path = await asyncio.to_thread(fetch, folder)
            if is_shown:
                return _Copy(
                    path,
                    headers={'content-security-policy': FRAMED},
                    media_type=await asyncio.to_thread(_picture_type, path),
                    folder=folder,
                )
            return _Copy(
                path,
                headers={'content-security-policy': FRAMED},
                media_type='application/octet-stream',
                filename=safe_name(path.name),
                folder=folder,
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _session(self, request: Request) -> Session:
        session = self._sessions.get(_number(request.path_params['number']))
        if session is None:
            raise HTTPException(404, 'There is no such session.')
        return session

    def _shown(self, request: Request) -> list[Session]:
        numbers = dict.fromkeys(filter(None, map(_number, request.query_params.getlist('s'))))
        found = [self._sessions.get(number) for number in list(numbers)[:MOST_SHOWN]]
        return [session for session in found if session is not None]

    def _message(self, title: str, text: str, status: int, target: str = '') -> Response:
        html = self._page.template('message', title=title, text=text, target=target)
        return HTMLResponse(html, status)


class _Copy(FileResponse):
    """A file in a folder of its own that is removed in the end, also when nothing was sent.

    A background task would not do: a bad ``Range`` is answered without it.
    """

    def __init__(self, path: Path, *, folder: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def safe_name(name: str) -> str:
    """A name that a browser may save a file under.

    Args:
        name: any name, or path.

    Returns:
        Its last part, without control characters and what turns the direction of writing.
    """
    last = PurePosixPath(printable(name)).name.replace('\\', '_')
    return ''.join(each for each in last if each.isprintable())[:200] or 'file'


def _number(text: str) -> int:
    """A number of an address; 0, which is no session's and before all changes, for what is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _picture_type(path: Path) -> str:
    if path.stat().st_size <= _MAX_PICTURE:
        with path.open('rb') as file:
            head = file.read(12)
        for magic, mime in _PICTURES.items():
            if head.startswith(magic) and (mime != 'image/webp' or head[8:] == b'WEBP'):
                return mime
    raise HTTPException(415, 'This is no picture that can be shown.')


async def _body(request: Request, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise HTTPException(413, f'That is too long: at most {limit:,} bytes.')
        parts.append(part)
    return b''.join(parts)


async def _receive(request: Request, path: Path) -> None:
    size = 0
    with path.open('xb') as file:
        async for part in request.stream():
            size += len(part)
            if size > MAX_UPLOAD:
                raise HTTPException(413, f'A file may have at most {MAX_UPLOAD >> 20:,} MiB.')
            file.write(part)


async def _refused(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 409)


async def _failed(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(f'{type(error).__name__}: {printable(str(error))}', 422)


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(str(error.detail), error.status_code, headers=error.headers)
