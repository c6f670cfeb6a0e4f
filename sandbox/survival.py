"""`Survival`: that a sandbox outlives its program for a while, and who may have it then."""

import math
from dataclasses import dataclass, replace

from sandbox.errors import PolicyError
from sandbox.policy import SandboxPolicy

_LONGEST = 200


@dataclass(frozen=True)
class Survival:
    """A sandbox that outlives its program, so that the program's next process can have it again.

    When a process dies without closing the session, the container stays, with its variables, files
    and even the cell that runs, and the next session of the same scope and id is given it. Nobody
    else's sweep removes it before its time. Of a living process nothing is ever taken: meanwhile
    another session of that scope and id is refused.

    Attributes:
        scope: What tells this program's sessions from those of all others of the same user. Who
            uses the same scope and session id means the same session.
        seconds: How long the sandbox waits for its next owner; then it ends itself. It takes the
            place of the policy's `orphan_grace`.

    Raises:
        PolicyError: A value is out of range.
    """

    scope: str
    seconds: float = 600.0

    def __post_init__(self) -> None:
        if not 0 < len(self.scope) <= _LONGEST:
            raise PolicyError(f'scope must be a text of 1 to {_LONGEST} characters.')
        if self.seconds <= 0 or not math.isfinite(self.seconds):
            raise PolicyError(f'seconds must be positive and finite, not {self.seconds!r}.')

    def applied(self, policy: SandboxPolicy) -> SandboxPolicy:
        """Return a policy by which a sandbox waits that long for its next owner."""
        return replace(policy, orphan_grace=float(self.seconds))
