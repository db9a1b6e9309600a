"""What an operator's traces may tell: every span and every attribute, as `lifecycle_log` has it for logs.

Rules: what is not in `SPANS` is not told, it is a bug of ours, and raises. No content of a record, no count, no offset,
no lag, no text of an error, no part of an address but its route. When a span begins and how long it takes tells of load
all the same: traces are NOT PRIVATE, and go where the operator said and nowhere else. No trace is taken up from a
request, and none is handed on. This file is loaded where traces were asked for.
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
"""Each piece of work with the attributes that it may have; a request is shown by its method and route."""
NAMED: Mapping[str, str] = {
    "tick": "stream_dp.tick",
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
}
"""What attributes are called outside; those of HTTP as OpenTelemetry's conventions have them."""
OUTCOME, ERROR = "stream_dp.outcome", "error.type"
"""How it ended (`done`, `failed`, `cancelled`), and of what failed the class of the error."""


class UnlistedSpan(StreamDPError):
    """A span or an attribute that is on no list was to be told: a bug of ours; it was not."""


class Traces:
    """Tells `tracer` of an engine's work, and of requests to its page. It implements `engine.ports.Spans`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def __call__(self, name: str, /, **attributes: str | int) -> Iterator[Note]:
        """Tell of a piece of work, as a part of that in which it is done.

        Raises:
            UnlistedSpan: it, or an attribute, is not in `SPANS`.
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
    """Return the attributes under the names that they have outside."""
    allowed = SPANS.get(name)
    if allowed is None or attributes.keys() - allowed:
        raise UnlistedSpan("a span or an attribute that is not in `SPANS` is not told")
    return {NAMED[key]: value for key, value in attributes.items()}
