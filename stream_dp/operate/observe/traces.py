"""The traces of a run: the list of all their spans and attributes, and the way to a collector.

Rules: a span or attribute that is not in `SPANS` is not sent; it is a bug and raises. Traces contain no content of
a record, no count, no offset, no lag, no text of an error, and of an address only its route. The begin and duration
of a span still reveal the load: traces are NOT PRIVATE, and go only where the operator sends them. No trace context
is taken from a request, and none is passed on. OpenTelemetry is loaded only if traces were asked for.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stream_dp import __version__
from stream_dp.engine.ports import Note, Spans, untold
from stream_dp.errors import StreamDPError, UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

LAST_S = 1.0
_BASE, _WHOLE = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_DEFAULT = "http://localhost:4318"
_FORM = "http/protobuf"
_log = logging.getLogger(__name__)
_LIBRARY = logging.getLogger("opentelemetry")


@asynccontextmanager
async def traced(tell: Callable[[str], None] | None, pipeline: str) -> AsyncIterator[Spans]:
    """Send the spans of a run's work to the collector that OpenTelemetry's variables name; yield the tracer.

    `tell` (None: no traces) receives the address of the collector. A variable alone switches nothing on, because a
    cluster may set it for every program in it. A thread of its own sends the spans from a queue that drops what does
    not fit, so a collector that hangs or is gone costs only spans; the end of the run waits `LAST_S` at most.
    """
    if tell is None:
        yield untold
        return
    endpoint = _endpoint()
    try:
        provider = _provider(endpoint, shown := _without_secrets(endpoint), pipeline)
    except ImportError:
        raise UsageError("traces need OpenTelemetry: pip install 'stream_dp[otel]'") from None
    tell(shown)
    with _unheard():
        try:
            yield Traces(provider.get_tracer("stream_dp", __version__))
        finally:
            ending = Thread(target=provider.shutdown, name="the last traces", daemon=True)
            ending.start()
            await asyncio.to_thread(ending.join, LAST_S)


def _provider(endpoint: str, shown: str, pipeline: str) -> "TracerProvider":
    """Return a provider that sends this pipeline's spans to `endpoint`, which messages call `shown`.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the values set here. No global provider is set, so spans of
    other libraries and of the surrounding program are not sent.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    class Sender(OTLPSpanExporter):
        """Reports an unreachable collector once, until it is reached again."""

        reached = True

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            before, self.reached = self.reached, result is SpanExportResult.SUCCESS
            if before and not self.reached:
                _log.warning("traces do not reach %s; the engine continues without traces", shown)
            return result

    own = {
        "service.name": "stream-dp", "service.version": __version__, "stream_dp.pipeline": pipeline,
    }  # fmt: skip
    resource = Resource(own).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Sender(endpoint=endpoint)))
    return provider


@contextmanager
def _unheard() -> Iterator[None]:
    """Discard the SDK's log messages: a collector's answer has no place in a log, and `_provider` warns itself."""
    nowhere, propagated = logging.NullHandler(), _LIBRARY.propagate
    _LIBRARY.addHandler(nowhere)
    _LIBRARY.propagate = False
    try:
        yield
    finally:
        _LIBRARY.propagate = propagated
        _LIBRARY.removeHandler(nowhere)


def _endpoint() -> str:
    """Return the address from OpenTelemetry's variables; raise UsageError if they name none for OTLP over HTTP."""
    form = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), _FORM)
    if form != _FORM:
        raise UsageError(f"--traces: sends OTLP as {_FORM} only; unset {_PROTOCOLS[1]} ({form})")
    base = os.environ.get(_BASE) or _DEFAULT
    endpoint = os.environ.get(_WHOLE) or f"{base.removesuffix('/')}/v1/traces"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--traces: {_BASE} must be an address like {_DEFAULT}")
    return endpoint


def _without_secrets(endpoint: str) -> str:
    """Return the address without the secrets that it may hold.

    >>> _without_secrets("https://ann:secret@collector:4318/v1/traces?key=secret")
    'https://collector:4318/v1/traces'
    """
    parts = urlsplit(endpoint)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


SPANS: Mapping[str, frozenset[str]] = {
    "recovery": frozenset(),
    "lease": frozenset(),
    "tick": frozenset({"tick"}),
    "commit": frozenset(),
    "publish": frozenset({"tick"}),
    "query": frozenset(),
    "answer": frozenset(),
    "request": frozenset({"method", "route", "status"}),
}
"""Each kind of span with its allowed attributes; a request is named by its method and route."""
NAMED: Mapping[str, str] = {
    "tick": "stream_dp.tick",
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
}
"""The exported name of each attribute; HTTP names follow OpenTelemetry's conventions."""
OUTCOME, ERROR = "stream_dp.outcome", "error.type"
"""The outcome of a span (`done`, `failed`, `cancelled`), and the class of its error."""


class UnlistedSpan(StreamDPError):
    """A bug: the program tried to trace a span or an attribute that is not on the list. Nothing was sent."""


class Traces:
    """Sends spans of an engine's work and of page requests to `tracer`. It implements `engine.ports.Spans`."""

    def __init__(self, tracer: "Tracer") -> None:
        self._tracer = tracer

    @contextmanager
    def __call__(self, name: str, /, **attributes: str | int) -> Iterator[Note]:
        """Open a span as a child of the current one; raise UnlistedSpan if it, or an attribute, is not in `SPANS`."""
        from opentelemetry.trace import SpanKind, StatusCode

        kind = SpanKind.SERVER if name == "request" else SpanKind.INTERNAL
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=_listed(name, attributes),
            record_exception=False, set_status_on_exception=False,
        ) as span:  # fmt: skip

            def note(**more: str | int) -> None:
                span.set_attributes(_listed(name, more))
                if "status" in more:
                    span.update_name(f"{attributes['method']} {more.get('route', '')}".rstrip())

            try:
                yield note
            except asyncio.CancelledError:
                span.set_attribute(OUTCOME, "cancelled")
                raise
            except BaseException as error:
                span.set_attributes({OUTCOME: "failed", ERROR: type(error).__name__})
                span.set_status(StatusCode.ERROR)
                raise
            span.set_attribute(OUTCOME, "done")


def _listed(name: str, attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return the attributes under their exported names."""
    allowed = SPANS.get(name)
    if allowed is None or attributes.keys() - allowed:
        raise UnlistedSpan("only spans and attributes that are listed in `SPANS` are sent")
    return {NAMED[key]: value for key, value in attributes.items()}
