"""From a cell's Jupyter messages to its outputs. Free of input and output; never raises.

Whatever the kernel sends, memory stays within the policy's limits, and what is left out is counted.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from sandbox.kernel import mime
from sandbox.kernel.spill import Spill
from sandbox.kernel.text import Terminal, clean, coloured, left_out, plain, split_unfinished
from sandbox.policy import SandboxPolicy
from sandbox.types import ErrorInfo, ExecutionEvent, Output, Truncation

_MAX_NAME = 1_000
_SLICE = 1 << 20  # characters handled at a time: a message may be large, copies of it are not
_TRACEBACK_TAIL = 0.75
_LIVE_CODE = 512  # characters of a code without an end that a live view waits for
_LATE_PLACES = 3  # over the number: for two streams that began late, and one result
StreamName = Literal['stdout', 'stderr']


class _Segment:
    """A run of one stream's text between other outputs."""

    def __init__(self, name: StreamName) -> None:
        self.name = name
        self.head: list[str] = []
        self.tail: deque[str] = deque()
        self.dropped = 0

    def output(self) -> Output:
        head, tail = ''.join(self.head), ''.join(self.tail)
        if not self.dropped:
            return Output(self.name, head + tail)
        return Output(
            self.name, head + left_out(self.dropped) + tail, cut=(len(head), self.dropped)
        )


class _Stream:
    """One stream of a cell over all its segments; head and tail of the whole are kept."""

    def __init__(self, name: StreamName, limit: int, spill: Spill) -> None:
        self.name = name
        self.segment: _Segment | None = None
        self._spill = spill
        self.terminal = Terminal()
        self.unfinished = ''  # a terminal code at the end of what was told live
        self.dropped = 0
        self._head_room = limit - limit // 2
        self._tail_room = limit // 2
        self._tails: deque[_Segment] = deque()

    def feed(self, text: str) -> None:
        self._append(self.terminal.feed(text))

    def pause(self) -> None:
        """Something else is put out next: nothing before it can be overwritten any more."""
        self._append(self.terminal.flush())

    def _append(self, text: str) -> None:
        segment = self.segment
        if segment is None or not text:
            return
        self._spill.add(self.name, text)
        if self._head_room:
            head = text[: self._head_room]
            segment.head.append(head)
            self._head_room -= len(head)
            text = text[len(head) :]
        if text:
            segment.tail.append(text)
            self._tails.append(segment)
            self._tail_room -= len(text)
            while self._tail_room < 0:
                self._trim()

    def _trim(self) -> None:
        oldest = self._tails[0]
        first = oldest.tail.popleft()
        cut = min(-self._tail_room, len(first))
        self._spill.want(self.name)
        if cut < len(first):
            oldest.tail.appendleft(first[cut:])
        else:
            self._tails.popleft()
        oldest.dropped += cut
        self.dropped += cut
        self._tail_room += cut


