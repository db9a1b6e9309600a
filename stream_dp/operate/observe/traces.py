"""The list of all spans and attributes of an operator's traces, as `lifecycle_log` for logs.

Rules: a span or attribute that is not in `SPANS` is not sent; it is a bug and raises. Traces contain no content of
a record, no count, no offset, no lag, no text of an error, and of an address only its route. The begin and duration
of a span still reveal the load: traces are NOT PRIVATE, and go only where the operator sends them. No trace context
is taken from a request, and none is passed on. This file is loaded only if traces were asked for.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import SpanKind, StatusCode, Tracer

from stream_dp.engine.ports import Note
from stream_dp.errors import StreamDPError

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

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def __call__(self, name: str, /, **attributes: str | int) -> Iterator[Note]:
        """Open a span for a piece of work, as a child of the current span.

        Raises:
            UnlistedSpan: the span, or an attribute, is not in `SPANS`.
        """
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
        raise UnlistedSpan("a span or an attribute that is not in `SPANS` is not told")
    return {NAMED[key]: value for key, value in attributes.items()}
