"""What is there to answer questions with: extras, keys, models, and what sandboxes can enforce."""

import asyncio
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx

from lagent.errors import ConfigError
from lagent.inline_images import protocol
from lagent.llms.errors import (
    AuthenticationFailed,
    BadReply,
    BadRequest,
    ModelTimeout,
    ModelUnavailable,
)
from lagent.llms.http_errors import shown_address
from lagent.llms.sdk_server import split_url
from lagent.settings import ENVIRONMENT, effective
from lagent.version import __version__

EXTRAS = {
    'anthropic': ['anthropic'],
    'hf': ['accelerate', 'gguf', 'torch', 'transformers'],
    'vllm': ['vllm'],
    'lmdeploy': ['lmdeploy'],
    'jinja': ['jinja2'],
    'tiktoken': ['tiktoken'],
    'local': ['ipykernel'],
    'yaml': ['yaml'],
    'web': ['charset_normalizer', 'ddgs', 'lxml', 'lxml_html_clean', 'trafilatura'],
    'notebook': ['nbformat', 'nh3'],
    'otel': ['opentelemetry'],
    'ppt': ['PIL', 'pptx'],
    'serve': ['fastapi', 'uvicorn'],
    'ray': ['ray'],
    'sql': ['sqlalchemy'],
    'ui': ['jinja2', 'latex2mathml', 'markdown_it', 'nh3', 'pygments', 'starlette', 'uvicorn'],
}
"""The modules that each extra brings."""

MODELS = [
    ('GPTAPI', 'OpenAI, and servers of its protocol', None),
    ('AnthropicAPI', 'Anthropic', 'anthropic'),
    ('SensenovaAPI', 'SenseNova', None),
    ('HFTransformerChat', 'local weights, in this process', 'hf'),
    ('VllmModel', 'local weights, in this process', 'vllm'),
    ('VllmServer', 'local weights, in a server of its own', 'vllm'),
    ('LMDeployPipeline', 'local weights, in this process', 'lmdeploy'),
    ('LMDeployClient', "LMDeploy's server", None),
    ('ScriptedModel', 'tests', None),
]
"""Name of each class of models, what it is for, and the extra that it needs."""