class Collector:
    """Collects what one cell puts out.

    Args:
        policy: The limits.
        listener: Called with an event for every output as it arrives, up to the limits.
        spill: Where the whole text goes, so that what is cut is not lost.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        listener: Callable[[ExecutionEvent], None] | None = None,
        spill: Spill | None = None,
    ) -> None:
        self.error: ErrorInfo | None = None
        self.execution_count: int | None = None
        self._policy = policy
        self._listener = listener
        self._spill = spill or Spill(0)
        self._live_room = 2 * policy.output_chars
        self._messages = 0
        self._reset()

    def _reset(self) -> None:
        self._spill.clear()
        limit = self._policy.output_chars
        self._entries: list[_Segment | Output] = []
        self._streams = {
            'stdout': _Stream('stdout', limit, self._spill),
            'stderr': _Stream('stderr', limit, self._spill),
        }
        self._bytes_room = self._policy.output_bytes
        self._charged: dict[str, int] = {}  # bytes of each display that may be updated
        self._text_chars = self._outputs = self._bytes = 0
        self._clear_pending = False

    def feed(self, kind: str, content: object) -> None:
        """Take a message that belongs to this cell; what is not understood is ignored."""
        handler = _HANDLERS.get(kind)
        if handler and isinstance(content, dict):
            handler(self, content)

    def dropped_messages(self, count: int, size: int) -> None:
        """Count messages that nothing is shown of, with the bytes of those that were too large."""
        self._messages += count
        self._bytes += size

    def reply(self, content: dict[str, Any]) -> None:
        """Take the shell reply, whose error may be all that is known about it."""
        self._take_count(content)
        if content.get('status') == 'error' and self.error is None:
            self._on_error(content)

    def outputs(self) -> tuple[Output, ...]:
        """Return the outputs so far, the error last."""
        for stream in self._streams.values():
            stream.pause()
        made = [e.output() if isinstance(e, _Segment) else e for e in self._entries]
        made.sort(key=lambda output: output.kind == 'error')
        return tuple(output for output in made if output.kind in _RICH or output.text)

    def truncated(self) -> Truncation:
        """Return what was left out so far."""
        return Truncation(
            stdout_chars=self._streams['stdout'].dropped,
            stderr_chars=self._streams['stderr'].dropped,
            text_chars=self._text_chars,
            outputs=self._outputs,
            bytes=self._bytes,
            messages=self._messages,
        )

    def _on_stream(self, content: dict[str, Any]) -> None:
        name, text = content.get('name'), content.get('text')
        if name not in ('stdout', 'stderr') or not isinstance(text, str):
            return
        self._clear_if_pending()
        stream = self._streams[name]
        last = self._entries[-1] if self._entries else None
        if stream.segment is None or last is not stream.segment:
            self._pause_streams()
            # Over the limit, text goes on in the stream's last segment: nothing of it is lost.
            if stream.segment is None or len(self._entries) < self._policy.max_outputs:
                stream.segment = _Segment(stream.name)
                self._entries.append(stream.segment)
        for start in range(0, len(text), _SLICE):
            stream.feed(text[start : start + _SLICE])
        if self._listener and self._live_room > 0:
            told = (stream.unfinished + text)[: self._live_room]
            told, stream.unfinished = split_unfinished(told, _LIVE_CODE)
            piece, ansi = plain(told), coloured(told)
            self._live_room -= max(len(piece), len(ansi))
            if piece or ansi:
                self._emit(Output(stream.name, piece, ansi=ansi))

    def _on_display(self, content: dict[str, Any]) -> None:
        self._show('display', content)

    def _on_update(self, content: dict[str, Any]) -> None:
        name = _display_id(content.get('transient'))
        places = [
            index
            for index, entry in enumerate(self._entries)
            if isinstance(entry, Output) and entry.display_id == name is not None
        ]
        if not places or name is None:
            # It updates a display of an earlier cell, whose result is out: show it here.
            self._show('display', content)
            return
        self._bytes_room += self._charged.pop(name, 0)
        new = self._rich('display', content)
        *others, last = places
        self._entries[last] = new
        for index in reversed(others):
            del self._entries[index]  # it is charged once, so it is kept once
        self._outputs += len(others)
        self._emit(new)

    def _on_result(self, content: dict[str, Any]) -> None:
        self._take_count(content)
        self._show('result', content, places=_LATE_PLACES)

    def _on_error(self, content: dict[str, Any]) -> None:
        self._begin_output()
        name, message = content.get('ename'), content.get('evalue')
        lines = content.get('traceback')
        lines = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
        name = plain(name)[:_MAX_NAME] if isinstance(name, str) else ''
        message, _ = self._text(message if isinstance(message, str) else '')
        trace, cut = self._text('\n'.join(lines), tail=_TRACEBACK_TAIL)
        self.error = ErrorInfo(name, message, trace)
        self._entries = [e for e in self._entries if isinstance(e, _Segment) or e.kind != 'error']
        self._add(Output('error', trace or f'{name}: {message}', cut=cut))

    def _on_clear(self, content: dict[str, Any]) -> None:
        self._clear_pending = True
        if not content.get('wait'):
            self._clear_if_pending()

    def _on_input(self, content: dict[str, Any]) -> None:
        self._take_count(content)

    def _take_count(self, content: dict[str, Any]) -> None:
        count = content.get('execution_count')
        if type(count) is int and 0 <= count < 1 << 53:
            self.execution_count = count

    def _show(
        self, kind: Literal['result', 'display'], content: dict[str, Any], *, places: int = 0
    ) -> None:
        """Add an output if there is a place for it; only then does it cost anything."""
        self._begin_output()
        if len(self._entries) < self._policy.max_outputs + places:
            self._add(self._rich(kind, content))
        else:
            self._outputs += 1

    def _begin_output(self) -> None:
        # Before anything of it is counted or charged: to clear is to forget all counts.
        self._clear_if_pending()
        self._pause_streams()

    def _add(self, output: Output) -> None:
        self._entries.append(output)
        self._emit(output)

    def _clear_if_pending(self) -> None:
        if self._clear_pending:
            self._reset()
            if self._listener:
                self._listener(ExecutionEvent('output', clear=True))

    def _pause_streams(self) -> None:
        for stream in self._streams.values():
            stream.pause()

    def _emit(self, output: Output) -> None:
        if self._listener:
            self._listener(ExecutionEvent('output', output=output))

    def _text(self, text: str, *, tail: float = 0.5) -> tuple[str, tuple[int, int] | None]:
        text = plain(text)
        limit = self._policy.output_chars
        excess = len(text) - limit
        if excess <= 0:
            return text, None
        self._text_chars += excess
        for piece in (*(text[at : at + _SLICE] for at in range(0, len(text), _SLICE)), '\n'):
            self._spill.add('values', piece)
        self._spill.want('values')
        end = int(limit * tail)
        start = limit - end
        shortened = text[:start] + left_out(excess) + text[len(text) - end :]
        return shortened, (start, excess)

    def _rich(self, kind: Literal['result', 'display'], content: dict[str, Any]) -> Output:
        data: dict[str, Any] = {}
        over: dict[str, int] = {}
        text = ''
        cut: tuple[int, int] | None = None
        display_id = _display_id(content.get('transient'))
        before = self._bytes_room
        for name, sent in mime.bundle(content.get('data')):
            value, shortened = sent, None
            if name == 'text/plain':
                value, shortened = self._text(mime.as_text(sent))
            kept, size = mime.decode(name, value, self._policy.image_bytes)
            if kept is None or size > self._bytes_room:
                over[name] = size
                self._bytes += size
            else:
                data[name] = kept
                self._bytes_room -= size
                if name == 'text/plain':
                    text, cut = kept, shortened
        if display_id is not None:
            self._charged[display_id] = self._charged.get(display_id, 0) + before - self._bytes_room
        return Output(
            kind,
            text,
            data,
            mime.metadata(content.get('metadata')),
            display_id,
            over,
            cut,
        )


# Bound methods would tie each cell's collector to itself, and leave thousands to the garbage
# collector, whose full run then stops the event loop for a tenth of a second.
_HANDLERS: dict[str, Callable[[Collector, dict[str, Any]], None]] = {
    'stream': Collector._on_stream,
    'display_data': Collector._on_display,
    'update_display_data': Collector._on_update,
    'execute_result': Collector._on_result,
    'error': Collector._on_error,
    'clear_output': Collector._on_clear,
    'execute_input': Collector._on_input,
}
_RICH = ('result', 'display', 'error')


def _display_id(transient: object) -> str | None:
    name = transient.get('display_id') if isinstance(transient, dict) else None
    return clean(name)[:_MAX_NAME] if isinstance(name, str) else None
