"""OpenTelemetry traces and metrics of agents, by the semantic conventions for generative AI.

A call of an agent is a span ``invoke_agent NAME``; below it are ``chat MODEL`` for each model call
and ``execute_tool NAME`` for each tool call and each piece of code, and what tools and models do
below those. Where nobody asks for traces, OpenTelemetry is not imported.

The conventions are those of open-telemetry/semantic-conventions-genai (status: development). What
they have no name for is called ``lagent.*``.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from lagent._extras import require
from lagent.context import RunContext
from lagent.effects import Effect
from lagent.errors import RunSuspended
from lagent.flow import ConsumerLeft, Flow
from lagent.journal.redact import Redactor
from lagent.schema import ActionReturn, ActionStatusCode
from lagent.trace_content import input_messages, output_messages, redacted_json
from lagent.version import __version__
from lagent.watch import watch_everywhere, watched_by

T = TypeVar('T')

# Characters: of the description of an error, and of a name, which a model may have made up.
_LONGEST_ERROR, _LONGEST_NAME = 1_000, 100
_CLASS_NAME = re.compile(r'[\w.]{1,100}', re.ASCII)

# Boundaries that the conventions give for the two histograms: tokens, and seconds.
_TOKENS = [4**exponent for exponent in range(14)]
_SECONDS = [0.01 * 2**exponent for exponent in range(14)]


@contextmanager
def traced(
    tracer_provider: Any = None,
    meter_provider: Any = None,
    *,
    content: bool = False,
    redactor: Redactor | None = None,
) -> Iterator[None]:
    """Trace what the ``with`` block does.

    Args:
        tracer_provider: where spans go; OpenTelemetry's global one by default.
        meter_provider: where metrics go; OpenTelemetry's global one by default.
        content: also record what models are asked and say, and what tools and code are given and
            give, without secrets. It may be long, and personal.
        redactor: takes the secrets out; one with the journal's rules by default.

    Raises:
        ExtraMissing: OpenTelemetry is not installed (extra ``otel``).
    """
    with watched_by(_Tracing(tracer_provider, meter_provider, content, redactor)):
        yield


def instrument(
    tracer_provider: Any = None,
    meter_provider: Any = None,
    *,
    content: bool = False,
    redactor: Redactor | None = None,
) -> Callable[[], None]:
    """Trace the whole process from now on, whatever thread or task something is done in.

    Args:
        tracer_provider: see `traced`.
        meter_provider: see `traced`.
        content: see `traced`.
        redactor: see `traced`.

    Returns:
        A function that ends it.

    Raises:
        ExtraMissing: OpenTelemetry is not installed (extra ``otel``).
    """
    return watch_everywhere(_Tracing(tracer_provider, meter_provider, content, redactor))


class _Tracing:
    """The watcher that makes spans."""

    def __init__(self, tracers: Any, meters: Any, content: bool, redactor: Redactor | None) -> None:
        self._trace = require('opentelemetry.trace', 'otel')
        self._context = require('opentelemetry.context', 'otel')
        self._tracer = self._trace.get_tracer('lagent', __version__, tracers)
        self._key = self._context.create_key('lagent-seen')
        self._measures = _Measures(meters)
        self._content = content
        self._redactor = redactor or Redactor()

    def call(self, agent: Any, context: RunContext, flow: Flow[T]) -> Flow[T]:
        name = agent.name or type(agent).__name__
        attributes = {
            'gen_ai.operation.name': 'invoke_agent',
            'gen_ai.provider.name': getattr(agent.llm, 'provider', '') or 'lagent',
            'gen_ai.agent.name': name,
            **_run_attributes(context),
        }
        if agent.description:
            attributes['gen_ai.agent.description'] = str(agent.description)
        kind = self._trace.SpanKind.INTERNAL
        with self._span(f'invoke_agent {name}', kind, attributes) as seen:
            answer = yield from flow
            if getattr(answer, 'type', None) == 'limit':
                seen.span.set_attribute('lagent.ended', 'limit')
            return answer

    def effect(self, effect: Effect, context: RunContext, flow: Flow[T]) -> Flow[T]:
        is_model = effect.kind == 'model'
        attributes = _model_attributes(effect) if is_model else _tool_attributes(effect)
        kind = self._trace.SpanKind.CLIENT if is_model else self._trace.SpanKind.INTERNAL
        name = attributes['gen_ai.request.model' if is_model else 'gen_ai.tool.name']
        measured = dict(attributes)
        operation = attributes['gen_ai.operation.name']
        with self._span(f'{operation} {name}', kind, attributes | _run_attributes(context)) as seen:
            span = seen.span
            shows_content = self._content and span.is_recording()
            if shows_content:
                span.set_attributes(self._asked(effect))
            started = time.monotonic()
            try:
                result = yield from flow
            except BaseException as error:
                if is_model and not seen.is_replayed:
                    measured['error.type'] = name_of(type(error))
                    self._measures.duration(time.monotonic() - started, measured)
                raise
            if is_model:
                self._end_model(seen, result, time.monotonic() - started, measured)
            elif (failure := _failure(result)) is not None:
                span.set_attribute('error.type', failure)
                span.set_status(self._trace.StatusCode.ERROR)
            if shows_content:
                span.set_attributes(self._given(effect, result))
            return result

    def replayed(self, effect: Effect) -> None:
        del effect
        seen = self._context.get_value(self._key)
        seen.is_replayed = True
        seen.span.set_attribute('lagent.replayed', True)

    def _end_model(
        self, seen: '_Seen', result: Any, elapsed: float, measured: dict[str, Any]
    ) -> None:
        span = seen.span
        replies = result if isinstance(result, list) else [result]
        usages = [usage for reply in replies if (usage := getattr(reply, 'usage', None))]
        spent = {
            'input': sum(usage.prompt_tokens for usage in usages),
            'output': sum(usage.completion_tokens for usage in usages),
        }
        reasons = [reason for reply in replies if (reason := _reason(reply))]
        if reasons:
            span.set_attribute('gen_ai.response.finish_reasons', reasons)
        if usages:
            span.set_attribute('gen_ai.usage.input_tokens', spent['input'])
            span.set_attribute('gen_ai.usage.output_tokens', spent['output'])
            for name, field in (('cache_read.input', 'cached'), ('reasoning.output', 'reasoning')):
                tokens = sum(getattr(usage, f'{field}_tokens', 0) for usage in usages)
                if tokens:
                    span.set_attribute(f'gen_ai.usage.{name}_tokens', tokens)
        if not seen.is_replayed:
            self._measures.duration(elapsed, measured)
            if usages:
                self._measures.tokens(spent, measured)

    def _asked(self, effect: Effect) -> dict[str, str]:
        if effect.kind == 'model':
            messages = redacted_json(input_messages(effect.payload), self._redactor)
            return {'gen_ai.input.messages': messages}
        arguments = redacted_json(effect.payload, self._redactor)
        return {'gen_ai.tool.call.arguments': arguments}

    def _given(self, effect: Effect, result: Any) -> dict[str, str]:
        if effect.kind == 'model':
            messages = redacted_json(output_messages(result), self._redactor)
            return {'gen_ai.output.messages': messages}
        shown = result.text if effect.kind == 'kernel' else result
        return {'gen_ai.tool.call.result': redacted_json(shown, self._redactor)}

    @contextmanager
    def _span(self, name: str, kind: Any, attributes: dict[str, Any]) -> Iterator['_Seen']:
        text = self._redactor.text
        told = {k: text(v) if isinstance(v, str) else v for k, v in attributes.items()}
        span = self._tracer.start_span(text(name), kind=kind, attributes=told)
        seen = _Seen(span)
        inside = self._context.set_value(self._key, seen, self._trace.set_span_in_context(span))
        token = self._context.attach(inside)
        try:
            yield seen
        except (ConsumerLeft, GeneratorExit):
            span.set_attribute('lagent.ended', 'abandoned')
            raise
        except RunSuspended:
            span.set_attribute('lagent.ended', 'suspended')
            raise
        except BaseException as error:
            words = self._redactor.text(str(error))[:_LONGEST_ERROR]
            span.set_attribute('error.type', name_of(type(error)))
            span.set_status(self._trace.StatusCode.ERROR, words)
            raise
        finally:
            # An abandoned stream is ended by the collector, in whatever context that runs.
            if self._context.get_value(self._key) is seen:
                self._context.detach(token)
            span.end()


@dataclass(slots=True)
class _Seen:
    """A span, and whether what it shows was done before."""

    span: Any
    is_replayed: bool = False


class _Measures:
    """The metrics of model calls."""

    def __init__(self, meters: Any) -> None:
        metrics = require('opentelemetry.metrics', 'otel')
        meter = metrics.get_meter('lagent', __version__, meters)
        self._tokens = meter.create_histogram(
            'gen_ai.client.token.usage',
            unit='{token}',
            description='Number of input and output tokens used.',
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._duration = meter.create_histogram(
            'gen_ai.client.operation.duration',
            unit='s',
            description='GenAI operation duration.',
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def tokens(self, spent: dict[str, int], attributes: dict[str, Any]) -> None:
        for kind, count in spent.items():
            self._tokens.record(count, attributes | {'gen_ai.token.type': kind})

    def duration(self, seconds: float, attributes: dict[str, Any]) -> None:
        self._duration.record(seconds, attributes)


def name_of(kind: type) -> str:
    """What an exception's class is called in ``error.type``.

    Args:
        kind: the class.

    Returns:
        Its qualified name; of a built-in one the name alone.
    """
    return (
        kind.__qualname__
        if kind.__module__ == 'builtins'
        else (f'{kind.__module__}.{kind.__qualname__}')
    )


def _run_attributes(context: RunContext) -> dict[str, Any]:
    return {
        'gen_ai.conversation.id': str(context.session_id),
        'lagent.run.id': context.run_id,
    }


def _model_attributes(effect: Effect) -> dict[str, Any]:
    return {
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': effect.provider or 'lagent',
        'gen_ai.request.model': effect.name,
    }


def _tool_attributes(effect: Effect) -> dict[str, Any]:
    attributes = {
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.name': effect.name[:_LONGEST_NAME],
        'gen_ai.tool.type': 'function',
        'lagent.effect.kind': effect.kind,
    }
    if effect.call_id is not None:
        attributes['gen_ai.tool.call.id'] = effect.call_id
    return attributes


def _failure(result: Any) -> str | None:
    """What went wrong inside of a tool or a cell, which raise nothing."""
    outcome = getattr(result, 'outcome', None)
    if outcome is not None:
        if outcome == 'ok':
            return None
        error = getattr(result, 'error', None)
        return str(outcome) if outcome != 'error' or error is None else _class_name(error.name)
    if isinstance(result, ActionReturn) and result.state != ActionStatusCode.SUCCESS:
        return str(getattr(result.state, 'name', result.state))
    return None


def _class_name(name: str) -> str:
    """The name of an exception's class, which a kernel may have made up."""
    return name if _CLASS_NAME.fullmatch(name) else '_OTHER'


def _reason(reply: Any) -> str | None:
    reason = getattr(reply, 'finish_reason', None)
    return None if reason is None else str(reason)
