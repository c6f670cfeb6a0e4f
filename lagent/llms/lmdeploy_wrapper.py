"""LMDeploy's models: in this process, or behind its server."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from lagent._extras import require
from lagent.effects import emit, listening
from lagent.errors import ConfigError
from lagent.llms.base_api import APITemplateParser
from lagent.llms.base_llm import AsyncBaseLLM, BaseLLM, LMTemplateParser
from lagent.llms.completion import Completion, Usage
from lagent.llms.effect import model_call
from lagent.llms.engine_client import AsyncEngineClient, BlockingEngineClient, EngineClient
from lagent.llms.errors import ContextOverflow, ModelCallFailed, is_overflow
from lagent.llms.meta_template import CHAT_META
from lagent.llms.sharing import SharesEngine
from lagent.llms.stops import cut_at_stop
from lagent.server_process import ServerProcess, check_port, local_url, options

_SESSION_ARGUMENTS = ('sequence_start', 'sequence_end', 'timeout')


class LMDeployPipeline(SharesEngine, BaseLLM):
    """A model that LMDeploy runs in this process.

    Dialogs are written with the model's own chat template, or with a `meta_template` or a
    `template_parser` where one is given. Texts are continued as they are.

    Args:
        path: a checkpoint's directory or its name on the hub.
        model_name: the name of one of LMDeploy's own chat templates.
        tp: GPUs that share the model.
        pipeline_cfg: more fields of ``TurbomindEngineConfig`` (``session_len``,
            ``cache_max_entry_count``, ...).
        do_sample: sample, or take the likeliest token each time; by the temperature when not
            given.
        template_parser: see `BaseLLM`.
        meta_template: see `LMTemplateParser`.
        gen_params: generation parameters, see `BaseLLM`.

    Attributes:
        model: LMDeploy's pipeline.

    Raises:
        ConfigError: the engine has no field of a given name.
        ExtraMissing: LMDeploy is not installed.
    """

    provider = 'lmdeploy'
    _shared = ('model', '_lmdeploy')

    def __init__(
        self,
        path: str,
        model_name: str | None = None,
        tp: int = 1,
        pipeline_cfg: dict[str, Any] | None = None,
        *,
        do_sample: bool | None = None,
        template_parser: Any = None,
        meta_template: Any = None,
        **gen_params: Any,
    ) -> None:
        own_template = template_parser is not None or meta_template is not None
        super().__init__(
            path,
            template_parser=template_parser
            or (LMTemplateParser if own_template else APITemplateParser),
            meta_template=meta_template if own_template else CHAT_META,
            **gen_params,
        )
        self.do_sample = do_sample
        self._lmdeploy: Any = require('lmdeploy', 'lmdeploy')
        config = {'tp': tp, **(pipeline_cfg or {})}
        known = {field.name for field in fields(self._lmdeploy.TurbomindEngineConfig)}
        if unknown := config.keys() - known:
            raise ConfigError(f'TurbomindEngineConfig has no {sorted(unknown)}.')
        template = self._lmdeploy.ChatTemplateConfig(model_name=model_name) if model_name else None
        self.model = self._lmdeploy.pipeline(
            path,
            backend_config=self._lmdeploy.TurbomindEngineConfig(**config),
            chat_template_config=template,
            log_level='WARNING',
        )

    @model_call
    def generate(
        self,
        inputs: Any,
        do_preprocess: bool | None = None,
        skip_special_tokens: bool = False,
        return_dict: bool = False,
        **gen_params: Any,
    ) -> Any:
        """Continue a text or answer a dialog, or each of a list of them in one batch.

        Args:
            inputs: a text, or messages; or a list of those.
            do_preprocess: apply the model's chat template; to messages and not to texts when not
                given.
            skip_special_tokens: leave special tokens out of the text.
            return_dict: give dicts with the fields of LMDeploy's ``Response``.
            gen_params: generation parameters of this call, InternLM's or LMDeploy's own.

        Returns:
            The completion or completions, or dicts, in order.

        Raises:
            ModelCallFailed: LMDeploy reports an error; a prompt that is too long is a
                `ContextOverflow`.
        """
        many = isinstance(inputs, list) and bool(inputs) and not isinstance(inputs[0], dict)
        prompts = inputs if many else [inputs]
        if do_preprocess is None:
            do_preprocess = not isinstance(prompts[0], str)
        params = self.update_gen_params(**gen_params)
        started = time.monotonic()
        responses = self.model(
            prompts,
            gen_config=self._config(params, skip_special_tokens),
            do_preprocess=do_preprocess,
        )
        replies = [
            _reply(response, params['stop_words'], started, return_dict=return_dict)
            for response in responses
        ]
        if many:
            return replies
        if listening():
            emit(str(replies[0]))
        return replies[0]

    def _config(self, params: dict[str, Any], skip_special_tokens: bool) -> Any:
        arguments = {'skip_special_tokens': skip_special_tokens, **params}
        if arguments.get('do_sample') is None:
            sampled = params['temperature'] > 0 and params['top_k'] != 1
            arguments['do_sample'] = sampled if self.do_sample is None else self.do_sample
        given = {name: value for name, value in arguments.items() if value is not None}
        return self._lmdeploy.GenerationConfig(**given)


class AsyncLMDeployPipeline(LMDeployPipeline, AsyncBaseLLM):
    """`LMDeployPipeline` whose methods are awaited; the engine batches what comes at one time.

    Args:
        args: see `LMDeployPipeline`.
        kwargs: see `LMDeployPipeline`.
    """

    @model_call
    async def generate(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, session_ids: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Continue a text or answer a dialog; see `LMDeployPipeline.generate`.

        Args:
            inputs: see `LMDeployPipeline.generate`.
            session_ids: not used: the engine keeps nothing between calls.
            args: see `LMDeployPipeline.generate`.
            kwargs: see `LMDeployPipeline.generate`.

        Returns:
            The completion or completions, or dicts, in order.
        """
        return await asyncio.to_thread(LMDeployPipeline.generate, self, inputs, *args, **kwargs)


