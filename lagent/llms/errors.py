"""How a model call can fail.

::

    ModelError
    └── ModelCallFailed          also a `RuntimeError`, which InternLM's models raised
        ├── RateLimited          429; `retry_after` says for how long
        ├── QuotaExhausted       no key has any quota left
        ├── AuthenticationFailed 401 or 403
        ├── BadRequest           the request is refused and will be refused again
        │   └── ContextOverflow  prompt and reply don't fit into the model's context
        ├── ModelUnavailable     no connection, 408 or 5xx
        │   └── ModelTimeout     also a `TimeoutError`
        ├── BadReply             what came back is not what the protocol says, or is too large
        ├── EmptyReply           a reply without text and without tool calls
        ├── StreamCut            the stream broke off; `partial` is what had come
        ├── ServerFailed         a server that was started here did not come up, or has ended
        └── ScriptEnded          a scripted model was asked more often than its script provides
"""

from typing import ClassVar

from lagent import errors
from lagent.errors import ModelError
from lagent.llms.completion import Usage


class ModelCallFailed(ModelError, RuntimeError):
    """A model call gave no usable reply.

    Attributes:
        status: the HTTP status, where there was one.
        retry_after: seconds that the server asked to wait, where it did.
        usage: tokens that the failed attempt cost, where the provider reported them.
        attempts: how many attempts were made before giving up.
        partial: text that had come when the call failed. It is not a reply: what was to follow
            is unknown.
    """

    code: ClassVar[str] = 'model_call_failed'

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after, self.usage = status, retry_after, usage
        self.attempts = 1
        self.partial = ''


class RateLimited(ModelCallFailed):
    """The provider asked to slow down."""

    code = 'rate_limited'
    retryable = True


class QuotaExhausted(ModelCallFailed):
    """A key has no quota left; the call failed because no other key has any."""

    code = 'quota_exhausted'


class AuthenticationFailed(ModelCallFailed):
    """The provider does not accept the key."""

    code = 'authentication_failed'


class BadRequest(ModelCallFailed):
    """The provider refuses the request itself."""

    code = 'bad_request'


class ContextOverflow(BadRequest):
    """Prompt and reply together are longer than the model's context."""

    code = 'context_overflow'


class ModelUnavailable(ModelCallFailed):
    """The server could not be reached, or had trouble of its own."""

    code = 'model_unavailable'
    retryable = True


class ModelTimeout(ModelUnavailable, TimeoutError):
    """The server did not answer in time."""

    code = 'model_timeout'


class BadReply(ModelCallFailed):
    """The server's answer cannot be understood, or is larger than a reply may be."""

    code = 'bad_reply'
    retryable = True


class EmptyReply(ModelCallFailed):
    """The model said nothing: no text and no tool call.

    Attributes:
        finish_reason: why the provider says that the reply ended; ``'content_filter'`` also where
            a filter refused the request itself.
    """

    code = 'empty_reply'

    def __init__(
        self,
        message: str,
        *,
        finish_reason: str | None = None,
        status: int | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message, status=status, usage=usage)
        self.finish_reason = finish_reason
        # A filter, a refusal or a budget spent on reasoning would only strike again.
        self.retryable = finish_reason not in ('content_filter', 'length', 'refusal')


class StreamCut(ModelCallFailed):
    """The stream broke off before the reply was complete; see `partial`."""

    code = 'stream_cut'
    retryable = True


class ServerFailed(ModelCallFailed, errors.ServerFailed):
    """A model server that was started here did not come up, or has ended."""

    code = 'server_failed'


class ScriptEnded(ModelCallFailed):
    """A scripted model has no reply left."""

    code = 'script_ended'


_OVERFLOW_SIGNS = (
    'context_length_exceeded',
    'context length',
    'context limit',
    'context window',
    'maximum model length',
    'max_model_len',
    'prompt is too long',
    'input is too long',
)


def is_overflow(text: str) -> bool:
    """Whether a provider's words say that the context was too small.

    Args:
        text: an error's code and message.

    Returns:
        True for the wordings in use; providers share no code for it.
    """
    lowered = text.lower()
    return any(sign in lowered for sign in _OVERFLOW_SIGNS)
