"""What a run's operator may see: warnings of dead or late records, exact totals, and traces. NOT PRIVATE.

Rules: none of these figures is public. They go to the operator's own terminal or to the guarded operator's port,
never to releases, API, page or lines of JSON. A warning names no count: it says that a declared share is exceeded
over at least `FEWEST` records, and why; at most one warning comes in `WINDOW_S`. The figures are added up from
durable commits.

The port is a second server, which shares no route, no view and no port with the public page. Without the token nothing
is answered, not even which pages exist; a request for another host gets 421. The web libraries are loaded only if the
port was asked for.

Traces: a span or attribute that is not in `SPANS` is not sent; it is a bug and raises. Traces contain no content of a
record, no count, no offset, no lag, no text of an error, and of an address only its route. The begin and duration of a
span still reveal the load: traces are NOT PRIVATE, and go only where the operator sends them. No trace context is taken
from a request, and none is passed on. OpenTelemetry is loaded only if traces were asked for.
"""

import asyncio
import errno
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from stream_dp import __version__
from stream_dp.engine.ports import Journal, Note, Ports, Positions, Spans, closing, untold
from stream_dp.errors import StreamDPError, UsageError, WorldError
from stream_dp.journal.commit import Commit
from stream_dp.journal.keys import Sealer, read_token
from stream_dp.server.server import LOOPBACK, Listening, Serving, listening_at, require_extra

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

FEWEST = 20
"""No share is computed over fewer records, because single records would decide it."""
WINDOW_S = 600.0
LATE = "late"
"""The reason of records that came after the end of their tick."""
_NAMED = 3


