"""Secrets are taken out of what is written, before it is written and before it is digested.

Nothing that is derived from a secret reaches the journal, not even a digest, which could be used to
try out guesses. The same text is always redacted to the same text, and a redacted text to itself:
so a run resumes although its journal does not know the secret, also after it was replaced.
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping

REDACTED = '[redacted]'

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
    ('eyJ', r'\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*'),  # JSON web tokens
    ('earer ', r'(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{12,}'),
    (
        'PRIVATE KEY-----',
        r'-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)',
    ),
)

_SECRET_NAME = re.compile(
    r'(?:^|[_-])(?:(?:api|access|private|secret)[_-]?key|token|secret|passw(?:or)?d|credentials?)$'
    r'|^authorization$|_key$',
    re.IGNORECASE,
)
# Characters: of a secret, as shorter ones occur in texts by chance; of texts that are remembered;
# and how many of these.
_LEAST, _SHORT, _REMEMBERED = 8, 2_048, 4_096


@functools.lru_cache(1_024)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


class Redactor:
    """Takes secrets out of texts.

    Args:
        values: secrets that are known, wherever they appear.
        rules: pairs of a text that must occur and a regular expression of what is replaced.
        environ: where values of variables whose names end like those of secrets
            (``_KEY``, ``TOKEN``, ``SECRET``, ``PASSWORD``) are secrets too.

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
        named = [value for name, value in environ.items() if self.is_secret_name(name)]
        known = {value for value in [*values, *named] if len(value) >= _LEAST}
        # Longer ones first: one secret may be part of another.
        self._values = sorted(known, key=lambda value: (-len(value), value))
        self._rules = [(mark, re.compile(pattern, re.DOTALL)) for mark, pattern in rules]
        # A conversation is written again and again, with one message more each time.
        self._short = functools.lru_cache(_REMEMBERED)(self._clean)

    def is_secret_name(self, name: str) -> bool:
        """Whether what has this name is a secret.

        Args:
            name: of a variable, a field or a header.

        Returns:
            True for names such as ``OPENAI_API_KEY``, ``password`` and ``Authorization``.
        """
        return _is_secret_name(name)

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
        for mark, pattern in self._rules:
            if mark in text:
                text = pattern.sub(REDACTED, text)
        return text

    def data(self, data: bytes) -> bytes:
        """Bytes without the secrets that are known by their value.

        Args:
            data: any bytes.

        Returns:
            The same bytes with each of them replaced.
        """
        for value in self._values:
            data = data.replace(value.encode('utf-8', 'surrogatepass'), REDACTED.encode())
        return data
