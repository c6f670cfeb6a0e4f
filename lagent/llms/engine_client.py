"""Models behind an engine's own server (vLLM, LMDeploy), with the engine's parameters."""

import asyncio
from typing import Any, Self

from lagent import errors
from lagent.effects import listening
from lagent.llms.base_api import APITemplateParser
from lagent.llms.base_llm import LMTemplateParser
from lagent.llms.chat_template import as_prompt
from lagent.llms.completion import Completion
from lagent.llms.effect import model_call
from lagent.llms.errors import ServerFailed
from lagent.llms.meta_template import CHAT_META
from lagent.llms.openai import ChatCompletions
from lagent.llms.remote import AsyncRemoteModel, BlockingRemoteModel
from lagent.portal import blocking
from lagent.server_process import ServerProcess


class EngineClient(ChatCompletions):
    """What both faces are; written once, awaited.

    Dialogs are written on the server, with the model's own chat template; with a meta template of
    the kind that `LMTemplateParser` takes they are written here, and continued as texts.
    """

    process: ServerProcess | None = None

    def __init__(
        self,
        url: str,
        model_name: str,
        *,
        key: str | list[str] = 'EMPTY',
        meta_template: Any = None,
        template_parser: Any = None,
        max_new_tokens: int | None = 512,
        repetition_penalty: float = 1.0,
        **gen_params: Any,
    ) -> None:
        if template_parser is None:
            by_chat = meta_template is None or any('api_role' in role for role in meta_template)
            template_parser = APITemplateParser if by_chat else LMTemplateParser
        super().__init__(
            model_name,
            key=key,
            meta_template=meta_template or CHAT_META,
            template_parser=template_parser,
            base_url=url.rstrip('/').removesuffix('/v1') + '/v1',
            # A text may be continued without end, and servers that are told no end take 16 tokens.
            max_new_tokens=max_new_tokens,
            repetition_penalty=repetition_penalty,
            **gen_params,
        )
        self.model_name = model_name

    def generate_request_data(
        self,
        model_type: str,
        messages: Any,
        gen_params: dict[str, Any],
        json_mode: bool = False,
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """What a request consists of; see `GPTAPI.generate_request_data`.

        Args:
            model_type: the model's name.
            messages: messages; or a text or token ids, which the model continues.
            gen_params: generation parameters, InternLM's or the engine's own.
            json_mode: ask for a JSON object.

        Returns:
            The headers and the body.
        """
        continued = isinstance(messages, str) or as_prompt(messages) is not None
        headers, body = super().generate_request_data(
            model_type, [] if continued else messages, gen_params, json_mode
        )
        body.pop('frequency_penalty', None)
        # Engines know what OpenAI's own servers refuse.
        for name in ('top_k', 'repetition_penalty', 'skip_special_tokens'):
            if gen_params.get(name) is not None:
                body[name] = gen_params[name]
        if continued:
            del body['messages']
            body['prompt'] = messages
        return headers, body

    def render_dialog(self, dialog: Any) -> Any:
        """Turn one dialog into what a request takes.

        Args:
            dialog: the dialog; token ids stay as they are.

        Returns:
            Messages, a text, or token ids.
        """
        given = as_prompt(dialog)
        return super().render_dialog(dialog) if given is None else given.token_ids

    async def _until_ready(self) -> None:
        if self.process is not None:
            try:
                await self.process.until_ready()
            except errors.ServerFailed as error:
                raise ServerFailed(str(error)) from None

    async def _close(self) -> None:
        await super()._close()
        if self.process is not None:
            await asyncio.to_thread(self.process.close)


class AsyncEngineClient(EngineClient, AsyncRemoteModel):
    """The awaited face: calls are awaited, and ``async with`` waits for the server."""

    @model_call
    async def generate(
        self, /, inputs: Any, session_ids: Any = None, **gen_params: Any
    ) -> Completion | list[Completion]:
        """Continue a text, or each of a list of texts.

        Args:
            inputs: the text or texts; token ids may stand for each.
            session_ids: not used: a server keeps nothing between calls.
            gen_params: generation parameters of this call.

        Returns:
            The completion or completions, in order.

        Raises:
            ModelCallFailed: there is no usable reply; the subclass says why.
        """
        if isinstance(inputs, str) or as_prompt(inputs) is not None:
            return await self._answer(inputs, gen_params, stream=listening())
        return await self._answer_all(inputs, gen_params)

    async def start(self) -> None:
        """Wait until the server takes requests.

        Raises:
            ServerFailed: it did not come up.
        """
        await self._until_ready()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self


class BlockingEngineClient(EngineClient, BlockingRemoteModel):
    """The blocking face: ``with`` waits for the server."""

    generate = model_call(blocking(AsyncEngineClient.generate))
    start = blocking(AsyncEngineClient.start)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self
