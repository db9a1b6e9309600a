"""The traces of a run, sent beside the engine to the collector that OpenTelemetry's own variables name.

Rules: there are none unless they were asked for: a variable alone, which a cluster may set for all that runs in it,
switches nothing on. They are sent by a thread of their own from a queue that drops what does not fit, so a collector
that hangs or is gone costs spans and nothing else; the end waits for it `LAST_S` at most. What the SDK logs is not
repeated: an answer of the collector has no place in a log, and `span_sender` says once that there is none.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stream_dp import __version__
from stream_dp.engine.ports import Spans, untold
from stream_dp.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

LAST_S = 1.0
_BASE, _WHOLE = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_DEFAULT = "http://localhost:4318"
_FORM = "http/protobuf"
_THEIRS = logging.getLogger("opentelemetry")


@asynccontextmanager
async def traced(told: Callable[[str], None] | None, pipeline: str) -> AsyncIterator[Spans]:
    """Yield what is told of a run's work, and send it while the context is open.

    `told` (None: no traces) learns where it goes.

    Raises:
        UsageError: the extra `otel` is not installed, or the variables name no collector that speaks OTLP over HTTP.
    """
    if told is None:
        yield untold
        return
    endpoint = _endpoint()
    try:
        from stream_dp.operate.observe.span_sender import provider_for
        from stream_dp.operate.observe.traces import Traces
    except ImportError:
        raise UsageError("traces need OpenTelemetry: pip install 'stream_dp[otel]'") from None
    provider = provider_for(endpoint, shown := _shown(endpoint), pipeline)
    told(shown)
    with _unheard():
        try:
            yield Traces(provider.get_tracer("stream_dp", __version__))
        finally:
            await _ended(provider)


@contextmanager
def _unheard() -> Iterator[None]:
    """Have what the SDK logs go nowhere."""
    nowhere, propagated = logging.NullHandler(), _THEIRS.propagate
    _THEIRS.addHandler(nowhere)
    _THEIRS.propagate = False
    try:
        yield
    finally:
        _THEIRS.propagate = propagated
        _THEIRS.removeHandler(nowhere)


async def _ended(provider: "TracerProvider") -> None:
    """Send what is left, if that goes in time."""
    ending = Thread(target=provider.shutdown, name="the last traces", daemon=True)
    ending.start()
    await asyncio.to_thread(ending.join, LAST_S)


def _endpoint() -> str:
    """Where the variables say that traces go.

    Raises:
        UsageError: that is no address of HTTP, or another form of OTLP.
    """
    asked = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), _FORM)
    if asked != _FORM:
        raise UsageError(f"--traces: sends OTLP as {_FORM} only; unset {_PROTOCOLS[1]} ({asked})")
    base = os.environ.get(_BASE) or _DEFAULT
    endpoint = os.environ.get(_WHOLE) or f"{base.removesuffix('/')}/v1/traces"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--traces: {_BASE} is no address like {_DEFAULT}")
    return endpoint


def _shown(endpoint: str) -> str:
    """The address without what it may hold of secrets.

    >>> _shown("https://ann:secret@collector:4318/v1/traces?key=secret")
    'https://collector:4318/v1/traces'
    """
    parts = urlsplit(endpoint)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
