"""Messages in a log."""

import io
import logging
import re
import uuid

import pytest

from lagent.hooks import MessageLogger
from lagent.schema import AgentMessage


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def name():
    name = f'test-{uuid.uuid4().hex}'
    yield name
    logger = logging.getLogger(name)
    for handler in tuple(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def log(hook, *senders, content='words'):
    for sender in senders:
        hook.after_agent(None, AgentMessage(sender=sender, content=content), 7)


def console(hook, stream):
    (handler,) = [h for h in hook.logger.handlers if type(h) is logging.StreamHandler]
    handler.setStream(stream)
    return stream


def test_every_message_is_logged_once(name):
    stream = io.StringIO()
    hooks = [MessageLogger(name) for _ in range(3)]
    console(hooks[0], stream)
    message = AgentMessage(content='words')
    hooks[1].before_agent(None, [message, message], 7)
    hooks[1].after_agent(None, message, 7)
    hooks[1].before_action(None, message, 7)
    hooks[1].after_action(None, message, 7)
    assert stream.getvalue().count('session id: 7, message sender: user\nwords') == 5
    assert '\x1b' not in stream.getvalue()


def test_a_sender_keeps_its_colour(name):
    hook = MessageLogger(name)
    stream = console(hook, Terminal())
    log(hook, 'ann', 'bob', 'ann')
    colours = re.findall(r'\x1b\[(\d+)m', stream.getvalue())
    assert colours[0] == colours[4]
    assert colours[0] != colours[2]
    assert colours[1::2] == ['0'] * 3


def test_control_characters_are_shown_on_a_terminal(name):
    hook = MessageLogger(name)
    stream = console(hook, Terminal())
    log(hook, 'user', content='a\x1b[2Jb\tc\nd\x9b')
    assert 'a\\x1b[2Jb\tc\nd\\x9b' in stream.getvalue()


def test_files_are_plain(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hook = MessageLogger(name, add_file_handler=True)
    console(hook, Terminal())
    log(hook, 'user', content='to the file')
    (path,) = (tmp_path / 'log').glob('*.log')
    written = path.read_text(encoding='utf-8')
    assert written.endswith('session id: 7, message sender: user\nto the file\n')
    assert '\x1b' not in written


def test_the_librarys_own_logger_is_left_alone():
    own = logging.getLogger('lagent')
    before = own.level, own.propagate, [*own.handlers]
    hook = MessageLogger()
    assert hook.logger.name == 'lagent.messages'
    assert (own.level, own.propagate, own.handlers) == before
    hook.logger.handlers.clear()
