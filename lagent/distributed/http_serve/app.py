"""The HTTP server of one agent: ``python -m lagent.distributed.http_serve.app --config JSON``.

It knows no users: whoever reaches the port speaks with the agent. Listen on the loopback interface,
or put a proxy with authentication before it. A browser reaches loopback as well, whatever page it
shows, so pages are turned away unless ``--allow-origin`` names them.
"""

import argparse
import asyncio
import inspect
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from lagent._extras import require
from lagent.agents.answers import alast_answer, last_answer
from lagent.distributed.config import read_config
from lagent.distributed.http_serve.client import is_loopback
from lagent.schema import AgentMessage

if TYPE_CHECKING:
    from fastapi import FastAPI

EXTRA = 'serve'
_log = logging.getLogger(__name__)


class Question(BaseModel):
    """The body of a request; its further fields are arguments of the agent's call.

    Attributes:
        message: the messages.
        session_id: the session.
    """

    model_config = ConfigDict(extra='allow')

    message: list[str | AgentMessage]
    session_id: int | str = 0


class AgentAPIServer:
    """Builds an agent and serves it, until the process is told to stop.

    ``POST /chat_completion`` takes ``{"message": [text or message, ...], "session_id": 0, ...}``,
    with the further arguments of the agent's call beside them, and gives the answer's fields.
    ``GET /memory/{session_id}`` gives what the agent remembers, ``GET /health_check`` that it is
    there. There, digits are a number and anything else is a text; one of digits is quoted:
    ``/memory/"7"``. Agents may be synchronous (each call then has a thread), asynchronous or
    streaming.

    Args:
        config: the agent's configuration; see `read_config`.
        host: address to listen at.
        port: port to listen at.
        allow_origins: see `create_app`.

    Raises:
        ExtraMissing: FastAPI or uvicorn is not installed.

    Attributes:
        agent: the agent.
        app: the FastAPI application.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        host: str = '127.0.0.1',
        port: int = 8090,
        *,
        allow_origins: Sequence[str] = (),
    ) -> None:
        uvicorn = require('uvicorn', EXTRA)
        agent_class, arguments = read_config(config)
        self.agent = agent_class(**arguments)
        if '*' in allow_origins or not is_loopback(host):
            self.app = create_app(self.agent, allow_origins)
        else:
            from fastapi.middleware.trustedhost import TrustedHostMiddleware

            names = [host, 'localhost', '127.0.0.1', '[::1]']
            own = [f'http://{name}:{port}' for name in names]  # the page of the documentation
            self.app = create_app(self.agent, [*allow_origins, *own])
            # A page may have its own name lead to this machine, and be of no other origin then.
            self.app.add_middleware(TrustedHostMiddleware, allowed_hosts=names)
        uvicorn.run(self.app, host=host, port=port)


def create_app(agent: Any, allow_origins: Sequence[str] = ()) -> 'FastAPI':
    """The web application of an agent, for any ASGI server; see `AgentAPIServer`.

    Args:
        agent: the agent.
        allow_origins: origins of the web pages that may speak with the agent, such as
            ``'https://chat.example'``; what comes from other pages is refused before the agent
            sees it. ``'*'`` allows all. Programs that are no browsers name no origin.

    Returns:
        The application.

    Raises:
        ExtraMissing: FastAPI is not installed.
    """
    require('fastapi', EXTRA)
    from fastapi import FastAPI, Request, Response
    from fastapi.encoders import jsonable_encoder
    from fastapi.middleware.cors import CORSMiddleware
    from fastapi.responses import JSONResponse

    app = FastAPI(title='lagent', docs_url='/')
    app.add_middleware(
        CORSMiddleware, allow_origins=list(allow_origins), allow_methods=['*'], allow_headers=['*']
    )
    if '*' not in allow_origins:

        @app.middleware('http')
        async def known_pages_only(
            request: Request, call_next: Callable[[Request], Awaitable[Response]]
        ) -> Response:
            # A page may send what it can't read the answer of, which would do to drive an agent.
            origin = request.headers.get('origin')
            if origin is not None and origin not in allow_origins:
                return JSONResponse({'detail': 'this page is not allowed'}, status_code=403)
            return await call_next(request)

    @app.get('/health_check')
    def health_check() -> dict[str, Any]:
        return {'status': 'success', 'timestamp': time.time()}

    @app.post('/chat_completion')
    async def chat_completion(request: Request) -> Response:
        try:
            question = Question.model_validate(json.loads(await request.body()))
        except (ValueError, RecursionError) as error:
            if not isinstance(error, ValidationError):
                return JSONResponse({'detail': 'the body is not JSON'}, status_code=422)
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            return JSONResponse({'detail': problems}, status_code=422)
        try:
            answer = await _answer(agent, question)
            return Response(answer.model_dump_json(), media_type='application/json')
        except Exception:  # noqa: BLE001 - the server outlives what an agent raises
            return failed('the agent failed')

    @app.get('/memory/{session_id:path}')
    def memory(session_id: str) -> Response:
        try:
            state = jsonable_encoder(agent.state_dict(_session(session_id)))
            return Response(json.dumps(state), media_type='application/json')
        except Exception:  # noqa: BLE001 - as above
            return failed('the memory could not be read')

    def failed(what: str) -> Response:
        # What went wrong may name files and keys: it is for the log, not for the client.
        _log.exception(what)
        return JSONResponse({'detail': 'Internal Server Error'}, status_code=500)

    return app


async def _answer(agent: Any, question: Question) -> AgentMessage:
    arguments = {**(question.model_extra or {}), 'session_id': question.session_id}
    given = await asyncio.to_thread(_call, agent, question.message, arguments)
    answer = await alast_answer(given)
    if isinstance(answer, AgentMessage):
        return answer
    return AgentMessage(sender=getattr(agent, 'name', None) or 'agent', content=answer)


def _call(agent: Any, messages: list[str | AgentMessage], arguments: dict[str, Any]) -> Any:
    given = agent(*messages, **arguments)
    return last_answer(given) if inspect.isgenerator(given) else given


def _session(written: str) -> int | str:
    """The session that a path names: a number or a quoted text, as in JSON, or a plain text."""
    try:
        session = json.loads(written)
    except (ValueError, RecursionError):
        return written
    return session if type(session) in (int, str) else written


def main() -> None:
    """Serve the agent that the command line describes."""
    parser = argparse.ArgumentParser(
        prog='python -m lagent.distributed.http_serve.app', description='Serve an agent over HTTP.'
    )
    parser.add_argument('--host', default='127.0.0.1', help='address to listen at')
    parser.add_argument('--port', type=int, default=8090, help='port to listen at')
    parser.add_argument(
        '--config',
        required=True,
        help='configuration of the agent, as JSON; "-" reads it from standard input, where other '
        'users of the machine do not see the keys in it',
    )
    parser.add_argument(
        '--allow-origin',
        action='append',
        metavar='ORIGIN',
        help='origin of web pages that may speak with the agent, such as https://chat.example, or '
        '"*" for all; may be repeated (default: none)',
    )
    given = parser.parse_args()
    config = sys.stdin.read() if given.config == '-' else given.config
    logging.basicConfig(level=logging.INFO)
    AgentAPIServer(
        json.loads(config),
        host=given.host,
        port=given.port,
        allow_origins=given.allow_origin or (),
    )


if __name__ == '__main__':
    main()
