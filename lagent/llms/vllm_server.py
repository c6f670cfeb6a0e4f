"""VllmServer and AsyncVllmServer: a model that a vLLM server of one's own serves."""

import secrets
import sys
from collections.abc import Callable
from typing import Any

from lagent._extras import require
from lagent.llms.engine_client import AsyncEngineClient, BlockingEngineClient, EngineClient
from lagent.server_process import ServerProcess, free_port, options

_HOST = '127.0.0.1'


class _Vllm(EngineClient):
    provider = 'vllm'

    def __init__(
        self,
        path: str,
        tp: int = 1,
        vllm_cfg: dict[str, Any] | None = None,
        *,
        model_name: str | None = None,
        env: dict[str, str] | None = None,
        start_timeout: float = 600.0,
        progress: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> None:
        require('vllm', 'vllm')
        port, key = free_port(), secrets.token_urlsafe(24)
        url = f'http://{_HOST}:{port}'
        super().__init__(url, model_name or path, key=key, **settings)
        self.path = path
        serving = {
            'model': path,
            'served_model_name': self.model_name,
            'host': _HOST,
            'port': port,
            'tensor_parallel_size': tp,
            **(vllm_cfg or {}),
        }
        # The module and not the command, whose entry point not every installation has.
        self.process = ServerProcess(
            [sys.executable, '-m', 'vllm.entrypoints.openai.api_server', *options(serving)],
            f'{url}/health',
            env={**(env or {}), 'VLLM_API_KEY': key},
            timeout=start_timeout,
            progress=progress,
        )


class AsyncVllmServer(_Vllm, AsyncEngineClient):
    """`VllmServer` whose methods are awaited."""


class VllmServer(_Vllm, BlockingEngineClient):
    """A model that vLLM serves in a process of its own, started and stopped with this object.

    It listens on a free port of the loopback address, and only to who has its key. The first call
    waits until it has come up, as ``with`` and `start` do. It ends when the object is closed or
    collected, and also when this process ends in whatever way. `chat`, `stream_chat` and their
    parameters are those of `GPTAPI`; `generate` continues a text; parameters that only vLLM has
    (``top_k``, ``min_p``, ``structured_outputs``, ...) go into the request as they are.

    Args:
        path: a checkpoint's directory or its name on the hub.
        tp: GPUs that share the model.
        vllm_cfg: more options of ``vllm serve``, with underscores (``dtype``, ``max_model_len``,
            ``enable_lora``, ...); a flag is True.
        model_name: the name that it is served under; the path when not given.
        env: environment variables of the server.
        start_timeout: seconds that it may take to come up.
        progress: called with each line that the server writes while it comes up.
        settings: generation parameters and connection settings, see `GPTAPI`.

    Attributes:
        url: where requests go.
        keys: the server's key.
        process: the process; its `output` is the last of what the server wrote.

    Raises:
        ExtraMissing: vLLM is not installed.
    """
