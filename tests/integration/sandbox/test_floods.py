"""Floods: whatever a kernel sends, the host stays small, the counts are exact, the cell ends.

Each flood has a host process of its own, which tells how far its memory has grown.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
LIMIT = 64
"""MiB that the host's memory may grow by."""

HOST = """
import json, sys
from sandbox import Sandbox, SandboxPolicy

def peak():
    # The peak that `getrusage` tells may be that of the program which started this one.
    status = dict(line.split(':', 1) for line in open('/proc/self/status'))
    return int(status['VmHWM'].split()[0]) / 1024

code, seconds = sys.argv[1], float(sys.argv[2])
with Sandbox(policy=SandboxPolicy(memory=4 << 30, disk=128 << 20)) as box:
    box.execute("print('warm')\\n'up'")
    before = peak()
    result = box.execute(code, timeout=seconds)
    grown = peak() - before
    after = box.execute("print('after')")
    files = [(info.path, info.size) for info in box.files()]
print(json.dumps({'result': result.to_dict(), 'grown': grown, 'after': after.stdout,
                  'files': files, 'text': len(result.text)}))
"""

PRINTS = "while True: print('x' * 1000)"
TINY_PRINTS = 'while True: print(1, flush=True)'
LINE = "print('x' * 500_000_000)"
REPR = """
class Huge:
    def __repr__(self):
        return 'x' * 14_000_000
Huge()
"""
DISPLAYS = """
from IPython.display import display
for number in range(10_000): display(number)
"""
NAMED_DISPLAYS = """
from IPython.display import display
for number in range(10_000): display(number, display_id=f'{number:01000}')
"""
IMAGE = """
from IPython.display import display
display({'image/png': 'A' * 200_000_000, 'text/plain': 'an image'}, raw=True)
"""
IMAGES = """
import base64
from IPython.display import display
image = base64.b64encode(bytes(6 << 20)).decode()
for _ in range(25): display({'image/png': image}, raw=True)
"""
HTML = """
from IPython.display import HTML, display
display(HTML('x' * 200_000_000))
"""
FORGED = """
import os, time
socket = get_ipython().kernel.iopub_thread.socket
junk = os.urandom(100_000)
for _ in range(3_000):
    socket.send_multipart([b'x', b'<IDS|MSG>', b'0' * 64, b'{}', b'{}', b'{}', junk])
for _ in range(100):
    socket.send_multipart([junk] * 100)
"""
# What is signed, and would take many times its size once it is decoded.
SIGNED = """
kernel = get_ipython().kernel
parent, session = kernel.get_parent('shell'), kernel.session

def send(content):
    message = session.msg('stream', {}, parent)
    frames = [session.pack(message[part]) for part in ('header', 'parent_header', 'metadata')]
    frames.append(content)
    kernel.iopub_thread.socket.send_multipart([b'x', b'<IDS|MSG>', session.sign(frames), *frames])
"""
UNREADABLE = (
    SIGNED
    + """
for _ in range(500): send(b'[' * 100_000 + b']' * 100_000)
"""
)
NESTED = (
    SIGNED
    + """
for _ in range(5): send(b'{"name": "stdout", "text": [' + b'[],' * 5_000_000 + b'[]]}')
"""
)
WIDE = (
    SIGNED
    + r"""
wide = b'x' * 15_000_000
for _ in range(5):
    send(b'{"name": "stdout", "text": "' + wide + b'\\ud83d\\ude00"}')
    send(b'{"name": "stdout", "text": "' + wide + '\U0001f600'.encode() + b'"}')
"""
)
ESCAPES = (
    SIGNED
    + r"""
for _ in range(5): send(b'{"name": "stdout", "text": "' + b'\\n' * 7_500_000 + b'"}')
"""
)
SHELL = """
import os
kernel = get_ipython().kernel
socket, identity = kernel.shell_stream.socket, kernel._parent_ident['shell']
junk = os.urandom(100_000)
for _ in range(2_000):
    socket.send_multipart([*identity, b'<IDS|MSG>', b'0' * 64, b'{}', b'{}', b'{}', junk])
"""


