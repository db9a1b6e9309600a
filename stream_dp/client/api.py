"""A client of a running engine for programs and notebooks: read, ask, create and halt series, follow releases.

Rules: answers are the models that the server documents; a key that a newer server adds is kept. Releases are read from
their exact bytes. A refusal is raised in the server's words. A request that changes something has a key of its own, so
that a repetition of it is done once.
"""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from pydantic import BaseModel, ValidationError

from stream_dp.client.frames import (
    Label,
    ReleaseTable,
    html_table,
    plan_html,
    release_html,
    rows_of,
)
from stream_dp.client.http_api import SECONDS, HttpApi, TokenRefused
from stream_dp.client.message_text import fresh_id, good_answer
from stream_dp.client.public_release import PublicRelease
from stream_dp.core.wording import meant
from stream_dp.errors import FailClosed, ReleasesMissing, UnknownMechanism, UsageError, WorldError
from stream_dp.journal.answer_body import read_answer
from stream_dp.journal.release import KeysUnknown, Released, ReleaseReader, read_head
from stream_dp.server.models import asked, configured
from stream_dp.server.models.published import StreamHead

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.axes import Axes

_M = TypeVar("_M", bound=BaseModel)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")
_SILENCE_S = 45.0  # three times the server's heartbeat
_AGAIN_S = 1.0


class Definable(Protocol):
    """A statistic such as `stream_dp.Count()`, which knows its entry of `series:` in a pipeline file."""

    def entry(self, name: Any, epsilon: Any) -> Mapping[str, Any]: ...


class Budget(configured.Budget):
    """What was spent and what is left, with a table for notebooks."""

    def _repr_html_(self) -> str:
        rows = [(e.name, e.epsilon, e.records or "all") for e in self.series]
        title = f"{self.epsilon.spent} of {self.capacity} {self.unit} spent"
        ledgers = [f"{a.name} {a.epsilon.spent} of {a.epsilon.total}" for a in self.analysts]
        note = f"One more series may cost epsilon {self.epsilon.left}." + (
            f" Analysts: {', '.join(ledgers)}." if ledgers else ""
        )
        return html_table(title, ("series", "epsilon", "records"), rows, note)


class Plan(configured.Plan):
    """The guarantee with its reasons, with a table for notebooks."""

    def _repr_html_(self) -> str:
        return plan_html(self.model_dump())


class _Newest(msgspec.Struct):
    name: str
    latest: msgspec.Raw


class _Series(msgspec.Struct):
    series: list[_Newest]


class _History(msgspec.Struct):
    releases: list[msgspec.Raw]


_NEWEST = msgspec.json.Decoder(_Series)
_HISTORY = msgspec.json.Decoder(_History)


def connect(
    url: str,
    *,
    token: str | None = None,
    token_file: str | Path | None = None,
    timeout: float = SECONDS,
) -> "Client":
    """Return a client of the engine whose page is at `url`, such as ``http://127.0.0.1:8765``.

    Reading needs no token, unless the operator has closed it. To ask, preview, create and halt, give the `token` that
    the operator made, or the `token_file` that holds it. An answer is waited for at most `timeout` seconds; it does not
    wait for the end of a tick. Raises WorldError if no engine answers there.
    """
    if token_file is not None:
        try:
            token = Path(token_file).read_text()
        except OSError as error:
            raise UsageError(f"token_file: {token_file}: {error.strerror}") from None
    client = Client(HttpApi(url.rstrip("/"), secret=token is not None, seconds=timeout), token)
    client.pipeline()
    return client


async def connect_async(
    url: str,
    *,
    token: str | None = None,
    token_file: str | Path | None = None,
    timeout: float = SECONDS,  # noqa: ASYNC109 - of each request
) -> "AsyncClient":
    """Return a client whose methods are awaited; arguments and errors are those of `connect`."""
    client = await asyncio.to_thread(
        connect, url, token=token, token_file=token_file, timeout=timeout
    )
    return AsyncClient(client)


