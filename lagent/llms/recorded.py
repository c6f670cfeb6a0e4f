"""What stands for a model whose answers are all known."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, NoReturn

from lagent.llms.base_llm import AsyncBaseLLM, BaseLLM, Chunk
from lagent.llms.effect import model_call, model_stream
from lagent.llms.errors import ScriptEnded

_WHY = (
    'stands for a model in a replay and can only give what is recorded. Make the real one for '
    'what else is asked of it, such as to count tokens.'
)


class RecordedModel(BaseLLM):
    """A model that is never asked: it has a name, and a recording answers in its place.

    Args:
        path: the name.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)

    @model_call
    def chat(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> Any:
        """Be known from a recording.

        Raises:
            ScriptEnded: there is no recording any more: the replay has ended.
        """
        self._refuse()

    @model_stream
    def stream_chat(
        self, inputs: Any, session_id: Any = None, **gen_params: Any
    ) -> Iterator[Chunk]:
        """See `chat`."""
        yield self._refuse()

    @model_call
    def generate(self, inputs: Any, **gen_params: Any) -> Any:
        """See `chat`."""
        self._refuse()

    def tokenize(self, prompts: str) -> Any:
        """See `chat`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ScriptEnded(f'{self.path!r} {_WHY}')


class AsyncRecordedModel(RecordedModel, AsyncBaseLLM):
    """A `RecordedModel` that is awaited."""

    @model_call
    async def chat(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> Any:
        """See `RecordedModel.chat`."""
        self._refuse()

    @model_stream
    async def stream_chat(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, session_id: Any = None, **gen_params: Any
    ) -> AsyncIterator[Chunk]:
        """See `RecordedModel.chat`."""
        yield self._refuse()

    @model_call
    async def generate(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> Any:
        """See `RecordedModel.chat`."""
        self._refuse()
