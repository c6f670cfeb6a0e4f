"""Errors of the sandbox: every one says what happened, what was kept and what to do next.

User code never raises here: whatever a cell does is an `ExecutionResult`. These errors are about
the sandbox itself.

    Exception
    └── SandboxError
        ├── PolicyError        (and a ValueError) a policy is invalid, or a change loosens it
        ├── BackendUnavailable                    no engine, or no consent to use this back end
        │   └── PolicyNotEnforced                 it cannot enforce a field of the policy here
        ├── ImageMissing                          the kernel image has not been built
        ├── StartFailed                           a sandbox or its kernel did not become ready
        ├── SandboxLost                           the container is gone, with variables and files
        ├── SandboxClosed                         the session was closed before this call
        ├── FileRefused                           a file, its name, type or size was refused
        ├── CapacityExceeded                      no session became free before the deadline
        └── PortalError        (and a RuntimeError) a blocking call on the loop's own thread
"""


class SandboxError(Exception):
    """Base of all errors of this package.

    Args:
        message: What happened, and what was kept.
        hint: What to do next; empty when there is nothing to add.
    """

    def __init__(self, message: str, *, hint: str = '') -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f'{self.message}\n{self.hint}' if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with `args` alone and lose the keyword.
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[SandboxError], message: str, hint: str) -> SandboxError:
    return kind(message, hint=hint)


class PolicyError(SandboxError, ValueError):
    """A policy is invalid, or a change would loosen it."""


class BackendUnavailable(SandboxError):
    """The back end cannot be used on this machine, or not without an explicit consent."""


class PolicyNotEnforced(BackendUnavailable):
    """The back end cannot enforce fields of the policy on this machine; the message names them."""


class ImageMissing(SandboxError):
    """The kernel image is not on this machine."""


class StartFailed(SandboxError):
    """A sandbox, or the kernel in it, did not become ready before its deadline."""


class SandboxLost(SandboxError):
    """The container or process behind a session is gone, and its variables and files with it."""


class SandboxClosed(SandboxError):
    """The session was closed before this call."""


class FileRefused(SandboxError):
    """A file, or its name, type or size, was refused; nothing was changed by the call."""


class CapacityExceeded(SandboxError):
    """All sessions of a manager are in use and none became free before the deadline."""


class PortalError(SandboxError, RuntimeError):
    """A blocking call was made on the thread of the event loop that would have to answer it."""