class Client:
    """A running engine, as its HTTP API shows it; made by `connect`. Any thread may use it.

    Raises, in every method:
        UsageError: the engine refuses the request, or it needs another token.
        BudgetRefused, FailClosed: raised by the engine; nothing has changed.
        WorldError: no engine answers, or not in time; what was asked may still happen.
    """

    def __init__(self, api: HttpApi, token: str | None = None) -> None:
        self.api = api
        self._token = None if token is None else token.strip()
        if self._token is not None and not (self._token.isascii() and self._token.isprintable()):
            raise UsageError("token: is not one line of text; check that it was copied whole")

    @property
    def url(self) -> str:
        return self.api.url

    @property
    def signature(self) -> dict[str, str]:
        """The header that shows the token, where there is one: reading may be closed, too."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def pipeline(self) -> configured.Pipeline:
        """Return the public configuration, and the series that run."""
        return self._model(configured.Pipeline, "GET", "/api/pipeline")

    def plan(self) -> Plan:
        """Return the guarantee with its derivation, and the price and expected error of each series."""
        return self._model(Plan, "GET", "/api/plan")

    def budget(self) -> Budget:
        """Return what was spent, by whom, and what is left."""
        return self._model(Budget, "GET", "/api/budget")

    def schema(self) -> asked.Schema:
        """Return what can be asked: fields, and statistics with their keys."""
        return self._model(asked.Schema, "GET", "/api/schema")

    def queries(self) -> tuple[asked.Query, ...]:
        """Return every series that runs, and the last ones that were halted."""
        return self._model(asked.QueryList, "GET", "/api/queries").queries

    def me(self) -> asked.Me:
        """Return whose token this is, until when, and what its ledger has left."""
        return self._model(asked.Me, "GET", "/api/me")

    def latest(self) -> dict[str, PublicRelease | None]:
        """Return the newest release of every series, by name; None before its first."""
        read = _Reader(self).read
        bodies = {series.name: bytes(series.latest) for series in self._newest()}
        return {
            name: None if body == b"null" else PublicRelease.of(body, read)
            for name, body in bodies.items()
        }

    def series(self, name: str) -> "Series":
        """Return the series called `name`, to read and ask it; UnknownMechanism if there is none."""
        running = {entry.name: entry for entry in self.pipeline().series}
        if name not in running:
            names = [series.name for series in self._newest()]
            if name not in names:
                near = meant(name, names) or f"; there are {', '.join(names[:20])}"
                raise UnknownMechanism(f"no series {name!r}{near}")
        return Series(self, name, running.get(name))

    def stream(self, after: int | None = None, *, patience: float = 60.0) -> "ReleaseStream":
        """Return the releases of all series as they become public, for `for` or `async for`.

        The first one is the next, or that after the sequence number `after`. A lost connection is made again for
        `patience` seconds, and nothing is read twice or left out.
        """
        return ReleaseStream(self, None, after, patience)

    def preview(
        self,
        series: Definable | Mapping[str, Any],
        *,
        name: str | None = None,
        epsilon: Any = None,
        error: Any = None,
        analyst: str = "",
    ) -> asked.Preview:
        """Return what creating a series would cost now, and its expected error; changes nothing.

        Arguments are those of `create`; with `error` in place of `epsilon` it is priced at the least epsilon at which
        the expected error is no larger.
        """
        body = _definition(series, name=name, epsilon=epsilon, error=error)
        path = f"/api/queries/preview?{urlencode({'analyst': analyst})}"
        return self._model(asked.Preview, "POST", path, body)

    def create(
        self,
        series: Definable | Mapping[str, Any],
        *,
        name: str | None = None,
        epsilon: Any = None,
        analyst: str = "",
        accept_noise: bool = False,
        key: str = "",
    ) -> asked.Created:
        """Charge a series and start it between two ticks; on return it is durable.

        `series` is a statistic such as ``Count(windows=["24h"])``, or an entry of `series:` as in a pipeline file;
        `name` and `epsilon` are its, as exact text such as ``"0.1"``. `analyst` names whose ledger pays (by default the
        token's). `accept_noise` allows alarms that are mostly noise. Under the same `key` (by default a fresh one) a
        request is done once, so give one to repeat a call that got no answer.
        """
        body = _definition(series, name=name, epsilon=epsilon)
        given = {"analyst": analyst} | ({"accept_noise": "true"} if accept_noise else {})
        path = f"/api/queries?{urlencode(given)}"
        return self._model(asked.Created, "POST", path, body, key=key or fresh_id())

    def preview_halt(self, name: str) -> asked.HaltPreview:
        """Return what halting the series called `name` would give back; changes nothing."""
        return self._model(asked.HaltPreview, "GET", f"{_query(name)}/halt")

    def halt(self, name: str, *, key: str = "") -> asked.Halted:
        """End the series called `name`, which frees budget for later ticks; `key` as in `create`."""
        return self._model(asked.Halted, "DELETE", _query(name), key=key or fresh_id())

    def _repr_html_(self) -> str:
        pipeline = self.pipeline()
        rows = [(entry.name, entry.title or "", entry.about) for entry in pipeline.series]
        return html_table(f"{pipeline.name} at {self.url}", ("series", "title", "about"), rows)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    def _newest(self) -> list[_Newest]:
        return self.decoded(_NEWEST, self.send("GET", "/api/series")).series

    def keys(self) -> dict[tuple[str, int], tuple[str, ...]]:
        series = self.pipeline().series
        return {(own.name, own.version or 1): own.domain for own in series if own.domain}

    def _model(
        self, model: type[_M], method: str, path: str, body: bytes | None = None, **sent: Any
    ) -> _M:
        return self.read(model, self.send(method, path, body, **sent))

    def read(self, model: type[_M], answer: bytes) -> _M:
        """Return an answer; FailClosed if it is none of this version's."""
        try:
            return model.model_validate_json(answer, extra="allow")
        except ValidationError:
            raise self._unread() from None

    def decoded(self, decoder: "msgspec.json.Decoder[_R]", answer: bytes) -> _R:
        try:
            return decoder.decode(answer)
        except msgspec.DecodeError:
            raise self._unread() from None

    def _unread(self) -> FailClosed:
        return FailClosed(
            f"{self.url} answers in a form that this version of stream_dp does not read: use the version of the engine"
        )

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str = "",
    ) -> bytes:
        headers = {"Idempotency-Key": key} if key else {}
        try:
            return self.api.send(method, path, body, headers | self.signature)
        except TokenRefused as error:
            if self._token:
                raise
            raise TokenRefused(f"connect() was given no token, but this {error}") from None