_KEYS = ('OPENAI_API_KEY', 'ANTHROPIC_API_KEY')
_SANDBOX_SECONDS = 60
_LARGEST = 4 << 20  # bytes of a list of models
_MOST = 1_000
_ADVICE = "Check that the base URL is that of the model's API; most of them end in /v1."
_ASK_SANDBOX = ('-m', 'sandbox', 'doctor', '--json')


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what was looked at.
        status: ``'ok'``; ``'warning'`` when something is not there that some need; ``'missing'``
            when no question can be answered without it.
        detail: what was found.
        hint: what to do about it; empty when there is nothing to do.
    """

    name: str
    status: Literal['ok', 'warning', 'missing']
    detail: str
    hint: str = ''


def examine() -> list[Finding]:
    """Look at this machine.

    Returns:
        What was found, without secrets. Nothing that is missing is an error.
    """
    return [_itself(), *_extras(), *_settings(), _model(), _terminal(), *_sandbox()]


def missing_modules(extra: str | None) -> list[str]:
    """What of an extra is not installed.

    Args:
        extra: its name; None for none.

    Returns:
        The names of the modules.
    """
    return [each for each in EXTRAS.get(extra or '', []) if importlib.util.find_spec(each) is None]


def served_models(base_url: str, key: str | None, seconds: float) -> list[str]:
    """Ask a server of the OpenAI protocol for its models (``GET /models``).

    Args:
        base_url: its address.
        key: the key for it.
        seconds: how long all of it may take.

    Returns:
        The names of the models, of the first 1,000.

    Raises:
        ConfigError: the address is none.
        ModelTimeout: it took longer.
        ModelUnavailable: the server could not be reached, or has trouble of its own.
        AuthenticationFailed: it does not accept the key.
        BadRequest: it refused otherwise.
        BadReply: it gave something else than a list of models.
    """
    return asyncio.run(_served_models(base_url, key, seconds))


async def _served_models(base_url: str, key: str | None, seconds: float) -> list[str]:
    split_url(base_url, 'http://localhost:8000/v1')
    where = shown_address(base_url)
    headers = {'Authorization': f'Bearer {key}'} if key else {}
    body = bytearray()
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(timeout=seconds) as client,
            client.stream('GET', f'{base_url.rstrip("/")}/models', headers=headers) as reply,
        ):
            status = reply.status_code
            async for piece in reply.aiter_bytes():
                body += piece
                if len(body) > _LARGEST:
                    raise BadReply(f'{where} gave a list longer than {_LARGEST:,} bytes. {_ADVICE}')
    except (TimeoutError, httpx.TimeoutException):
        raise ModelTimeout(
            f'{where} gave no list of models in {seconds:g} s. Give it longer with --deadline, or '
            'see whether the server is well.'
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # An address may hold a password, and a header the key.
        raise ModelUnavailable(
            f'No connection to {where} ({type(error).__name__}). Check the address, a proxy, and '
            'that the server runs.'
        ) from None
    if status in (401, 403):
        raise AuthenticationFailed(
            f'{where} answered with the status {status}. Check OPENAI_API_KEY, and that the key '
            'belongs to this server.',
            status=status,
        )
    if status >= 500:
        raise ModelUnavailable(
            f'{where} answered with the status {status}. The trouble is its own: try again later.',
            status=status,
        )
    if status != 200:
        raise BadRequest(f'{where} answered with the status {status}. {_ADVICE}', status=status)
    try:
        return [str(each['id']) for each in json.loads(body)['data'][:_MOST]]
    except (ValueError, TypeError, KeyError):
        words = f'{where} gave something else than a list of models. {_ADVICE}'
        raise BadReply(words) from None


def _itself() -> Finding:
    system = f'{platform.system()} {platform.machine()}'
    return Finding('lagent', 'ok', f'{__version__}, Python {platform.python_version()}, {system}')


def _extras() -> Iterator[Finding]:
    there = [name for name in EXTRAS if not missing_modules(name)]
    yield Finding('extras', 'ok', ', '.join(there) or 'none')
    if rest := [name for name in EXTRAS if name not in there]:
        hint = "pip install 'lagent-sandbox[NAME]' if you need one"
        yield Finding('extras that are not there', 'ok', ', '.join(rest), hint)


def _settings() -> Iterator[Finding]:
    try:
        for name, value, source in effective():
            yield Finding(f'setting: {name}', 'ok', f'{value} (from {source})')
    except ConfigError as error:
        yield Finding('settings', 'missing', str(error), 'correct the file')
    for name in _KEYS:
        if os.environ.get(name):
            yield Finding(name, 'ok', 'is set (never shown)')


def _model() -> Finding:
    try:
        settings = {name: value for name, value, _ in effective()}
    except ConfigError:
        settings = {}
    model, base_url = settings.get('model'), settings.get('base_url')
    if model and Path(model).is_dir():
        if missing := missing_modules('hf'):
            hint = "pip install 'lagent-sandbox[hf]'"
            return Finding('model', 'missing', f'{", ".join(missing)} not installed', hint)
        return Finding('model', 'ok', f'local weights in {model}')
    if base_url and model:
        return Finding('model', 'ok', f'{model} of {base_url}')
    if base_url:
        hint = f'set {ENVIRONMENT["model"][0]}; `lagent models` lists what the server has'
        return Finding('model', 'missing', 'a server, but no model is named', hint)
    for name, provider in zip(_KEYS, ('OpenAI', 'Anthropic'), strict=True):
        if os.environ.get(name):
            return Finding('model', 'ok', f'{model or "the default"} of {provider}')
    hint = 'set OPENAI_API_KEY or ANTHROPIC_API_KEY, or --base-url and --model, or --model FOLDER'
    return Finding('model', 'missing', 'none is named', hint)


def _terminal() -> Finding:
    how = protocol(os.environ)
    return Finding('images in the terminal', 'ok', how or 'none; plots are saved as files')


def _sandbox() -> Iterator[Finding]:
    """What `sandbox doctor` finds: in a process of its own, since an engine may not answer."""
    try:
        asked = subprocess.run(
            [sys.executable, *_ASK_SANDBOX],
            capture_output=True,
            timeout=_SANDBOX_SECONDS,
            check=False,
        )
        found: list[dict[str, Any]] = json.loads(asked.stdout)
    except subprocess.TimeoutExpired:
        detail = f'`sandbox doctor` did not end in {_SANDBOX_SECONDS} s'
        yield Finding('sandbox', 'missing', detail, 'is the Docker engine well?')
    except ValueError:
        yield Finding('sandbox', 'missing', '`sandbox doctor` failed', 'run it to see why')
    else:
        yield from (Finding(**{**each, 'name': f'sandbox: {each["name"]}'}) for each in found)
