"""The contract of every model, and prompts for models that complete a text."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

from lagent.llms.effect import model_call
from lagent.schema import ModelStatusCode
from lagent.utils.closable import AsyncClosable, Closable

Message = dict[str, Any]
Dialog = str | Sequence[str | Message]
Chunk = tuple[ModelStatusCode, str, Any]


class TemplateParser(Protocol):
    """What `BaseLLM` makes of its `template_parser` argument."""

    def __call__(self, dialog: Any) -> Any:
        """Turn a dialog into what the model takes."""
        ...


class LMTemplateParser:
    """Writes a dialog as the one text that a completion model continues.

    Args:
        meta_template: one entry a role, ``{'role', 'begin', 'end', 'generate', 'fallback_role'}``.
            `begin` is a text, or ``{'with_name', 'without_name', 'name'}``: the first two are
            texts, ``{name}`` stands for the message's name, and `name` maps names to how they
            are written. The text after a role with ``generate`` is left open when it comes last.
            A role with a `fallback_role` and nothing else is written like that one.
    """

    def __init__(self, meta_template: list[dict[str, Any]] | None = None) -> None:
        self.meta_template = meta_template
        self.roles = roles_of(meta_template)

    def __call__(self, dialog: Dialog) -> str:
        """Write a dialog.

        Args:
            dialog: messages, with texts between them that are written as they are; or a text,
                which is returned unchanged.

        Returns:
            The prompt. It ends with the beginning of the assistant's message, unless the dialog
            ends with that message or with a text. Without a meta template, a line a content.

        Raises:
            KeyError: a role is not in the meta template.
        """
        if isinstance(dialog, str) or not self.roles:
            return plain_text(dialog)
        last = len(dialog) - 1
        parts = [
            item if isinstance(item, str) else self._write(item, is_last=index == last)
            for index, item in enumerate(dialog)
        ]
        if dialog and not isinstance(dialog[-1], str) and dialog[-1]['role'] != 'assistant':
            parts.append(self._begin(find_role(self.roles, 'assistant'), None))
        return ''.join(parts)

    def _write(self, message: Message, *, is_last: bool) -> str:
        role = find_role(self.roles, message['role'])
        text = f'{self._begin(role, message.get("name"))}{message["content"]}'
        left_open = is_last and role.get('generate', False)
        return text if left_open else text + role.get('end', '')

    @staticmethod
    def _begin(role: dict[str, Any], name: str | None) -> str:
        begin: str | dict[str, Any] = role.get('begin', '')
        if isinstance(begin, str):
            return begin
        if not name:
            return str(begin['without_name'])
        return str(begin['with_name']).format(name=begin.get('name', {}).get(name, name))


def plain_text(dialog: Dialog) -> str:
    """A dialog as it is written without a meta template.

    Args:
        dialog: messages and texts; or one text.

    Returns:
        Their contents, a line each; of one text itself.
    """
    if isinstance(dialog, str):
        return dialog
    contents = (item if isinstance(item, str) else item['content'] for item in dialog)
    return '\n'.join(str(content) for content in contents if content)


def roles_of(meta_template: list[dict[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """The entries of a meta template by role.

    Args:
        meta_template: the entries, or None.

    Returns:
        A dict from role to entry.
    """
    roles = {entry['role']: entry for entry in meta_template or ()}
    assert len(roles) == len(meta_template or ()), 'a role occurs twice in the meta template'
    return roles


def find_role(roles: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """The entry that says how a role is written.

    Args:
        roles: entries by role.
        name: the role of a message.

    Returns:
        Its own entry, or that of its fallback role.

    Raises:
        KeyError: neither is in the meta template.
    """
    entry = roles.get(name)
    if entry is not None and 'fallback_role' in entry and not {'begin', 'api_role'} & entry.keys():
        entry = roles.get(entry['fallback_role'])
    if entry is None:
        raise KeyError(f'role {name!r} is not in the meta template, which has {list(roles)}')
    return entry


class BaseLLM(Closable):
    """A model that is asked with messages and answers with a text.

    Subclasses provide `generate`, and `stream_chat` where they can stream.

    Args:
        path: where the model lies, or its name.
        tokenizer_only: load the tokenizer and nothing else, where a subclass can.
        template_parser: a class; an instance made with `meta_template` turns dialogs into what
            `generate` takes.
        meta_template: passed to `template_parser`.
        max_new_tokens: tokens that a reply may have.
        top_p: sample from the likeliest tokens that together have this probability.
        top_k: sample from this many of the likeliest tokens; None for all.
        temperature: 0 takes the likeliest token each time.
        repetition_penalty: above 1, tokens that occurred become less likely.
        stop_words: texts that end a reply; they are not part of it.

    Attributes:
        gen_params: the generation parameters of every call that doesn't bring its own. The list
            of stop words in it may be changed at any time.
        provider: whose API or engine answers, in traces; OpenTelemetry's name where it has one.
    """

    is_api = False
    provider = ''

    def __init__(
        self,
        path: str,
        tokenizer_only: bool = False,
        template_parser: Any = LMTemplateParser,
        meta_template: Any = None,
        *,
        max_new_tokens: int | None = 512,
        top_p: float = 0.8,
        top_k: int | None = 40,
        temperature: float = 0.8,
        repetition_penalty: float = 1.0,
        stop_words: list[str] | str | None = None,
    ) -> None:
        self.path = path
        self.tokenizer_only = tokenizer_only
        self.template_parser: TemplateParser = template_parser(meta_template)
        self.gen_params: dict[str, Any] = {
            'max_new_tokens': max_new_tokens,
            'top_p': top_p,
            'top_k': top_k,
            'temperature': temperature,
            'repetition_penalty': repetition_penalty,
            'stop_words': [stop_words] if isinstance(stop_words, str) else stop_words,
        }

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.path!r})'

    def generate(self, inputs: Any, **gen_params: Any) -> Any:
        """Complete a prompt, or each of a list of prompts.

        Args:
            inputs: the prompt or prompts.
            gen_params: generation parameters of this call.

        Returns:
            The completion or completions, in order.
        """
        raise NotImplementedError

    def stream_generate(self, inputs: Any, **gen_params: Any) -> Iterator[Chunk]:
        """Complete a prompt and yield its growing completion.

        Args:
            inputs: the prompt.
            gen_params: generation parameters of this call.

        Returns:
            An iterator over ``(ModelStatusCode, text so far, None)``; the last one is ``END``.
        """
        raise NotImplementedError

    @model_call
    def chat(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> Any:
        """Answer a dialog, or each of a list of dialogs.

        Args:
            inputs: the dialog or dialogs.
            session_ids: not used here: models keep nothing between calls.
            gen_params: generation parameters of this call.

        Returns:
            The reply or replies, in order.
        """
        return self.generate(self.render(inputs), **gen_params)

    def stream_chat(self, inputs: Any, **gen_params: Any) -> Iterator[Chunk]:
        """Answer a dialog and yield the growing reply; here in one piece.

        Args:
            inputs: the dialog.
            gen_params: generation parameters of this call.

        Returns:
            An iterator over ``(ModelStatusCode, text so far, None)``; the last one is ``END``.
        """
        return iter([(ModelStatusCode.END, self.chat(inputs, **gen_params), None)])

    def tokenize(self, prompts: Any) -> Any:
        """Turn a text, or each of several, into token ids.

        Args:
            prompts: the text or texts.

        Returns:
            A list of ids, or a list of such lists.
        """
        raise NotImplementedError

    def update_gen_params(self, **gen_params: Any) -> dict[str, Any]:
        """The generation parameters of one call.

        Args:
            gen_params: parameters that the call brings.

        Returns:
            A copy of `gen_params` with them; `gen_params` itself is unchanged.
        """
        return {**self.gen_params, **gen_params}

    def render(self, inputs: Any) -> Any:
        """Turn dialogs into what `generate` takes.

        Args:
            inputs: a dialog or a list of dialogs.

        Returns:
            What `render_dialog` makes of it, or of each.
        """
        if is_batch(inputs):
            return [self.render_dialog(dialog) for dialog in inputs]
        return self.render_dialog(inputs)

    def render_dialog(self, dialog: Any) -> Any:
        """Turn one dialog into what `generate` takes.

        Args:
            dialog: the dialog.

        Returns:
            What the template parser makes of it.
        """
        return self.template_parser(dialog)

    def close(self) -> None:
        """Give back what the model holds outside of this process's memory, as ``with`` does.

        That are connections, a server that was started for it, and vLLM's engines; other models in
        this process hold nothing such. Closing twice does nothing.
        """


class AsyncBaseLLM(AsyncClosable, BaseLLM):
    """`BaseLLM` for models that are awaited; session ids reach `generate`."""

    async def generate(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> Any:
        """Complete a prompt, or each of a list of prompts.

        Args:
            inputs: the prompt or prompts.
            session_ids: the session, or one for each prompt.
            gen_params: generation parameters of this call.

        Returns:
            The completion or completions, in order.
        """
        raise NotImplementedError

    def stream_generate(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, **gen_params: Any
    ) -> AsyncIterator[Chunk]:
        """Complete a prompt and yield its growing completion, asynchronously.

        Args:
            inputs: the prompt.
            gen_params: generation parameters of this call.

        Returns:
            An iterator over ``(ModelStatusCode, text so far, None)``; the last one is ``END``.
        """
        raise NotImplementedError

    @model_call
    async def chat(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> Any:
        """Answer a dialog, or each of a list of dialogs.

        Args:
            inputs: the dialog or dialogs.
            session_ids: the session, or one for each dialog.
            gen_params: generation parameters of this call.

        Returns:
            The reply or replies, in order.
        """
        return await self.generate(self.render(inputs), session_ids, **gen_params)

    async def stream_chat(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, **gen_params: Any
    ) -> AsyncIterator[Chunk]:
        """See `BaseLLM.stream_chat`."""
        yield ModelStatusCode.END, await self.chat(inputs, **gen_params), None

    async def close(self) -> None:  # type: ignore[override]  # the awaited face of the same method
        """Give back what the model holds, as ``async with`` does; see `BaseLLM.close`."""


def is_batch(inputs: Any) -> bool:
    """Whether an argument of `chat` is several dialogs.

    Args:
        inputs: the argument.

    Returns:
        True for a list of lists; dialogs that are given as token ids may be tuples.
    """
    return isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], list | tuple)
