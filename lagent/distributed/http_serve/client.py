"""Clients of an agent that is served over HTTP: call them like the agent."""

import ipaddress
import json
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lagent.errors import ServerFailed
from lagent.portal import get_portal
from lagent.schema import AgentMessage

if TYPE_CHECKING:
    import httpx

_HEALTH_TIMEOUT = 5.0  # seconds
_SHOWN = 200  # characters of what is no answer


class HTTPAgentClient:
    """An agent that is served by an `AgentAPIServer`.

    Attributes:
        host: the server's address.
        port: its port.
        timeout: how long to wait for an answer, in seconds; None for as long as it takes.
    """

    def __init__(
        self, host: str = '127.0.0.1', port: int = 8090, timeout: float | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.timeout = timeout

    def __call__(
        self, *message: str | AgentMessage, session_id: Hashable = 0, **kwargs: Any
    ) -> AgentMessage | Any:
        """Ask the agent.

        Args:
            message: messages, or texts from the user.
            session_id: the session: a number or a text.
            kwargs: further arguments of the agent's call; they travel as JSON.

        Returns:
            The answer. Where the server refuses or fails, the JSON that it says so with.

        Raises:
            httpx.HTTPError: the server cannot be reached, or does not answer in time.
            ServerFailed: what answers there is no server of an agent.
        """
        return get_portal().call(self._ask, message, session_id, kwargs)

    @property
    def is_alive(self) -> bool:
        """Whether the server answers."""
        return get_portal().call(self._is_alive)

    def state_dict(self, session_id: Hashable = 0) -> Any:
        """What the agent remembers.

        Args:
            session_id: the session: a number or a text.

        Returns:
            See `Layer.state_dict`; with numbers in place of enums.

        Raises:
            httpx.HTTPError: the server cannot be reached, or does not answer in time.
            ServerFailed: what answers there is no server of an agent.
        """
        return get_portal().call(self._state_dict, session_id)

    async def _ask(self, messages: tuple[Any, ...], session_id: Hashable, kwargs: Any) -> Any:
        body = {
            'message': [m if isinstance(m, str) else m.model_dump(mode='json') for m in messages],
            'session_id': session_id,
            **kwargs,
        }
        async with self._http(self.timeout) as http:
            response = await http.post('/chat_completion', content=json.dumps(body))
        answer = self._read(response)
        return AgentMessage.model_validate(answer) if response.status_code == 200 else answer

    async def _is_alive(self) -> bool:
        import httpx

        try:
            async with self._http(self.timeout or _HEALTH_TIMEOUT) as http:
                return (await http.get('/health_check')).status_code == 200
        except httpx.HTTPError:
            return False

    async def _state_dict(self, session_id: Hashable) -> Any:
        async with self._http(self.timeout) as http:
            response = await http.get(f'/memory/{quote(json.dumps(session_id), safe="")}')
        return self._read(response)

    def _read(self, response: 'httpx.Response') -> Any:
        try:
            return response.json()
        except ValueError:
            raise ServerFailed(
                f'What answers at {self.host}:{self.port} is no server of an agent: it says '
                f'{response.text[:_SHOWN]!r}, with the status {response.status_code}. Check host '
                'and port, and that no proxy stands between.'
            ) from None

    def _http(self, timeout: float | None) -> 'httpx.AsyncClient':
        import httpx

        # A proxy that the environment names has no way to this machine's own loopback interface.
        return httpx.AsyncClient(
            base_url=f'http://{self.host}:{self.port}',
            timeout=timeout,
            trust_env=not is_loopback(self.host),
        )


class AsyncHTTPAgentClient(HTTPAgentClient):
    """An `HTTPAgentClient` whose call is awaited."""

    async def __call__(
        self, *message: str | AgentMessage, session_id: Hashable = 0, **kwargs: Any
    ) -> AgentMessage | Any:
        """See `HTTPAgentClient.__call__`."""
        return await self._ask(message, session_id, kwargs)


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own.

    Args:
        host: an IP address, or a name.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == 'localhost'
