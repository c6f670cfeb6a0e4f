"""What may go wrong on the web.

::

    WebError
    ├── BadAddress       not a URL that may be fetched (the model's to correct)
    ├── HttpFailed       the server answered with an error status
    ├── Unreachable      no answer at all: name, connection, TLS or protocol
    ├── WebTimeout       no whole answer in time
    ├── TooLarge         the answer is larger than allowed
    └── BadReply         an answer, but not of the kind that was asked for

The texts go to models and logs: none has a query or a header in it, where keys are.
"""

from typing import Any, ClassVar

from lagent.errors import LagentError
from lagent.schema import ActionStatusCode


class WebError(LagentError):
    """A request on the web failed.

    Attributes:
        state: the state of the tool call that fails with it.
    """

    code = 'web_error'
    state: ClassVar[ActionStatusCode] = ActionStatusCode.HTTP_ERROR


class BadAddress(WebError):
    """A URL that is malformed, or leads where nobody may be sent."""

    code = 'web_bad_address'
    state = ActionStatusCode.ARGS_ERROR


class HttpFailed(WebError):
    """A server answered with an error status.

    Attributes:
        status: the HTTP status.
        retry_after: seconds that the server asks to wait, if it does.
    """

    code = 'web_http_failed'

    def __init__(self, status: int, place: str, said: str = '', retry_after: float | None = None):
        super().__init__(f'{place} answered with HTTP status {status}{said and f": {said}"}')
        self.status, self.place, self.said, self.retry_after = status, place, said, retry_after
        self.retryable = status in (408, 425, 429, 500, 502, 503, 504)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.place, self.said, self.retry_after)


class Unreachable(WebError):
    """A server could not be asked."""

    code = 'web_unreachable'
    retryable = True


class WebTimeout(WebError):
    """A server did not answer in time."""

    code = 'web_timeout'
    retryable = True


class TooLarge(WebError):
    """An answer is larger than allowed."""

    code = 'web_too_large'


class BadReply(WebError):
    """An answer is not of the kind that was asked for."""

    code = 'web_bad_reply'
    state = ActionStatusCode.API_ERROR
