"""A series of a program: each tick is open, closed once, and released once.

Rules: `add` puts events into the open tick, `release` closes it: an update with the whole tick, then one query. What
was released stays as it is. Events are records in JSON: the row of a tick is made of them by the decoder, guard, router
and memories of a pipeline, its release by the step of the engine. What the schema does not fit is refused before it
counts, and never repeated. Threads wait for one another; a forked process refuses.
"""

import numbers
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar, overload

import msgspec

from stream_dp.client.frames import release_html, rows_of
from stream_dp.client.public_release import PublicRelease
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.core.time import TickGrid
from stream_dp.core.wording import how_many
from stream_dp.engine.memories import Memories
from stream_dp.engine.ports import Batch
from stream_dp.engine.series import Guard, MadeSeries, Series
from stream_dp.engine.tick_assembler import TickAssembler
from stream_dp.errors import FailClosed, NotDerivable, RejectedMessage
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.pipeline.builder import Chosen, chosen_for, made_of_releases
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.router import Router, memories_of
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.python.statistic import Request
from stream_dp.records.decoder import Decoded


class Single:
    """Something of which there is one, in one process: a budget, or a running mechanism.

    A copy would spend the same budget again, or give one tick two releases. So copying and pickling are refused, and a
    forked process, which inherits a copy, refuses every use.
    """

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise FailClosed(
                f"a {type(self).__name__} cannot be used in a forked process: it stays with the "
                "process that created it. Send the events to that process, or create a budget in "
                "this one; the two guarantees then add up"
            )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise FailClosed(
            f"a {type(self).__name__} cannot be copied or pickled: its budget and its noise "
            "would be used twice"
        )


R = TypeVar("R")  # the release of a tick
T = TypeVar("T")  # the events of one tick, as `over` takes them

Event: TypeAlias = Mapping[str, Any]  # its fields by name
_Records: TypeAlias = tuple[list[bytes], Decoded]  # payloads, and what they say
_TOGETHER = 4096  # events that are added up at once


def new_noise() -> Noise:
    return NoiseStream(fresh_seed(), 0)


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """A series that may run once a budget has paid for it.

    `runs` is what the engine would run of it, on rows as `spec` lays them out; `request` is what was asked for.
    """

    request: Request
    spec: PipelineSpec
    chosen: Chosen
    runs: Series
    grid: TickGrid

    @classmethod
    def of(
        cls, request: Request, spec: PipelineSpec, keys: tuple[str, ...] | None = None
    ) -> "Prepared":
        """Choose the mechanism of the last series of `spec`; no noise is drawn.

        `keys` name the entries of its rows, where these are not those of the schema. Raises like `chosen_for`.
        """
        series = spec.series[-1]
        alone = spec.model_copy(update={"series": (series,)})
        layout = RowLayout.of(alone)
        rows = layout.slice(series.name) if keys is None else slice(0, len(keys))
        chosen = chosen_for(alone, series, rows)
        runs = chosen.series(alone, rows, keys or layout.keys(series.name))
        return cls(request, alone, chosen, runs, _grid(spec))


def _grid(spec: PipelineSpec) -> TickGrid:
    clock, now = spec.clock, time.time_ns() // 1_000_000
    origin = now - now % clock.step if clock.start is None else clock.start
    return TickGrid(origin, clock.step, clock.horizon)