def flood(code: str, seconds: float = 60.0) -> dict[str, Any]:
    """Run a flood in a host process of its own and return what that saw."""
    done = subprocess.run(
        [sys.executable, '-c', HOST, code, str(seconds)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    print(f'{seen["result"]["outcome"]}: {seen["grown"]:.1f} MiB, {seen["result"]["truncated"]}')
    assert seen['grown'] < LIMIT
    assert seen['after'] == 'after\n'
    assert seen['text'] <= 8_000
    return seen


def stdout_of(seen: dict[str, Any]) -> str:
    return ''.join(o['text'] for o in seen['result']['outputs'] if o['kind'] == 'stdout')


pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize('code', [NESTED, WIDE])
def test_messages_that_would_grow_when_decoded_are_counted(code):
    result = flood(code)['result']
    assert result['outcome'] == 'ok'
    assert result['truncated']['messages'] == (5 if code == NESTED else 10)


def test_a_message_of_nothing_but_escapes_is_taken():
    result = flood(ESCAPES)['result']
    assert result['outcome'] == 'ok'
    assert result['truncated']['stdout_chars'] == 5 * 7_500_000 - 100_000


@pytest.mark.parametrize('code', [PRINTS, TINY_PRINTS])
def test_endless_prints_end_by_the_clock(code):
    seen = flood(code, 4.0)
    result = seen['result']
    assert result['outcome'] == 'timeout'
    assert result['truncated']['messages'] == 0
    assert result['timings']['running'] < 20
    if code == PRINTS:
        assert result['truncated']['stdout_chars'] > 1 << 20
        assert seen['files'][0][1] <= 32 << 20


def test_a_line_of_500_megabytes_is_counted_to_the_last_character():
    seen = flood(LINE)
    result = seen['result']
    assert result['outcome'] == 'ok'
    assert result['truncated']['stdout_chars'] == 500_000_001 - 100_000
    assert result['truncated']['messages'] == 0
    assert stdout_of(seen).endswith('xxx\n')
    assert seen['files'] == [['.outputs/cell-2-stdout.txt', 32 << 20]]
    assert 'only the first 32 MiB' in result['notices'][0]


def test_a_huge_value_is_cut_and_kept_in_a_file():
    seen = flood(REPR)
    assert seen['result']['outcome'] == 'ok'
    assert seen['result']['truncated']['text_chars'] == 14_000_000 - 100_000
    assert seen['files'] == [['.outputs/cell-2-values.txt', 14_000_001]]


@pytest.mark.parametrize('code', [DISPLAYS, NAMED_DISPLAYS])
def test_ten_thousand_displays_are_counted(code):
    seen = flood(code)
    assert seen['result']['outcome'] == 'ok'
    assert seen['result']['truncated']['outputs'] == 10_000 - 256
    assert len(seen['result']['outputs']) == 256


@pytest.mark.parametrize('code', [IMAGE, HTML])
def test_a_representation_of_200_megabytes_is_left_out_and_counted(code):
    result = flood(code)['result']
    assert result['outcome'] == 'ok'
    assert result['truncated']['messages'] == 1
    assert 200_000_000 < result['truncated']['bytes'] < 200_010_000


def test_images_that_are_too_many_are_left_out_and_counted():
    result = flood(IMAGES)['result']
    kept = [output for output in result['outputs'] if output['data']]
    assert result['outcome'] == 'ok'
    assert len(kept) == 2
    assert result['truncated']['bytes'] == 23 * (6 << 20)


def test_messages_with_a_wrong_signature_are_counted():
    result = flood(FORGED)['result']
    assert result['outcome'] == 'ok'
    assert result['truncated']['messages'] == 3_100
    assert result['outputs'] == []


def test_messages_that_cannot_be_read_are_counted():
    result = flood(UNREADABLE)['result']
    assert result['outcome'] == 'ok'
    assert result['truncated']['messages'] == 500


def test_a_flood_of_the_reply_channel_ends_by_rule():
    # The code uses the socket of the replies, and may well lock its kernel up, or lose the reply.
    result = flood(SHELL, 10.0)['result']
    assert result['outcome'] in ('ok', 'unknown', 'timeout')
    assert 0 < result['truncated']['messages'] <= 2_000
