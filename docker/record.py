"""The last cell in the kernel's memory, for a host that comes back after it has died.

It is kept where the host asks for it: what was published for the cell, up to a size, and the reply.
"""

import json
from typing import Any

from jupyter_client.session import DELIM

from .messages import pack


class LastCell:
    """What the last cell that is to be kept has published and answered."""

    MOST = 1 << 20
    OUTPUTS = frozenset(
        (
            *('stream', 'display_data', 'update_display_data', 'execute_result'),
            *('error', 'clear_output'),
        )
    )

    def __init__(self) -> None:
        self.request = ''
        self.is_open = False
        self._reply: dict[str, Any] | None = None
        self._forget()

    def _forget(self) -> None:
        self._published: list[tuple[bytes, bytes, bytes]] = []
        self._size = self._left_out = self._left_out_bytes = 0

    def begin(self, request: Any) -> None:
        """Begin anew with the request of a cell, or end where that is not to be kept."""
        self.is_open = request['metadata'].get('keep') is True
        if self.is_open:
            self.request, self._reply = request['header']['msg_id'], None
            self._forget()

    def end(self, reply: dict[str, Any]) -> None:
        """Take the answer to the cell."""
        if not self.is_open:
            return
        if len(pack(reply)) > self.MOST // 2:
            reply = {name: reply.get(name) for name in ('status', 'ename', 'execution_count')}
        self._reply = reply

    def add(self, parts: list[bytes]) -> None:
        """Take the parts of a message that is published."""
        header, parent, _, content = parts[parts.index(DELIM) + 2 :][:4]
        if self._size + len(content) > self.MOST:
            self._left_out += 1
            self._left_out_bytes += len(content)
        else:
            self._size += len(content)
            self._published.append((header, parent, content))

    def told(self, room: int) -> dict[str, Any]:
        """Return what is known of the cell, in about `room` bytes."""
        messages: list[tuple[str, Any]] = []
        left_out, left_out_bytes = self._left_out, self._left_out_bytes
        for header, parent, content in self._published:
            kind = json.loads(header)['msg_type']
            if kind not in self.OUTPUTS or json.loads(parent).get('msg_id') != self.request:
                continue
            room -= len(content)
            if room >= 0:
                messages.append((kind, json.loads(content)))
            else:
                left_out, left_out_bytes = left_out + 1, left_out_bytes + len(content)
        return {
            'request': self.request,
            'reply': self._reply,
            'messages': messages,
            'left_out': left_out,
            'left_out_bytes': left_out_bytes,
        }
