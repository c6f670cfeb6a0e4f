"""A session of the page: what waits, what is refused, and what is left after that."""

import threading

import pytest

from lagent.dialogue import Dialogue
from lagent.effects import Effect, perform
from lagent.errors import LagentError
from lagent.flow import run
from lagent.schema import AgentMessage
from lagent.ui.blocks import Question
from lagent.ui.changes import Changes
from lagent.ui.render import Page
from lagent.ui.session import Refused, Session, scratch_file
from lagent.ui.sessions import Sessions
from sandbox import ExecutionResult, FileInfo


class Analyst:
    """Answers at once, and takes files when it may."""

    def __init__(self):
        self.may_go_on = threading.Event()
        self.uploaded = []

    def __call__(self, question, **_options):
        return AgentMessage(sender='analyst', content=f'to {question}')

    def upload(self, paths, session_id=None):
        assert self.may_go_on.wait(30)
        self.uploaded += paths
        return []

    def files(self, session_id=None):
        return []

    def reset(self, *_session):
        pass


@pytest.fixture
def analyst():
    return Analyst()


@pytest.fixture
def session(analyst):
    session = Session(1, Dialogue(analyst, [], 'one'), Changes())
    yield session
    analyst.may_go_on.set()
    session.close()
    session._worker.shutdown()


def test_many_files_may_wait_up_to_a_size(session, analyst, monkeypatch):
    monkeypatch.setattr('lagent.ui.session._MOST_UPLOADED', 1_000)
    for at in range(40):
        upload(session, str(at))
    with pytest.raises(Refused, match='Too much is waiting'):
        upload(session, 'large', 961)
    upload(session, 'fits', 960)
    session.ask('after the files')
    analyst.may_go_on.set()
    idle(session)
    assert analyst.uploaded == [*map(str, range(40)), 'fits']
    assert kinds(session)[-1] == 'note'
    upload(session, 'large', 1_000)
    idle(session)
    assert analyst.uploaded[-1] == 'large'


def test_files_that_a_turn_has_made_are_listed_when_the_turn_fails(session, analyst, monkeypatch):
    def fail(question, **_options):
        run(perform(Effect('kernel', 'python', '1'), lambda: ExecutionResult(outcome='ok')))
        raise LagentError('the model is gone')

    made = FileInfo('made.csv', 3, 0.0, 'file')
    monkeypatch.setattr(analyst, 'files', lambda **_options: [made], raising=False)
    monkeypatch.setattr(Analyst, '__call__', lambda self, question, **options: fail(question))
    session.ask('make it')
    idle(session)
    assert session.files == [(made, False)]
    assert any('the model is gone' in block.get('text', '') for block in session.since(0))


def test_pages_that_were_rendered_are_kept_up_to_a_size(monkeypatch):
    monkeypatch.setattr('lagent.ui.render._CACHED', 20_000)
    sessions = Sessions(Analyst())
    session = sessions.all()[0]
    page = Page(sessions, '/base', 'scripted')
    for at in range(30):
        session._note(f'{at} {"x" * 3_000}')
    assert 'x' * 3_000 in page.whole([session])
    page.whole([session])
    kept = sum(len(html) for _, html in page._cache.values())
    assert 10_000 < kept == page._cached <= 20_000


def upload(session, name, size=1):
    path = scratch_file()
    path.write_bytes(bytes(size))
    session.upload(name, path)


def idle(session):
    """Wait for what was submitted before."""
    session._worker.submit(lambda: None).result(30)


def kinds(session):
    return [block['kind'] for block in session.since(0)]


def test_a_question_that_is_refused_leaves_the_session_as_it_was(session, analyst, monkeypatch):
    monkeypatch.setattr('lagent.ui.session._MOST_WAITING', 2)
    upload(session, 'a')
    upload(session, 'b')
    with pytest.raises(Refused, match='Too much is waiting'):
        session.ask('first')
    assert not session.is_answering
    assert session.title == ''
    assert Question.kind not in kinds(session)
    analyst.may_go_on.set()
    idle(session)
    session.ask('second')
    idle(session)
    assert session.title == 'second'
    assert not session.is_answering
    assert kinds(session).count('question') == 1
