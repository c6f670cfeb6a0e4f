"""Secrets are taken out of what is written, before it is written and before it is digested.

Nothing that is derived from a secret reaches the journal, not even a digest, which could be used to
try out guesses. The same text is always redacted to the same text, and a redacted text to itself:
so a run resumes although its journal does not know the secret, also after it was replaced.
"""

import base64
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from lagent.journal.secret_fields import REDACTED, redact_fields
from lagent.journal.secret_names import is_secret_name, is_secret_variable

# Each rule is tried only on texts that contain its mark: a search for it costs next to nothing.
RULES: tuple[tuple[str, str], ...] = (
    ('sk-', r'\bsk-[A-Za-z0-9_-]{16,}'),  # OpenAI, Anthropic and those that follow them
    ('AKIA', r'\bAKIA[0-9A-Z]{16}\b'),  # AWS access key ids
    ('ASIA', r'\bASIA[0-9A-Z]{16}\b'),
    ('gh', r'\bgh[opsur]_[A-Za-z0-9]{30,}'),  # GitHub
    ('github_pat_', r'\bgithub_pat_[A-Za-z0-9_]{30,}'),
    ('glpat-', r'\bglpat-[A-Za-z0-9_-]{16,}'),  # GitLab
    ('xox', r'\bxox[abeoprs]-[A-Za-z0-9-]{10,}'),  # Slack
    ('AIza', r'\bAIza[A-Za-z0-9_-]{35}'),  # Google
    ('hf_', r'\bhf_[A-Za-z0-9]{30,}'),  # Hugging Face
    # JSON web tokens. Each is tried where its characters begin, or hostile text takes square time.
    ('eyJ', r'(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*'),
    ('earer ', r'(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{12,}'),
    (
        'PRIVATE KEY-----',
        r'-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)',
    ),
)

# Parts of URLs (RFC 3986, 3.2.1 and 3.4): the password of ``user:password@``, and signatures.
_USERINFO = re.compile(r'(://[^\s/:@?#"\'<>\\]{0,128}:)(?![{$<%])([^\s/@"\'<>\\]{1,256})(?=@)')
_SIGNATURE = re.compile(
    r'(?<=[?&])((?:x-amz-|x-goog-)?sig(?:nature)?=)[^\s&#"\'<>{}\\`]+', re.IGNORECASE
)
_DSN = re.compile(r'\b(?:password|pwd)\s{0,3}=\s{0,3}([^\s;]+)', re.IGNORECASE)
# Characters: of a secret, as shorter ones occur in texts by chance; of texts that are remembered;
# and how many of these.
_LEAST, _SHORT, _REMEMBERED = 8, 2_048, 4_096
_ENCODINGS = ('utf-8', 'utf-16-le', 'utf-16-be', 'utf-32-le', 'utf-32-be')


class Redactor:
    """Takes secrets out of texts.

    Args:
        values: secrets that are known, wherever they appear: as they are, as JSON, Python, URLs and
            Base64 write them.
        rules: pairs of a text that must occur and a regular expression of what is replaced.
        environ: where values of variables whose names are those of secrets, or end in ``_KEY``,
            ``_TOKEN``, ``_PASS`` and the like, are secrets too, and passwords in URLs.

    Attributes:
        own: how many values and how many rules it has beside what any redactor hides.
    """

    def __init__(
        self,
        values: Iterable[str] = (),
        rules: Iterable[tuple[str, str]] = RULES,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        values, rules = [*values], [*rules]
        long_enough = {value for value in values if len(value) >= _LEAST}
        self.own = len(long_enough), len({*map(tuple, rules)} - {*RULES})
        environ = os.environ if environ is None else environ
        known = {value for value in [*values, *_secrets_of(environ)] if len(value) >= _LEAST}
        forms = {form for value in known for form in _forms(value)}
        # Longer ones first: one secret may be part of another.
        self._values = sorted(forms, key=_longest_first)
        self._data = sorted({data for value in known for data in _data(value)}, key=_longest_first)
        self._rules = [(mark, re.compile(pattern, re.DOTALL)) for mark, pattern in rules]
        self._base64 = [(part, _around(part)) for value in known for part in _base64(value)]
        self._remember()

    def _remember(self) -> None:
        # A conversation is written again and again, with one message more each time.
        self._short = functools.lru_cache(_REMEMBERED)(self._clean)

    def __getstate__(self) -> dict[str, Any]:
        """All that it knows, secrets too, but not the texts that it has seen."""
        return {name: value for name, value in vars(self).items() if name != '_short'}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._remember()

    def is_secret_name(self, name: str) -> bool:
        """Whether what has this name is a secret.

        Args:
            name: of a variable, a field or a header.

        Returns:
            True for names such as ``OPENAI_API_KEY``, ``password`` and ``Authorization``.
        """
        return is_secret_name(name)

    def text(self, text: str) -> str:
        """A text without secrets.

        Args:
            text: any text.

        Returns:
            The same text with each secret replaced by ``[redacted]``.
        """
        return self._short(text) if len(text) <= _SHORT else self._clean(text)

    def _clean(self, text: str) -> str:
        for value in self._values:
            if value in text:
                text = text.replace(value, REDACTED)
        for mark, pattern in self._base64:
            if mark in text:
                text = pattern.sub(REDACTED, text)
        for mark, pattern in self._rules:
            if mark in text:
                text = pattern.sub(REDACTED, text)
        if '://' in text:
            text = _USERINFO.sub(rf'\1{REDACTED}', text)
        if '=' in text and ('?' in text or '&' in text):
            text = _SIGNATURE.sub(rf'\1{REDACTED}', text)
        return redact_fields(text)

    def data(self, data: bytes) -> bytes:
        """Bytes without the secrets that are known by their value.

        Args:
            data: any bytes.

        Returns:
            The same bytes with each of them replaced.
        """
        for value in self._data:
            data = data.replace(value, REDACTED.encode())
        return data


def _longest_first(value: str | bytes) -> tuple[int, str | bytes]:
    return -len(value), value


def _secrets_of(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if is_secret_variable(name):
            yield value
        if (found := _USERINFO.search(value)) is not None:
            yield found[2]
            yield unquote(found[2])
        if name.lower().endswith('dsn') and (found := _DSN.search(value)) is not None:
            yield found[1]


def _forms(value: str) -> Iterator[str]:
    """A secret as it is, and as it is written within other things."""
    yield value
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]
    yield repr(value)[1:-1]
    data = value.encode('utf-8', 'surrogatepass')
    yield quote(data, safe='')
    yield quote(data)
    yield quote_plus(data)


def _data(value: str) -> Iterator[bytes]:
    for form in _forms(value):
        yield form.encode('utf-8', 'surrogatepass')
    for encoding in _ENCODINGS:
        yield value.encode(encoding, 'surrogatepass')


def _base64(value: str) -> Iterator[str]:
    """What Base64 (RFC 4648) makes of a secret within other bytes: there are three ways."""
    data = value.encode('utf-8', 'surrogatepass')
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode('ascii')
        # The characters at both ends depend on the bytes beside it as well.
        whole = text[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
        yield whole
        yield whole.translate(_URL_SAFE)


_URL_SAFE = str.maketrans('+/', '-_')


def _around(part: str) -> re.Pattern[str]:
    """A part of Base64, and the characters beside it that hold the rest of the secret."""
    return re.compile(rf'[\w+/-]{{0,2}}{re.escape(part)}[\w+/-]{{0,2}}={{0,2}}')
