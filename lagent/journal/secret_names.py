"""Which names of variables, fields, headers and parameters are those of secrets.

A name that is wrongly taken for a secret's costs a value that a resumed run would have needed, one
that is missed costs a secret. So what has other uses as often, such as ``sort_key`` and
``next_page_token``, is not one, and what is missed can be given by its value.
"""

import functools
import re

LONGEST = 100  # characters of a name

TAIL = (
    r'(?:passw(?:or)?d|passphrase|passcode|pass|pwd|pw|secret|token|credential|authorization|cookie'
    r'|key)s?\d{0,2}'
)
"""What every name of a secret ends in, whatever its case; a regular expression."""

_ENDS = re.compile(TAIL + r'\Z', re.ASCII | re.IGNORECASE)
_WORD = re.compile(r'[A-Z]+(?![a-z])|[A-Z]?[a-z]+')

_USERS = (
    'admin|database|db|email|ftp|ldap|login|mail|mongo|mysql|pg|postgres|proxy|redis|root|smtp|ssh|'
    'user'
)
_KEYS = (
    'access|admin|aes|anthropic|api|auth|authentication|aws|azure|cipher|cohere|decryption|'
    'deepseek|deploy|encryption|gcp|gemini|google|gpg|groq|hf|hmac|huggingface|jwt|license|master|'
    'mistral|openai|openrouter|pgp|private|rsa|secret|signing|ssh|ssl|storage|stripe|subscription|'
    'tls|webhook'
)
_SECRET = re.compile(
    r'(?:passw(?:or)?d|passphrase|passcode)s?$'
    r'|(?:^|_|api|app|client|shared)secrets?$'
    r'|(?:^|_)credentials?$'
    r'|(?:^|_)authorization$'
    r'|(?:^|_)cookies?$'
    rf'|(?:^|_)(?:{_USERS})_?(?:pass|pwd|pw)$'
    r'|^pw$'
    r'|(?:^|_|access|api|auth|bearer|csrf|id|refresh|session|xsrf)token$'
    rf'|(?:^|_)(?:{_KEYS})_?key$'
)
# Before ``_token``: places in lists, pieces of text and other things that are no secret.
_PIECE = re.compile(
    r'(?:^|_)(?:'
    'audio|begin|bos|cached|cancel|cancellation|change|cls|completion|continuation|'
    'continue|cursor|decoder|each|end|eod|eos|eot|fim|first|image|input|last|lookahead|'
    'mask|max|min|new|next|num|output|pad|padding|page|pagination|paging|per|pred|'
    'predicted|prev|previous|prompt|reasoning|resume|scroll|sep|single|source|special|'
    'start|starting|stop|sub|sync|target|text|top|unk|unknown|video|word'
    r')_token$'
)
_VARIABLE = re.compile(r'_(?:key|pass|pat|pw|pwd|secret|token)$|^sshpass$')


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret.

    Args:
        name: of a variable, a field, a header or a parameter.

    Returns:
        True for names such as ``OPENAI_API_KEY``, ``clientSecret`` and ``Set-Cookie``.
    """
    return len(name) <= LONGEST and _is_secret(name)


def is_secret_variable(name: str) -> bool:
    """Whether a variable of the environment is a secret: names say more there than elsewhere.

    Args:
        name: of the variable.

    Returns:
        True for all secret names, and for whatever ends as ``SOME_KEY`` or ``SOME_PASS`` do.
    """
    return is_secret_name(name) or _VARIABLE.search(name.lower()) is not None


def is_plural(name: str) -> bool:
    """Whether a name is that of several secrets: a number is how many there are."""
    word = name.rstrip('0123456789').lower()
    return word.endswith('s') and not word.endswith('pass')


@functools.lru_cache(4_096)
def _is_secret(name: str) -> bool:
    if _ENDS.search(name) is None:
        return False
    words = '_'.join(_WORD.findall(name)).lower()
    return _SECRET.search(words) is not None and _PIECE.search(words) is None
