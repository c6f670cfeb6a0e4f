"""Why `runtime='runsc'` (gVisor) is refused, depending on what the engine has."""

from collections.abc import Mapping
from typing import Any

from sandbox.errors import PolicyNotEnforced

_HINT = "Use runtime='default', or a machine of its own for code that needs a stronger wall."


def refusal(info: Mapping[str, Any]) -> PolicyNotEnforced:
    """Return the error for a policy that asks for gVisor.

    The host and a sandbox meet at unix sockets that the guest binds, and the supervisor tells the
    host from the code by the user at the other end. In gVisor `SO_PEERCRED` names the process that
    asks, not its peer, so the supervisor would have to trust everybody. A weaker check is no trade
    for a stronger wall.

    Args:
        info: The engine's answer to `GET /info`.
    """
    if 'runsc' not in (info.get('Runtimes') or {}):
        return PolicyNotEnforced(
            "The policy asks for runtime='runsc', which this Docker engine does not have.",
            hint=_HINT,
        )
    return PolicyNotEnforced(
        "The policy asks for runtime='runsc', which this engine has, but gVisor does not tell the "
        'supervisor who connects to its socket (SO_PEERCRED), so code in the sandbox could pass '
        'for the host.',
        hint=_HINT,
    )