class Continual(Single, ABC, Generic[R, T]):
    """What all series of a program have in common, each with a state of its own."""

    __slots__ = ("_ended", "_last", "_lock", "_state", "_tick", "prepared", "request")

    def __init__(self, prepared: Prepared) -> None:
        """Draw the first noise: after the charge."""
        self._begin(prepared.request)
        self.prepared = prepared
        self._state: Any = prepared.runs.mechanism.init(new_noise())

    def _begin(self, request: Request) -> None:
        super().__init__()
        self.request = request
        self._lock = Lock()
        self._tick = 0
        self._last: R | None = None
        self._ended = False

    @property
    def name(self) -> str:
        """Its name in the ledger and in releases."""
        return str(self.request.entry["name"])

    @property
    def derivation(self) -> Derivation:
        """Why it guarantees what it does: a tree of theorems; `print` shows it."""
        return self.prepared.chosen.derivation

    @property
    def guarantee(self) -> Guarantee:
        """What it guarantees alone, for all its releases together."""
        return self.derivation.guarantee

    @property
    def horizon(self) -> int | None:
        """The number of ticks it was made for; None where there is no limit."""
        return self.prepared.grid.horizon

    @property
    def ticks(self) -> int:
        """How many ticks have been closed, each with one release; public."""
        return self._tick

    @property
    def last(self) -> R | None:
        """The release of the tick closed last, the same object however often it is asked for; None before."""
        return self._last

    def release(self) -> R:
        """Close the open tick, also one without events, and release it; `last` keeps the release until the next.

        When it is called must not depend on the events: call it by a clock. Raises RejectedMessage where the horizon is
        reached: nothing has changed; and FailClosed in a forked process, or after a release that failed.
        """
        self._require_own_process()
        with self._lock:
            return self._close()

    @overload
    def over(self, ticks: Iterable[T]) -> Iterator[R]: ...
    @overload
    def over(self, ticks: AsyncIterable[T]) -> AsyncIterator[R]: ...
    def over(self, ticks: Iterable[T] | AsyncIterable[T]) -> Iterator[R] | AsyncIterator[R]:
        """Release once for each item of `ticks`, plain or asynchronous, when its release is asked for.

        An item is what its tick adds: a list of events; of short names a count or amounts, or a mapping from keys to
        these. The number of items is public, as it is the number of releases. An item that is refused, or lies beyond
        the horizon, changes nothing (`RejectedMessage`), and its tick is still open.
        """
        return self._over_later(ticks) if isinstance(ticks, AsyncIterable) else self._over(ticks)

    def _over(self, ticks: Iterable[T]) -> Iterator[R]:
        for events in ticks:
            yield self._tick_of(events)

    async def _over_later(self, ticks: AsyncIterable[T]) -> AsyncIterator[R]:
        async for events in ticks:
            yield self._tick_of(events)

    def _tick_of(self, events: T) -> R:
        self._require_own_process()
        changes = self._changes(events)
        with self._lock:
            self._require_open()
            self._all_of(changes)
            return self._close()

    def _add(self, changes: Any) -> None:
        self._require_own_process()
        with self._lock:
            self._require_open()
            self._all_of(changes)

    def _all_of(self, changes: Any) -> None:
        """Put changes into the open tick; where that fails midway the series ends, for a part may be in it."""
        self._ended = True
        try:
            self._put(changes)
        except RejectedMessage:  # nothing was put
            self._ended = False
            raise
        self._ended = False

    def _close(self) -> R:
        """Step over the row of the open tick; where anything fails in it, the series ends: a tick has one release."""
        self._require_open()
        prepared, tick = self.prepared, self._tick
        self._ended = True
        row = self._row()
        state, body = prepared.runs.step(
            prepared.grid, self._state, tick, tick + 1, row, new_noise()
        )
        release = self._released(body)
        self._state, self._tick, self._last, self._ended = state, tick + 1, release, False
        return release

    def _require_open(self) -> None:
        if self._ended:
            raise FailClosed(
                f"{self.name}: the release of tick {self._tick} failed, and each tick is released "
                "only once; create another series"
            )
        if self.horizon is not None and self._tick >= self.horizon:
            raise RejectedMessage(
                f"{self.name} was created for {how_many(self.horizon, 'tick')} and has released them "
                "all; create another series with a longer horizon, or without a horizon"
            )

    @abstractmethod
    def _changes(self, events: T) -> Any:
        """What events add to a tick, whichever it is (RejectedMessage)."""

    @abstractmethod
    def _put(self, changes: Any) -> None:
        """Add all of it to the open tick, or nothing (RejectedMessage)."""

    @abstractmethod
    def _row(self) -> IntArray:
        """The row of the open tick, which is over."""

    @abstractmethod
    def _released(self, body: bytes) -> R:
        """The release of these bytes."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {how_many(self.ticks, 'tick')} released>"


class ContinualSeries(Continual[PublicRelease, Iterable[Event]]):
    """A statistic of events, released once each tick; made by `Budget.series`.

    Privacy claim: `guarantee`, for all releases together, against readers who choose what to do next by what they saw;
    `derivation` says why. The budget says whom it protects: one event, or the events of one user that the cap admits.

    Examples
    --------
    >>> import stream_dp as sdp
    >>> budget = sdp.Budget(epsilon=1, schema={"amount": {"type": "number"}})
    >>> mean = budget.series(sdp.Mean(of="amount", clamp=(0, 240)), epsilon="0.5", horizon=24)
    >>> mean.add({"amount": 19.95})
    >>> release = mean.release()
    >>> release.series, release.tick, release.confidence
    ('mean-1', 0, 0.95)
    """

    __slots__ = ("__weakref__", "_lane")

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared)
        self._lane = _Lane(prepared.spec, prepared.grid.origin, prepared.runs)

    def add(self, event: Event) -> None:
        """Add an `event` to the open tick: the fields of the schema by name, as a record in JSON has them.

        Other fields are ignored. Raises RejectedMessage if the event does not fit the schema or the horizon is reached
        (nothing has changed), and FailClosed in a forked process or after a release that failed.
        """
        self._add(self._changes((event,)))

    def update(self, events: Iterable[Event]) -> None:
        """Add `events` to the open tick: all of them or, where one is refused, none; errors are those of `add`."""
        self._add(self._changes(events))

    def _changes(self, events: Iterable[Event]) -> _Records:
        return self._lane.read(events)

    def _put(self, changes: _Records) -> None:
        self._lane.add(changes, self._tick)

    def _row(self) -> IntArray:
        return self._lane.close(self._tick)

    def _released(self, body: bytes) -> PublicRelease:
        return PublicRelease.of(body)

    def _repr_html_(self) -> str:
        rows = [] if self.last is None else rows_of("", self.last.body)
        return release_html(f"{self.name}: {how_many(self.ticks, 'tick')} released", rows)


class _Lane:
    """From events to the rows of ticks, as from the records of one partition."""

    __slots__ = ("_decoded", "_guard", "_memories", "_payloads", "_router", "_rows", "_ticks")

    def __init__(self, spec: PipelineSpec, origin: int, runs: Series) -> None:
        key = fresh_seed()  # users and identifiers are remembered by keyed hashes
        self._router = Router(spec, origin, None, key)
        self._guard = guard_of(spec, origin, key)
        self._guard.begin((0,))
        remembered = memories_of(self._router.layout, spec)
        self._memories = Memories(*self._guard.memories, *remembered)
        self._ticks = TickAssembler((0,), self._router.width)
        amounts = (runs.rows,) if runs.amounts else ()
        self._rows = Guard(self._router.width, amounts)
        self._payloads: list[bytes] = []
        self._decoded: list[Decoded] = []

    def read(self, events: Any) -> _Records:
        """Return events as records that fit the schema (RejectedMessage)."""
        if isinstance(events, str | bytes | Mapping) or not isinstance(events, Iterable):
            raise RejectedMessage(
                "the events of a tick must be a list of mappings; nothing was added"
            )
        payloads = [_payload(event) for event in events]
        decoded = self._router.decoder.decode(payloads)
        if decoded.refused:
            refusal = decoded.refused[0]
            field = "" if refusal.field is None else f" ({refusal.field})"
            raise RejectedMessage(
                f"an event does not fit the schema: {refusal.reason}{field}; nothing was added"
            )
        return payloads, decoded

    def add(self, records: _Records, tick: int) -> None:
        payloads, decoded = records
        self._payloads += payloads
        self._decoded.append(decoded)
        if len(self._payloads) >= _TOGETHER:
            self._route(tick)

    def close(self, tick: int) -> IntArray:
        self._route(tick, mark=tick)
        (counted,), _ = self._memories.record(self._ticks.closed(1))
        return self._rows.admit(counted.row)

    def _route(self, tick: int, mark: int | None = None) -> None:
        payloads, self._payloads = self._payloads, []
        parts, self._decoded = self._decoded, []
        places = range(len(payloads))
        decoded = replace(Decoded.joined(parts), positions=places) if payloads else None
        batch = Batch(0, payloads, places, 0, tick=tick, mark=mark, decoded=decoded)
        admitted = self._guard.admit(batch, tick - 1)
        self._ticks.add(admitted, self._router.route(admitted))


class MadeContinual(ContinualSeries):
    """A series that is made of what others release, which costs nothing: it has no events and no mechanism.

    Each `release` is of the tick that its inputs have released last.
    """

    __slots__ = ("_grid", "_inputs", "_made")

    def __init__(
        self, request: Request, spec: PipelineSpec, inputs: Sequence[ContinualSeries]
    ) -> None:
        self._begin(request)
        chosen = [source.prepared.chosen for source in inputs]
        (made,) = made_of_releases(spec, RowLayout.of(spec), chosen)
        self._made: MadeSeries = made.series
        self._inputs, self._grid = tuple(inputs), _grid(spec)

    @property
    def horizon(self) -> None:
        """It ends with its inputs."""
        return

    @property
    def derivation(self) -> Derivation:
        """Nothing (NotDerivable): what its inputs guarantee covers whatever is made of them ([HSV] 2.14)."""
        raise NotDerivable(
            f"{self.name} is computed from releases: see the derivations of {self._names}"
        )

    @property
    def _names(self) -> str:
        return " and ".join(source.name for source in self._inputs)

    def _changes(self, events: Iterable[Event]) -> _Records:
        raise RejectedMessage(
            f"{self.name} is computed from releases: add the events to {self._names}"
        )

    def _close(self) -> PublicRelease:
        releases = [source.last for source in self._inputs]
        ticks = {-1 if release is None else release.tick for release in releases}
        tick = max(ticks)
        if len(ticks) > 1 or tick < self._tick:
            raise RejectedMessage(
                f"{self.name} is computed from releases of the same tick: release {self._names} "
                "first"
            )
        bodies = {release.series: release.body for release in releases if release is not None}
        self._last = PublicRelease.of(self._made.body(self._grid, tick + 1, tick, bodies))
        self._tick = tick + 1
        return self._last


def _plain(value: Any) -> int | float:
    """Turn a number of another library into one that JSON has."""
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise TypeError("is not a value that a record can have")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain, decimal_format="number")


def _payload(event: Any) -> bytes:
    if not isinstance(event, Mapping):
        raise RejectedMessage("an event must be a mapping from fields to values; nothing was added")
    try:
        return _ENCODER.encode(dict(event))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        raise RejectedMessage(
            "an event has a value that no record can have; nothing was added"
        ) from None