def _reply(
    response: Any, stops: list[str] | None, started: float, *, return_dict: bool
) -> Completion | dict[str, Any]:
    if response.finish_reason == 'error':
        message = getattr(response, 'error_message', None) or 'LMDeploy reports an error.'
        kind = ContextOverflow if is_overflow(message) else ModelCallFailed
        raise kind(message)
    text, stop = cut_at_stop(response.text, stops)
    if return_dict:
        return {**asdict(response), 'text': text}
    tables = response.logprobs
    return Completion(
        text,
        finish_reason='stop' if stop is not None else response.finish_reason,
        stop_reason=stop,
        usage=Usage(
            response.input_token_len,
            response.generate_token_len,
            cached_tokens=getattr(response, 'cached_tokens', 0),
        ),
        token_ids=response.token_ids,
        logprobs=tables
        and [table[token] for token, table in zip(response.token_ids, tables, strict=False)],
        latency=time.monotonic() - started,
    )


class _Server(EngineClient):
    provider = 'lmdeploy'

    def __init__(
        self,
        path: str,
        model_name: str | None = None,
        server_name: str = '127.0.0.1',
        server_port: int = 23333,
        tp: int = 1,
        log_level: str = 'WARNING',
        serve_cfg: dict[str, Any] | None = None,
        *,
        start_timeout: float = 600.0,
        progress: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> None:
        require('lmdeploy', 'lmdeploy')
        check_port(server_name, server_port)
        url = local_url(server_name, server_port)
        super().__init__(url, model_name or path, **settings)
        self.path = path
        serving = {
            'server_name': server_name,
            'server_port': server_port,
            'model_name': self.model_name,
            'tp': tp,
            'log_level': log_level,
            **(serve_cfg or {}),
        }
        self.process = ServerProcess(
            [sys.executable, '-m', 'lmdeploy', 'serve', 'api_server', path, *options(serving)],
            f'{url}/health',
            timeout=start_timeout,
            progress=progress,
        )

    def update_gen_params(self, **gen_params: Any) -> dict[str, Any]:
        """The generation parameters of one call; see `BaseLLM.update_gen_params`.

        Args:
            gen_params: parameters that the call brings; those of LMDeploy's former sessions, which
                InternLM's callers give, are left out.

        Returns:
            A copy of `gen_params` with them.
        """
        params = super().update_gen_params(**gen_params)
        return {name: value for name, value in params.items() if name not in _SESSION_ARGUMENTS}


class _Client(_Server):
    def __init__(self, url: str, model_name: str, **settings: Any) -> None:
        EngineClient.__init__(self, url, model_name, **settings)


class AsyncLMDeployServer(_Server, AsyncEngineClient):
    """`LMDeployServer` whose methods are awaited."""


class LMDeployServer(_Server, BlockingEngineClient):
    """A model that LMDeploy serves in a process of its own, started and stopped with this object.

    The first call waits until it has come up, as ``with`` and `start` do. It ends when the object
    is closed or collected, and also when this process ends in whatever way. `chat`, `stream_chat`
    and their parameters are those of `GPTAPI`; `generate` continues a text. With a meta template
    for `LMTemplateParser`, such as `INTERNLM2_META`, dialogs are continued as texts, too.

    Args:
        path: a checkpoint's directory or its name on the hub.
        model_name: the name that it is served under; the path when not given.
        server_name: the address that the server listens on. It asks nobody for a key: open it to
            others only where everybody may use it.
        server_port: its port.
        tp: GPUs that share the model.
        log_level: how much the server writes.
        serve_cfg: more options of ``lmdeploy serve api_server``, with underscores.
        start_timeout: seconds that it may take to come up.
        progress: called with each line that the server writes while it comes up.
        settings: generation parameters and connection settings, see `GPTAPI`.

    Attributes:
        url: where requests go.
        process: the process; its `output` is the last of what the server wrote.

    Raises:
        ConfigError: the port is taken.
        ExtraMissing: LMDeploy is not installed.
    """


class AsyncLMDeployClient(_Client, AsyncLMDeployServer):
    """`LMDeployClient` whose methods are awaited."""


class LMDeployClient(_Client, LMDeployServer):
    """A model behind a server of LMDeploy's that runs already; LMDeploy itself is not needed.

    Args:
        url: the server's URL, with or without ``/v1``.
        model_name: the name that the model is served under.
        settings: generation parameters and connection settings, see `LMDeployServer`.

    Attributes:
        url: where requests go.
    """
