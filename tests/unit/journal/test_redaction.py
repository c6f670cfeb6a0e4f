"""What is a secret, what is none, and that nothing of a secret reaches a journal's file."""

import base64
import json
import logging
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.actions import ActionExecutor, tool_api
from lagent.agents import Agent
from lagent.effects import Effect, perform
from lagent.errors import RunSuspended
from lagent.flow import run as drive
from lagent.journal import Redactor, SqliteJournal, edit, record, reject
from lagent.journal.approval import Approval
from lagent.journal.codec import Decoder, Encoder, written
from lagent.journal.errors import NotRecordable
from lagent.llms import ScriptedModel
from lagent.schema import AgentMessage, FunctionCall
from lagent.trace_content import redacted_json

CLEAN = Redactor(environ={})
LOST = '[redacted]'


def trip(value: Any, redactor: Redactor = CLEAN) -> Any:
    encoder = Encoder(redactor)
    tree = json.loads(written(encoder.encode(value)))
    return Decoder(encoder.blobs.__getitem__).decode(tree)


SECRET = [
    'password', 'Password', 'passwd', 'new_password2', 'passwords', 'PGPASSWORD', 'userPassword',
    'passphrase', 'DB_PASS', 'smtp_pass', 'MYSQL_PWD', 'pw', 'secret', 'clientSecret',
    'client_secret', 'client-secret', 'secretAccessKey', 'AWSSecretAccessKey', 'api_key', 'apiKey',
    'apikey', 'X-Api-Key', 'OPENAI_API_KEY', 'openai_key', 'private_key', 'SECRET_KEY', 'token',
    'access_token', 'accessToken', 'refreshToken', 'authToken', 'id_token', 'HF_TOKEN',
    'X-Amz-Security-Token', 'credentials', 'credential', 'GCP_CREDENTIALS', 'Authorization',
    'Proxy-Authorization', 'Cookie', 'Set-Cookie', 'cookies',
]  # fmt: skip
NO_SECRET = [
    'primary_key', 'sort_key', 'foreign_key', 'partition_key', 'account_key', 'public_key', 'key',
    'keys', 'keyword', 'monkey', 'next_page_token', 'nextPageToken', 'page_token', 'next_token',
    'continuation_token', 'pad_token', 'eos_token', 'max_tokens', 'tokens', 'token_ids',
    'prompt_tokens', 'token_count', 'tokenizer', 'secretary', 'pass', 'first_pass', 'bypass',
    'pwd', 'PWD', 'OLDPWD', 'compass', 'author', 'authorization_url', 'cookie_policy',
    'password_policy', 'x' * 10_000 + '_token',
]  # fmt: skip


@pytest.mark.parametrize('name', SECRET)
def test_what_has_the_name_of_a_secret_is_not_written(name: str) -> None:
    assert trip({name: 'x', 'other': 'x'}) == {name: LOST, 'other': 'x'}
    assert trip({1: 1, name: 'x'}) == {1: 1, name: LOST}
    text = json.dumps({name: 'x', 'other': 'x'})
    assert json.loads(CLEAN.text(text)) == {name: LOST, 'other': 'x'}


@pytest.mark.parametrize('name', NO_SECRET)
def test_what_only_looks_like_a_secret_is_kept(name: str) -> None:
    value = {name: 'customer_id', 'n': {name: 12345}}
    assert trip(value) == value
    assert CLEAN.text(json.dumps(value)) == json.dumps(value)


@pytest.mark.parametrize(
    ('value', 'left'),
    [
        (b'x', LOST.encode()),
        (91234567890, LOST),
        (['x', ['y', 7]], [LOST, [LOST, 7]]),
        (('x',), (LOST,)),
        ({'user': 'x', 'since': 2024, 'on': True}, {'user': LOST, 'since': LOST, 'on': True}),
        ('', ''),
        (None, None),
        (False, False),
        (3, 3),
        ([], []),
        ({'type': 'string', 'minLength': 2000}, {'type': 'string', 'minLength': 2000}),
    ],
)
def test_a_secret_is_hidden_whatever_it_is_in(value: Any, left: Any) -> None:
    assert trip({'password': value}) == {'password': left}
    assert trip({'credentials': value, 2: 2}) == {
        'credentials': value if value == 91234567890 else left,  # of a plural: a count
        2: 2,
    }