def _query(name: str) -> str:
    return f"/api/queries/{quote(name, safe='')}"


def _definition(series: Definable | Mapping[str, Any], **given: Any) -> bytes:
    """Return the JSON of a series; what is `given` goes before its own keys, and numbers are written exactly."""
    plain = series if isinstance(series, Mapping) else series.entry(given["name"], None)
    entry = {**plain, **{key: value for key, value in given.items() if value is not None}}
    return _json(entry)


def _json(content: Mapping[str, Any]) -> bytes:
    """Return the JSON of what is not None; exact numbers are texts."""
    there = {key: value for key, value in content.items() if value is not None}
    return json.dumps(there, default=str).encode()


class _Reader:
    """Reads releases; where they have values in arrays, it asks the engine for the keys."""

    def __init__(self, client: Client) -> None:
        self._client, self._reader = client, ReleaseReader({})

    def read(self, body: bytes) -> Released:
        try:
            return self._reader.read(body)
        except KeysUnknown:
            self._reader.learn(self._client.keys())
            return self._reader.read(body)


class Series:
    """A series of a running engine; made by `Client.series`. Errors are those of `Client`.

    `entry` is what the engine says of it (None if it was halted): title, unit, statistic, domain, windows.
    """

    def __init__(
        self, client: Client, name: str, entry: configured.SeriesEntry | None = None
    ) -> None:
        self._client, self.name, self.entry = client, name, entry

    def latest(self) -> PublicRelease | None:
        """Return its newest release, None before the first."""
        return self._client.latest().get(self.name)

    def releases(
        self, first: int = 0, last: int | None = None, *, version: int | None = None
    ) -> list[PublicRelease]:
        """Return its releases of the ticks from `first` to `last` (both included; None: the newest), by tick.

        They are of all its versions, or of this `version` alone; `entry.version` is the newest (None: the first).
        The server keeps the newest releases (10,000 of a series, or fewer if they are large). For older ones read the
        pipeline's topic or file: `read_releases`.
        """
        read = _Reader(self._client).read
        return [PublicRelease.of(body, read) for body in self._bodies(first, last, version)]

    def table(
        self, first: int = 0, last: int | None = None, *, version: int | None = None
    ) -> ReleaseTable:
        """Return the same as rows, one for each number, for data frames and plots."""
        read, pipeline = _Reader(self._client).read, self._client.pipeline().name
        bodies = self._bodies(first, last, version)
        rows = [row for body in bodies for row in rows_of(pipeline, body, read)]
        entry = self.entry
        label = Label() if entry is None else Label(entry.title or "", entry.unit or "")
        return ReleaseTable(rows, {self.name: label})

    def to_pandas(self, first: int = 0, last: int | None = None) -> "pandas.DataFrame":
        """Return `table(first, last)` as a pandas data frame."""
        return self.table(first, last).to_pandas()

    def to_polars(self, first: int = 0, last: int | None = None) -> "polars.DataFrame":
        """Return `table(first, last)` as a polars data frame."""
        return self.table(first, last).to_polars()

    def to_arrow(self, first: int = 0, last: int | None = None) -> Any:
        """Return `table(first, last)` as a `pyarrow.Table`."""
        return self.table(first, last).to_arrow()

    def plot(
        self,
        first: int = 0,
        last: int | None = None,
        *,
        window: str | None = None,
        keys: Iterable[str] | None = None,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Draw the releases of `table(first, last)`; the other arguments are those of `ReleaseTable.plot`."""
        return self.table(first, last).plot(window=window, keys=keys, ax=ax)

    def stream(self, after: int | None = None, *, patience: float = 60.0) -> "ReleaseStream":
        """Return its releases as they become public, for `for` or `async for`; arguments as in `Client.stream`."""
        return ReleaseStream(self._client, self.name, after, patience)

    def ask(
        self,
        *,
        keys: Iterable[str] | None = None,
        from_: str | None = None,
        to: str | None = None,
        window: str | None = None,
        watch: str | None = None,
        threshold: int | None = None,
        key: str = "",
    ) -> dict[str, Any]:
        """Ask it between two ticks, on record, and return the answer.

        Of a series that is released, these `keys`, or those from `from_` up to `to`, and one `window` are parts of its
        last release, which is free. Of a monitor: whether a `watch` has passed a `threshold`. `key` as in `create`.
        """
        asked_for = {
            "keys": None if keys is None else list(keys), "from": from_, "to": to, "window": window, "watch": watch,
            "threshold": threshold,
        }  # fmt: skip
        path = f"/api/series/{quote(self.name, safe='')}/ask"
        answer = self._client.send("POST", path, _json(asked_for), key=key or fresh_id())
        return dict(read_answer(good_answer(answer)).answer or {})

    def preview_halt(self) -> asked.HaltPreview:
        """Return what halting it would give back; changes nothing."""
        return self._client.preview_halt(self.name)

    def halt(self, *, key: str = "") -> asked.Halted:
        """End it, which frees budget for later ticks; `key` as in `Client.create`."""
        return self._client.halt(self.name, key=key)

    def _bodies(self, first: int, last: int | None, version: int | None) -> list[bytes]:
        asked_for = {"from": first, "to": last, "version": version}
        given = {key: number for key, number in asked_for.items() if number is not None}
        path = f"/api/series/{quote(self.name, safe='')}?{urlencode(given)}"
        answer = self._client.send("GET", path)
        history = self._client.decoded(_HISTORY, answer)
        return [bytes(body) for body in history.releases]

    def _repr_html_(self) -> str:
        release, entry = self.latest(), self.entry
        title = self.name if entry is None else f"{entry.title or self.name}: {entry.about}"
        note = "" if entry is None else (entry.description or "")
        if release is None:
            return release_html(f"{title}; nothing is released yet", (), note)
        rows = rows_of("", release.body, _Reader(self._client).read)
        return release_html(f"{title}, at {release.end}", rows, note)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._client.url}>"


class ReleaseStream:
    """Releases as they become public, each once and in order; made by `stream`. Use it in one loop at a time.

    It ends with `close()`, or with the `with` block that it opens. `last` is the sequence number of the newest release
    that it has read, of whatever series: give it as `after` to go on from there later, in another process too.

    Raises, while it is read:
        ReleasesMissing: the server no longer keeps what comes next. The next loop goes on behind the gap.
        FailClosed: another pipeline answers now.
        WorldError: no engine answered for `patience` seconds.
    """

    def __init__(
        self, client: Client, series: str | None, after: int | None, patience: float
    ) -> None:
        self.last, self._series, self._patience = after, series, patience
        self._client, self._read = client, _Reader(client).read
        self._api = replace(client.api, seconds=_SILENCE_S)
        self._closed = Event()
        self._fingerprint: str | None = None
        self._reading = Lock()
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._events: Iterator[tuple[str, bytes]] = iter(())
        self._thread: ThreadPoolExecutor | None = None

    def __iter__(self) -> Iterator[PublicRelease]:
        return self

    def __next__(self) -> PublicRelease:
        if (release := self._next()) is None:
            raise StopIteration
        return release

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PublicRelease:
        if self._closed.is_set():
            raise StopAsyncIteration
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "releases")
        try:
            release = await asyncio.get_running_loop().run_in_executor(self._thread, self._next)
        except asyncio.CancelledError:
            self.close()
            raise
        if release is None:
            raise StopAsyncIteration
        return release

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, also while another thread waits for the next release; a second call does nothing."""
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(
                    socket.SHUT_RDWR
                )  # wakes the thread that reads, which disconnects
        if self._reading.acquire(blocking=False):
            self._disconnect()
            self._reading.release()
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self.close()

    def _next(self) -> PublicRelease | None:
        """Return the next release; None once the stream is closed."""
        with self._reading:
            try:
                return self._read_next()
            finally:
                if self._closed.is_set():
                    self._disconnect()

    def _read_next(self) -> PublicRelease | None:
        failing_since = None
        while not self._closed.is_set():
            try:
                event, data = next(self._events, ("", b""))
                if not event:
                    self._connect()
                    continue
                release = self._taken(event, data)
            except (OSError, HTTPException, WorldError) as error:
                self._disconnect()
                now = time.monotonic()
                failing_since = failing_since or now
                if now - failing_since >= self._patience:
                    raise (error if isinstance(error, WorldError) else self._api.gone()) from None
                self._closed.wait(_AGAIN_S)
                continue
            failing_since = None
            if release is not None:
                return release
        return None

    def _taken(self, event: str, data: bytes) -> PublicRelease | None:
        if event == "head":
            self._check_same(self._client.read(StreamHead, data))
        if event != "message" or self.last is None:
            return None
        head = read_head(data)
        first, last = self.last + 1, head.sequence - 1
        if first <= last:
            self.last = last
            self._disconnect()
            what = f"{self._client.url} no longer keeps what comes next: releases"
            raise ReleasesMissing(first, last, what)
        self.last = head.sequence
        if self._series not in (None, head.series):
            return None
        return PublicRelease.of(data, self._read)

    def _check_same(self, head: StreamHead) -> None:
        """Check that the server's releases are those of before; a server that starts may not have all of them yet."""
        if self._fingerprint not in (None, head.fingerprint):
            raise FailClosed(f"another pipeline now runs at {self._client.url}: connect again")
        self._fingerprint = head.fingerprint
        if self.last is None:
            self.last = max(head.sequence, 0)
        elif max(head.sequence, 0) < self.last:
            raise WorldError(
                f"{self._client.url} has published {head.sequence} releases, fewer than the "
                f"{self.last} already read. Either its journal was created anew, or `after` belongs "
                "to another pipeline"
            )

    def _connect(self) -> None:
        self._disconnect()
        connection = self._connection = self._api.connection()
        connection.connect()
        self._socket = connection.sock
        headers = {"Accept": "text/event-stream", **self._client.signature}
        if self.last is not None:
            headers["Last-Event-ID"] = str(self.last)
        connection.request("GET", "/api/stream", headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            self._api.content(answer)
        self._events = _events(answer)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._socket = None
        self._events = iter(())


def _events(answer: HTTPResponse) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the data of each server-sent event; of a release the name is `message`."""
    event, data = "message", b""
    for line in answer:
        name, _, value = line.rstrip(b"\r\n").partition(b": ")
        if name == b"event":
            event = value.decode()
        elif name == b"data":
            data = value
        elif not name and data:
            yield event, data
            event, data = "message", b""


def _awaited(
    method: Callable[Concatenate[_C, _P], _R],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _R]]:
    """Return a method that runs that of the blocking twin on a thread."""

    @wraps(method)
    async def on_thread(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await asyncio.to_thread(method, self._blocking, *args, **kwargs)

    return on_thread


class AsyncSeries:
    """`Series` for an event loop: its methods are awaited, but `stream`, which is for `async for`."""

    def __init__(self, series: Series) -> None:
        self._blocking = series
        self.name, self.entry = series.name, series.entry

    latest = _awaited(Series.latest)
    releases = _awaited(Series.releases)
    table = _awaited(Series.table)
    to_pandas = _awaited(Series.to_pandas)
    to_polars = _awaited(Series.to_polars)
    to_arrow = _awaited(Series.to_arrow)
    ask = _awaited(Series.ask)
    preview_halt = _awaited(Series.preview_halt)
    halt = _awaited(Series.halt)

    def stream(self, after: int | None = None, *, patience: float = 60.0) -> ReleaseStream:
        """Return its releases as they become public; arguments as in `Client.stream`."""
        return self._blocking.stream(after, patience=patience)


class AsyncClient:
    """`Client` for an event loop: its methods are awaited, but `stream`, which is for `async for`."""

    def __init__(self, client: Client) -> None:
        self._blocking, self.url = client, client.url

    pipeline = _awaited(Client.pipeline)
    plan = _awaited(Client.plan)
    budget = _awaited(Client.budget)
    schema = _awaited(Client.schema)
    queries = _awaited(Client.queries)
    me = _awaited(Client.me)
    latest = _awaited(Client.latest)
    preview = _awaited(Client.preview)
    create = _awaited(Client.create)
    preview_halt = _awaited(Client.preview_halt)
    halt = _awaited(Client.halt)

    async def series(self, name: str) -> AsyncSeries:
        """Return the series called `name`; UnknownMechanism if there is none."""
        return AsyncSeries(await asyncio.to_thread(self._blocking.series, name))

    def stream(self, after: int | None = None, *, patience: float = 60.0) -> ReleaseStream:
        """Return the releases of all series as they become public; arguments as in `Client.stream`."""
        return self._blocking.stream(after, patience=patience)
