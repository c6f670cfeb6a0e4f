"""The way to an OpenAI-compatible server."""

import importlib
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlunsplit

from lagent.llms.sdk_server import SdkServer, split_url

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_ENDPOINT = '/chat/completions'


class OpenAIServer(SdkServer):
    """One server, and the connections to it.

    Args:
        url: where requests go; with or without ``/chat/completions``. A query is kept.
        settings: see `SdkServer`.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        parts = split_url(url, 'http://localhost/v1')
        path = parts.path.rstrip('/').removesuffix(_ENDPOINT)
        base_url = urlunsplit((parts.scheme, parts.netloc, path, '', ''))
        # Imported here, and not in a call: it takes a second, for which the loop would stand still.
        super().__init__(base_url, importlib.import_module('openai'), 'AsyncOpenAI', **settings)
        self.url = urlunsplit((parts.scheme, parts.netloc, path + _ENDPOINT, parts.query, ''))
        self._query = dict(parse_qsl(parts.query))

    def _call(
        self,
        client: 'AsyncOpenAI',
        body: dict[str, Any],
        headers: dict[str, str],
        key: str,
        org: str | None,
    ) -> AbstractAsyncContextManager[Any]:
        access = {'Authorization': f'Bearer {key}'}
        if org:
            access['OpenAI-Organization'] = org
        # A prompt is continued, messages are answered.
        kind, api = (
            ('prompt', client.completions)
            if 'prompt' in body
            else ('messages', client.chat.completions)
        )
        return api.with_streaming_response.create(
            model=body['model'],
            **{kind: body[kind]},
            stream=body.get('stream', False),
            extra_body=body,
            extra_headers=access | headers,
            extra_query=self._query,
        )