def test_what_contains_itself_is_refused_at_once() -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    with pytest.raises(NotRecordable, match='nested'):
        trip({'password': endless})


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(['a', 'token', 'type', 'clientSecret', 'tokens', 'cookies', 'n b']),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(plain, st.sampled_from([None, 2]), st.booleans())
def test_json_in_a_text_is_redacted_to_what_the_value_is(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    """Else a program that parses a reply again would ask for something else than is recorded."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert json.loads(CLEAN.text(text)) == trip(value)
    within = json.dumps({'arguments': text})
    assert json.loads(json.loads(CLEAN.text(within))['arguments']) == trip(value)


@given(plain)
def test_redacting_again_changes_nothing(value: Any) -> None:
    for text in (json.dumps(value), repr(value), json.dumps(json.dumps(value))):
        once = CLEAN.text(text)
        assert CLEAN.text(once) == once
    assert trip(trip(value)) == trip(value)


@pytest.mark.parametrize(
    'text',
    [
        "KeyError({'password': 'HIDE'})",
        '{"password": b\'HIDE\'}',
        r'{"arguments": "{\"password\": \"HI\\\"DE\"}"}',
        'password = "HIDE-HIDE"',
        'connect(host="db", password="HIDE-HIDE")',
        'PGPASSWORD=HIDE-HIDE-1 psql',
        "-H 'X-Api-Key: HIDE-HIDE-1'",
        'Authorization: Basic HIDE1234',
        'Authorization: Bearer HIDE1234HIDE',
        'Proxy-Authorization: Basic HIDE1234',
        'Cookie: sid=HIDE; other=HIDE\nHost: x',
        'Set-Cookie: sid=HIDE',
        'postgres://user:HIDE@host/db',
        'https://:HIDE@host:8080/a@b',
        'https://host/?a=1&api_key=HIDE&b=2',
        'https://host/?accessToken=HIDE#top',
        'https://host/?X-Amz-Signature=HIDE&a=1',
        '{"credentials": {"user": "HIDE", "ids": [123456, "HIDE"]}, "a": "b"',
        '{"password": "HIDE and the text ends',
    ],
)
def test_what_a_text_names_is_hidden(text: str) -> None:
    clean = CLEAN.text(text)
    assert 'HI' not in clean
    assert LOST in clean
    assert '123456' not in clean
    assert CLEAN.text(clean) == clean


@pytest.mark.parametrize(
    'text',
    [
        'token = get_token()\nif token == "abcdefghij": pass',
        'def login(user: str, password: str = None, token: str = ""): ...',
        'api_key=os.environ["OPENAI_API_KEY"]',
        'API_KEY=settings.SECRETS_API_KEY',
        'f"postgresql://{user}:{password}@{host}/db"',
        'headers = {"Authorization": f"Bearer {token}", "token": self.token}',
        'password = "${DB_PASSWORD}"; token = "<your token here>"',
        'df.sort_values(key="customer", primary_key="customer_id")',
        'The token: a word or a part of it. Cookie: a small file. Password: required.',
        'http://localhost:8080/users/@me and me@example.org at 12:30',
        'https://host/?page_token=abcdefghij&key=name',
        '{"usage": {"prompt_tokens": 12345, "max_tokens": 4096}, "token_ids": [15000, 20000]}',
        '{"properties": {"password": {"type": "string", "description": "of the user"}}}',
        'password = """\nnot one line\n"""',
    ],
)
def test_code_and_prose_stay_as_they_are(text: str) -> None:
    assert CLEAN.text(text) == text


VALUE = 'ab"cd\\ef\nghäj/+?>~-9911'


def forms() -> list[str]:
    data = VALUE.encode()
    return [
        VALUE,
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        json.dumps(json.dumps(VALUE)),
        repr(VALUE),
        quote(VALUE),
        quote(VALUE, safe=''),
        *(
            base64.b64encode(b'x' * n + data + b'y' * m).decode()
            for n in range(4)
            for m in range(4)
        ),
        *(base64.urlsafe_b64encode(b'x' * n + data).decode() for n in range(3)),
    ]


@pytest.mark.parametrize('name', ['MY_API_KEY', 'PGPASSWORD', 'DB_PASS', 'SORT_KEY', 'MYSQL_PWD'])
def test_a_secret_of_the_environment_is_found_in_each_form(name: str) -> None:
    redactor = Redactor(environ={name: VALUE, 'PWD': '/home/somebody', 'HOME': '/home/somebody'})
    for form in forms():
        clean = redactor.text(f'<{form}>')
        assert LOST in clean, form
        assert len(clean) <= len(LOST) + 12, clean
        assert redactor.text(clean) == clean
    assert redactor.text('/home/somebody') == '/home/somebody'
    for encoding in ('utf-8', 'utf-16-le', 'utf-16-be', 'utf-32-le', 'utf-32-be'):
        assert redactor.data(b'<' + VALUE.encode(encoding) + b'>') == b'<' + LOST.encode() + b'>'


def test_passwords_within_variables_are_found() -> None:
    redactor = Redactor(
        environ={
            'DATABASE_URL': 'postgres://me:p%40ssw0rd%21@db/x',
            'MY_DSN': 'host=db password=tiger-77 dbname=x',
        }
    )
    assert redactor.text('p%40ssw0rd%21 p@ssw0rd! tiger-77 db') == f'{LOST} {LOST} {LOST} db'


def test_what_is_redacted_to_the_same_stays_apart() -> None:
    first, second = 'sk-' + 'a' * 20, 'sk-' + 'b' * 20
    value = trip({first: 1, second: 2, LOST: 3, 'x': 4})
    assert list(value.values()) == [1, 2, 3, 4]
    assert trip(value) == value
    assert list(trip({first: 1, second: 2, 3: 3}).values()) == [1, 2, 3]
    assert len(trip({first, second, 'x'})) == 3


@pytest.mark.parametrize('kind', ['names', 'names of many kinds', 'members'])
def test_many_that_are_redacted_to_the_same_cost_no_more_each(kind: str) -> None:
    secrets = [f'sk-{number:020}' for number in range(10_000)]
    value: Any = dict.fromkeys(secrets, 1)
    if kind == 'names of many kinds':
        value[0] = 1
    started = time.process_time()
    tree = Encoder(CLEAN).encode(set(secrets) if kind == 'members' else value)
    assert time.process_time() - started < 5.0  # half a minute if each looked at all others
    names = {
        'names': lambda: [*tree],
        'names of many kinds': lambda: [pair[0] for pair in tree['v'][:-1]],
        'members': lambda: tree['v'],
    }[kind]()
    assert names == [LOST, *(f'{LOST} {number}' for number in range(2, 10_001))]


HOSTILE = [
    'password="', "'password': '", '"token": [', 'token: \\', '://a:', '?token=', '\\' * 50 + '"',
    'cookie: a=', 'authorization: basic ', '"token": 9', 'token   ', 'key:key=', 'A_KEY=',
    '"' + 'a' * 90 + 'token":', '-----BEGIN PRIVATE KEY-----', '"token": {"token": {',
    'eyJaaaaaaaaaaaa.', '"token": "\\', 'TOKEN=', 'cookie= ',
]  # fmt: skip


@pytest.mark.parametrize('piece', HOSTILE)
def test_the_cost_grows_with_the_length_alone(piece: str) -> None:
    redactor = Redactor(environ={'A_KEY': 'x' * 40})
    took = []
    for size in (100_000, 800_000):
        text = piece * (size // len(piece)) + '$'
        started = time.process_time()
        redactor.text(text)
        took.append(time.process_time() - started)
    assert took[1] < 40 * took[0] + 1.0  # eight times; 64 times if every part looked at all others


def test_ten_megabytes_of_one_thing() -> None:
    for text in ('"token": "' + '\\' * 10**7, 'a' * 10**7 + 'token="abcdefghi"', 'x' * 10**7):
        started = time.process_time()
        CLEAN.text(text)
        assert time.process_time() - started < 10.0


@tool_api
def fetch(url: str, headers: dict, body: dict) -> dict:
    """Fetch.

    Args:
        url (str): where.
        headers (dict): of the request.
        body (dict): of the request.
    """
    return {'password': 'result-hide-1', 'sid': 'Set-Cookie: sid=result-hide-2'}


@tool_api
def fails(x: str) -> str:
    """Fail.

    Args:
        x (str): anything.
    """
    raise KeyError({'password': 'error-hide-1'})


class IntentEncoder(Agent):
    def forward(self, *message: Any, **kwargs: Any) -> str:
        tools = ActionExecutor([fetch, fails])
        arguments = {
            'url': 'https://u:url-hide-1@h/?api_key=url-hide-2',
            'headers': {'Cookie': 'sid=head-hide-1', 'Proxy-Authorization': 'Basic head-hide-2'},
            'body': {
                'password': ['body-hide-1'],
                'token': b'body-hide-2',
                'clientSecret': 'hide-3',
            },
        }
        tools(AgentMessage(content=FunctionCall('fetch', arguments)))
        tools(AgentMessage(content=FunctionCall('fails', {'x': json.dumps({'pw': 'json-hide-1'})})))
        return 'done'


def test_nothing_of_them_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('GCP_CREDENTIALS', '{\n "type": "svc",\n "id": "title-hide-1"\n}')
    question = 'use {\n "type": "svc",\n "id": "title-hide-1"\n} here'
    IntentEncoder(ScriptedModel([])).run(question, run_id='r', journal=tmp_path / 'runs.db')
    raw = b''.join(path.read_bytes() for path in tmp_path.iterdir())
    assert b'use [redacted] here' in raw  # the title
    assert b'hide' not in raw
    for hidden in ('body-hide-2', 'head-hide-2'):
        assert base64.b64encode(hidden.encode())[:-4] not in raw


def test_what_comes_back_without_its_secrets_is_told(
    journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    effect = Effect('tool', 'fetch', {'url': 'x'}, idempotent=True)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), record(journal, 'r'):
            drive(perform(effect, lambda: {'user': 'me', 'login': {'password': 'x' * 5000}}))
            1 / 0  # noqa: B018 - the run is tried again
    [told] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert told.startswith("Run 'r': effect 1 (tool fetch) is given back with [redacted] in ")
    assert 'login.password' in told


def test_an_edit_that_would_run_without_its_secret_is_refused(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('X_API_KEY', 'supersecretkey99')
    known = Redactor(values=['my-own-secret-1'])
    effect = Effect('tool', 'shell', {'x': 'ls'}, edited=lambda payload: iter(()))
    approval = Approval(tools=('shell',))
    with pytest.raises(RunSuspended), record(journal, 'r', approval=approval):
        drive(perform(effect, lambda: 1))
    for wrong in ('curl supersecretkey99', 'curl my-own-secret-1', f'curl {LOST}' + 'x' * 5000):
        with pytest.raises(NotRecordable, match='Nothing was decided'):
            edit(journal, 'r', {'x': wrong}, redactor=known)
    reject(journal, 'r', 'my-own-secret-1 is mine', redactor=known)
    body = journal.records('r')[-1].body
    assert body['reason'] == f'{LOST} is mine'


def test_spans_of_what_no_journal_keeps_are_clean() -> None:
    class Connection:
        pass

    told = json.loads(redacted_json({'password': 'hide', 'c': Connection(), 'n': 1}, CLEAN))
    assert told['password'] == LOST
    assert told['n'] == 1