class OperatorFigures:
    """Adds up the durable commits of a run; calls `warn` with the reasons if too large a share is dead or late.

    The figures are exact and NOT PRIVATE. `origin` (ms) is public; it is set only if this run began the ledger.
    `waiting` returns how many closed ticks of each lane wait for those of the other lanes.
    """

    def __init__(
        self, warn: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.records = self.late = self.dead = self.capped = self.commits = 0
        self.dead_by_reason: Counter[tuple[str, str]] = Counter()
        self.origin: int | None = None
        self._attempts = 0
        self._committed: float | None = None
        self._positions: dict[int, int] = {}
        self._ends: Callable[[], Positions] = dict
        self.waiting: Callable[[], Mapping[int, int]] = dict
        self._lanes = 1
        self._limit, self._warn, self._now = Fraction(1), warn, now
        self._reasons: Counter[str] = Counter()
        self._recent = 0
        self._since: float | None = None
        self._warned = False

    def __repr__(self) -> str:
        return "<OperatorFigures>"

    def take(self, commit: Commit) -> None:
        if commit.header is not None:
            self.origin = commit.header.origin
        dead = sum(letter.records for letter in commit.dead_letters)
        self.records += commit.records
        self.late += commit.late
        self.dead += dead
        self.capped += commit.capped
        self.commits += 1
        self._committed = self._now()
        self._positions.update(commit.positions)
        self._begin_window()
        self._recent += commit.records + dead
        for letter in commit.dead_letters:
            self.dead_by_reason[letter.reason, letter.field or ""] += letter.records
            blamed = letter.reason if letter.field is None else f"{letter.reason} in {letter.field}"
            self._reasons[blamed] += letter.records
        if commit.late:
            self._reasons[LATE] += commit.late
        enough = self._recent >= FEWEST
        if enough and not self._warned and self._reasons.total() > self._limit * self._recent:
            self._warned = True
            most = [reason for reason, _ in self._reasons.most_common(_NAMED)]
            self._warn(", ".join(sorted(most)))

    def _begin_window(self) -> None:
        """Begin a new window if the old one has ended with enough records to compute a share."""
        now = self._now()
        if self._since is None or (now - self._since > WINDOW_S and self._recent >= FEWEST):
            self._since, self._recent, self._warned = now, 0, False
            self._reasons.clear()

    @property
    def restarts(self) -> int:
        return max(0, self._attempts - 1)

    @property
    def since_commit(self) -> float | None:
        """Seconds since the last durable commit of this process; None before the first."""
        return None if self._committed is None else self._now() - self._committed

    @property
    def lag(self) -> int | None:
        """Number of places between the last commit and the ends of the source; None if these are unknown."""
        by_lane = self.lane_lag
        return sum(by_lane.values()) if by_lane else None

    @property
    def lane_lag(self) -> Mapping[tuple[str], int]:
        """The lag of each lane (of the engine's own process: lane 0); empty if it is unknown."""
        lanes = max(1, min(self._lanes, len(self._positions)))
        by_lane = Counter[tuple[str]]()
        for place, end in self._ends().items():
            if place in self._positions:
                by_lane[(str(place % lanes),)] += max(0, end - self._positions[place])
        return by_lane

    @property
    def lane_ticks(self) -> Mapping[tuple[str], int]:
        """How many closed ticks of each lane wait for the other lanes; empty if one process reads all."""
        return {(str(lane),): ticks for lane, ticks in self.waiting().items()}

    def watching(
        self, ports: Ports, limit: Fraction, ends: Callable[[], Positions] = dict
    ) -> Ports:
        """Return these ports for another attempt, with a journal that reports its durable commits to this object.

        A share above `limit` leads to a warning. `ends` returns the known ends of the source's partitions.
        """
        self._limit, self._ends = limit, ends
        self._lanes = 1 if ports.crew is None else ports.crew.most
        self._attempts += 1
        return replace(ports, journal=WatchedJournal(ports.journal, self.take))


class WatchedJournal:
    """A journal that reports each commit to `take` once it is durable."""

    def __init__(self, journal: Journal, take: Callable[[Commit], None]) -> None:
        self._journal, self._take = journal, take

    async def open(self) -> None:
        await self._journal.open()

    @property
    def begin(self) -> int:
        return self._journal.begin

    def checkpoints(self) -> Sequence[int]:
        return self._journal.checkpoints()

    async def read(self, begin: int = 0) -> AsyncIterator[bytes]:
        async with closing(self._journal.read(begin)) as commits:
            async for sealed in commits:
                yield sealed

    async def verify(self, positions: Positions) -> None:
        await self._journal.verify(positions)

    async def append(self, commit: Commit, sealed: bytes) -> None:
        await self._journal.append(commit, sealed)
        self._take(commit)

    async def prune(self, before: int) -> None:
        await self._journal.prune(before)

    async def close(self) -> None:
        await self._journal.close()


_PREFIX = "stream_dp_not_private_"
_DEAD = "dead_records_total"
_LANE_LAG, _LANE_TICKS = "lane_lag", "lane_ticks"
_LABELS: Mapping[str, tuple[str, ...]] = {
    _DEAD: ("pipeline", "reason", "field"),
    _LANE_LAG: ("pipeline", "lane"),
    _LANE_TICKS: ("pipeline", "lane"),
}
"""The labels of figures that have more than `pipeline`."""
_FIGURES: Mapping[str, tuple[str, str]] = {
    "records_total": ("Records that were counted, including late records.", "records"),
    "late_records_total": ("Records that came after their tick was closed.", "late"),
    _DEAD: ("Records that could not be used, by reason and field.", "dead_by_reason"),
    "capped_records_total": (
        "Records that do not count, because their user had reached a cap.",
        "capped",
    ),
    "commits_total": ("Durable commits of the journal.", "commits"),
    "restarts_total": ("Attempts after an outage, not counting the first start.", "restarts"),
    "since_commit_seconds": ("Seconds since the last durable commit.", "since_commit"),
    "lag": (
        "Offsets of the topic between the last commit and the newest record known.",
        "lag",
    ),
    _LANE_LAG: (
        "The lag of each lane. A partition's lane is its number modulo the number of processes.",
        "lane_lag",
    ),
    _LANE_TICKS: (
        "Closed ticks of a lane that wait for other lanes. A lane with 0, while other lanes have more, lags.",
        "lane_ticks",
    ),
}
"""Help text and attribute of every figure."""


def figures_text(pipeline: str, figures: OperatorFigures, accepted: str) -> tuple[bytes, str]:
    """Return the figures as metrics in a format that this `Accept` header allows, and the format's content type.

    They are exact and NOT PRIVATE, as each name and help text says: only the guarded operator's port serves them,
    never the public port. They count the durable commits of this process and start at 0 with it.
    """
    from stream_dp.server.metrics import Described, Gauges, content_type

    gauges = Gauges(
        {
            f"{_PREFIX}{name}": Described(f"NOT PRIVATE: {words}", _LABELS.get(name, ("pipeline",)))
            for name, (words, _) in _FIGURES.items()
        }
    )
    for name, (_, attribute) in _FIGURES.items():
        figure = attrgetter(attribute)(figures)
        for values, number in sorted(figure.items()) if name in _LABELS else [((), figure)]:
            if number is not None:
                gauges.set(f"{_PREFIX}{name}", number, pipeline, *values)
    return gauges.written(accepted), content_type(accepted)


def lanes_text(pipeline: str, figures: OperatorFigures) -> tuple[bytes, str]:
    """Return in words which lanes lag, and the content type; as private as the figures."""
    ticks, lag = figures.waiting(), figures.lane_lag
    behind = [str(lane) for lane, here in ticks.items() if not here and any(ticks.values())]
    said = "one process reads the source" if not ticks else "no lane lags"
    if behind:
        said = f"the ticks of all other lanes wait for {'lanes' if len(behind) > 1 else 'lane'} {', '.join(behind)}"
    lines = [f"{pipeline}, NOT PRIVATE: {said}"]
    for lane, here in ticks.items():
        read = (
            f", {lag[str(lane),]} offsets of the topic are not read yet"
            if (str(lane),) in lag
            else ""
        )
        lines.append(f"lane {lane}: {here} closed ticks wait for other lanes{read}")
    return "\n".join([*lines, ""]).encode(), "text/plain; charset=utf-8"


LOCAL = "127.0.0.1"
_PATH = "/metrics"
_LANES = "/lanes"
Written: TypeAlias = Mapping[str, Callable[[str], tuple[bytes, str]]]
"""By path: returns text and content type for an `Accept` header."""


def pages_of(pipeline: str, figures: OperatorFigures) -> Written:
    return {
        _PATH: lambda accepted: figures_text(pipeline, figures, accepted),
        _LANES: lambda _: lanes_text(pipeline, figures),
    }


class OperatorServer(Listening):
    """Serves the pages of `written` to holders of `token`; `hosts` are further host names (without a port)."""

    what = "the operator's server"

    def __init__(self, written: Written, token: str, hosts: frozenset[str] = frozenset()) -> None:
        """Raise UsageError if a required package is not installed, or the token is empty."""
        require_extra()
        if not token:
            raise UsageError("the operator's figures need a token")
        self._written, self._token, self._hosts = written, token, hosts

    @property
    def url(self) -> str:
        return f"{super().url.removesuffix('/')}{_PATH}"

    async def start(self, port: int, host: str = LOCAL) -> None:
        """Listen on this port (0: any), or raise WorldError: scrapers expect this port, so no other is tried."""
        try:
            listener = listening_at(socket.AF_INET, (host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "is taken; choose another" if taken else f"cannot be used: {error.strerror}"
            raise WorldError(f"the operator's port {port} of {host} {why}") from None
        names = LOOPBACK | {host} | self._hosts
        self._serving = Serving(guarded(self._written, self._token, names), listener, host)


def guarded(written: Written, token: str, hosts: frozenset[str] = LOOPBACK) -> "ASGIApp":
    """Return the application: the figures for requests to these `hosts` with the token, refusals for all others."""
    from starlette.requests import Request
    from starlette.responses import Response

    from stream_dp.server.api import Shield

    async def answer(scope: "Scope", receive: "Receive", send: "Send") -> None:
        request = Request(scope)
        response = _refusal(request, token, written)
        if response is None:
            text, form = written[request.url.path](request.headers.get("accept", ""))
            response = Response(text, headers={"content-type": form, "vary": "accept"})
        await response(scope, receive, send)

    return Shield(answer, hosts)


def _refusal(request: "Request", token: str, pages: Written) -> "Response | None":
    """Return the refusal of a request, or None to answer it. The token is checked first."""
    from stream_dp.server.refusals import refusal

    if not _holds(request, token):
        return refusal(401, "needs `Authorization: Bearer TOKEN` with the operator's token")
    if request.url.path not in pages:
        return refusal(404, f"this port serves only {' and '.join(pages)}")
    return None if request.method in ("GET", "HEAD") else refusal(405, "can only be read")


def _holds(request: "Request", token: str) -> bool:
    from stream_dp.server.access import bearer, is_same

    shown = bearer(request.headers.getlist("authorization"))
    return bool(shown) and is_same(shown, token)


@dataclass(frozen=True, slots=True)
class FiguresPort:
    """Port and host of the figures (0: any free port). Readers need the token in `token_file`, else the operator's.

    `opened` receives the address. `hosts` are further host names that a scraper may use.
    """

    port: int
    token_file: Path | None = None
    opened: Callable[[str], None] = lambda url: None
    host: str = LOCAL
    hosts: frozenset[str] = frozenset()


@asynccontextmanager
async def figures_told(
    asked: FiguresPort | None, pipeline: str, figures: OperatorFigures, sealer: Sealer
) -> AsyncIterator[None]:
    """Serve the figures while the context is open, if they were asked for, to holders of the operator's token.

    If other machines can reach the port, it needs a token of its own: the operator's token can spend the budget, so a
    scraper must not carry it. The port is open as long as the process runs, also while the engine stands by or
    catches up, because operators look at the figures then.
    """
    if asked is None:
        yield
        return
    if asked.host != LOCAL and asked.token_file is None:
        raise UsageError(
            f"--operator-host {asked.host}: other machines can reach this address, so the port "
            "needs its own token: name the token's file with --operator-token-file"
        )
    token = sealer.query_token() if asked.token_file is None else read_token(asked.token_file)
    server = OperatorServer(pages_of(pipeline, figures), token, asked.hosts)
    await server.start(asked.port, asked.host)
    try:
        asked.opened(server.url)
        yield
    finally:
        await server.stop()


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
