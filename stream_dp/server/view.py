"""The data of the HTTP server: published releases, byte for byte, and public configuration.

Rules: a `ReleaseLog` contains published releases only, and its bytes are sent unchanged; a body is never parsed.
Sequence numbers grow. The same release twice is one release; another body under a published sequence number is a
fail-closed stop. Readers own their position in the log, so a slow reader costs nothing and misses nothing. One event
loop; not for threads. `LiveSeriesService` is what the API asks of live series: a definition is passed on byte for byte,
and the engine interprets it. Only the keys of an answer that `server.models.asked` lists are sent, so an engine that
returns more cannot leak it. Amounts are decimal strings. This file must not know HTTP, events, counts of them, their
rate or what waits.
"""

import asyncio
import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.commit import Release

LARGEST_DEFINITION = 64 * 1024  # bytes


class Sender(NamedTuple):
    """The sender of a request: the analyst of the token ("": the operator), and the request's `key` ("": none).

    `accept_noise`: create the series even if it would fire mostly by noise.
    """

    signer: str = ""
    key: str = ""
    accept_noise: bool = False


BY_OPERATOR = Sender()


class LiveSeriesService(Protocol):
    """The live series of one engine. Calls may overlap; the service puts them in order.

    The same request of a sender with the same `key` is done once and answered the same.

    A `definition` is a JSON object like an entry of `series:` in the pipeline file. `analyst` names whose quota
    pays, "" for nobody's. `server.models.asked` says what the keys of an answer mean. Errors name keys and never
    repeat a value of the definition:

    Raises:
        UsageError: the definition is not valid, or its name is taken; the text lists every problem with its key.
        MostlyNoise: the series would fire mostly by noise, and the sender does not accept that.
        NotYours: the sender has no right to do this.
        NotAccepted: there are too many requests, or the key was used for another request.
        BudgetRefused: the price does not fit; the text states asked, spent, left, and the largest that would fit.
        NoRoom: the payer may have no more live series; the text says which to halt.
        UnknownMechanism: no mechanism of this name runs.
        FailClosed, WorldError: the engine is stopping, or could not make the charge durable.
    """

    async def create(self, definition: bytes, analyst: str, sender: Sender) -> Mapping[str, Any]:
        """Charge, then create; return a `Created`. After an error nothing has changed."""
        ...

    async def halt(self, name: str, sender: Sender) -> Mapping[str, Any]:
        """End the series, which frees budget for later ticks. Return a `Halted`."""
        ...

    async def preview_halt(self, name: str, sender: Sender) -> Mapping[str, Any]:
        """Return as `HaltPreview` what `halt` would give back, changing nothing."""
        ...

    async def preview(self, definition: bytes, analyst: str, sender: Sender) -> Mapping[str, Any]:
        """Return as `Preview` what `create` would do now, changing nothing; `spent` is in the filter's `unit`."""
        ...

    async def message(self, text: bytes, signer: str) -> bytes:
        """Execute a message; return the exact bytes of its answer, which may be a refusal."""
        ...

    async def ask(self, name: str, parameters: bytes, sender: Sender) -> bytes:
        """Ask a series; return the exact bytes of the answer, which may be a refusal."""
        ...

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return all series, including the file's, each as a `Query`."""
        ...


VALID = "valid"


class TokenHolder(NamedTuple):
    """An analyst ("": the operator), and the id, expiry (RFC 3339 in UTC) and state of an issued token.

    `state` is "valid", "expired" or "revoked".
    """

    analyst: str
    token: str = ""
    expires: str = ""
    state: str = VALID


class TokenReader(NamedTuple):
    """Who may read with an issued token, its id and its state. This is no `TokenHolder`: readers never ask."""

    name: str
    token: str
    state: str = VALID


NOTHING = -1
ENDED = 100
"""The number of ended series that are kept: the last ended ones."""
ROOM_BYTES = 256 * 2**20
"""The memory for all releases if not all are kept."""
_MADE_AT_ONCE = 256  # room is made in steps of this fraction, not at each release
_LEAST_BODY_BYTES = 80
_BESIDE_BODY_BYTES = 250  # overhead of a release in memory


_by_sequence = attrgetter("sequence")
_by_tick = attrgetter("tick")


@dataclass(slots=True)
class _Kept:
    """The releases of a series in memory, the number of dropped ones before them, and their size."""

    releases: list[Release] = field(default_factory=list)
    dropped: int = 0
    bytes: int = 0


class ReleaseLog:
    """Every published release in memory, or the newest `keep` of each running series and of the last ended ones.

    With `keep`, the log may begin with a later release than the first, and all series together have `ROOM_BYTES`:
    beyond that, the largest series loses its oldest releases. So a large series takes no room from a small one, and
    each series keeps its newest release. A running series has a release at every tick.

    >>> log = ReleaseLog()
    >>> log.append(Release(0, "total", 7, b'{"v":1,"sequence":0,"series":"total","tick":7,"value":12}'))
    >>> log.append(Release(1, "total", 8, b'{"v":1,"sequence":1,"series":"total","tick":8,"value":15}'))
    >>> [release.tick for release in log.series_between("total", 8, 100)]
    [8]
    >>> [release.sequence for release in log.since(0)]
    [1]
    """

    def __init__(self, keep: int | None = None) -> None:
        if keep is not None and keep < 1:
            raise UsageError(f"keep must be at least 1 release per series or None, got {keep}")
        self._keep, self._bytes = keep, 0
        self._series: dict[str, _Kept] = {}
        self._last = self._tick = self._looked = self._forgotten = NOTHING
        self._changed, self._waiting = asyncio.Event(), 0

    def begins_with(self, sequence: int) -> None:
        """Note, before the first release, that releases before this sequence number are not in the log."""
        self._forgotten = max(self._forgotten, sequence - 1)

    @property
    def last_sequence(self) -> int:
        """The newest sequence number, -1 before the first release."""
        return self._last

    @property
    def forgotten(self) -> int:
        """The newest dropped sequence number, -1 if none: earlier positions have a gap."""
        return self._forgotten

    def append(self, release: Release) -> None:
        """Add one published release, again without effect; FailClosed if it is out of order or has other bytes."""
        if release.sequence <= self._last:
            self._check_same(release)
            return
        if self._keep is not None and self._last == NOTHING and release.sequence > 1:
            self._forgotten = release.sequence - 1  # earlier releases were not read again
        kept = self._series.get(release.series)
        if kept is None:
            self._forget_ended()
            kept = self._series[release.series] = _Kept()
        releases, size = kept.releases, _bytes_of(release)
        if releases and release.tick < releases[-1].tick:
            raise FailClosed(f"series {release.series!r} went back in time to tick {release.tick}")
        releases.append(release)
        kept.bytes += size
        self._bytes += size
        self._last = release.sequence
        if self._keep is not None:
            if len(releases) > self._keep:
                self._drop_first(kept)
            if self._bytes > ROOM_BYTES:
                self._make_room()
        self._tick = max(self._tick, release.tick)
        if self._waiting:
            self.wake()

    @property
    def ticks(self) -> int:
        return self._tick + 1

    def most_ticks(self, ages: Iterable[int]) -> int | None:
        """Return of how many of the last ticks it may keep releases; None: of all. `ages` are the numbers of ticks that
        each running series has seen, with a release each.
        """
        if self._keep is None:
            return None
        room, ordered = ROOM_BYTES // (_LEAST_BODY_BYTES + _BESIDE_BODY_BYTES), sorted(ages)
        for done, age in enumerate(ordered):
            share = room // (len(ordered) - done)
            if age > share:
                return min(self._keep, share + 1)
            room -= age
        return self._keep

    def names(self) -> tuple[str, ...]:
        return tuple(self._series)

    def latest(self) -> Mapping[str, Release]:
        return {name: kept.releases[-1] for name, kept in self._series.items()}

    def series_between(self, name: str, from_tick: int, to_tick: int) -> Sequence[Release]:
        """Return the releases of one series from `from_tick` to `to_tick`, both included, in order."""
        return self.at(name, self.places_between(name, from_tick, to_tick))

    def places_between(self, name: str, from_tick: int, to_tick: int) -> range:
        """Return the places of these releases in their series, counted from its first release, dropped or not."""
        kept = self._series.get(name, _Kept())
        start = kept.dropped + bisect_left(kept.releases, from_tick, key=_by_tick)
        return range(start, kept.dropped + bisect_right(kept.releases, to_tick, key=_by_tick))

    def at(self, name: str, places: range) -> Sequence[Release]:
        """Return the releases at these places of a series, in order; empty if the first was dropped."""
        kept = self._series.get(name, _Kept())
        if places.start < kept.dropped:
            return []
        return kept.releases[places.start - kept.dropped : places.stop - kept.dropped]

    def since(self, sequence: int, limit: int | None = None) -> Sequence[Release]:
        """Return the first `limit` releases after `sequence`, over all series, in order of publication."""
        releases: list[Release] = []
        for kept in self._series.values():
            start = bisect_right(kept.releases, sequence, key=_by_sequence)
            releases += kept.releases[start : None if limit is None else start + limit]
        return sorted(releases, key=_by_sequence)[:limit]

    async def wait_beyond(self, sequence: int, seconds: float) -> None:
        """Wait for a release after `sequence`, for `wake`, or until `seconds` are over."""
        if self._last <= sequence:
            self._waiting += 1
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return
            finally:
                self._waiting -= 1

    def wake(self) -> None:
        """Let every waiting reader look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _make_room(self) -> None:
        largest = [(-kept.bytes, name) for name, kept in self._series.items()]
        heapq.heapify(largest)
        while largest and self._bytes > ROOM_BYTES - ROOM_BYTES // _MADE_AT_ONCE:
            _, name = largest[0]
            kept = self._series[name]
            if len(kept.releases) == 1:
                heapq.heappop(largest)
                continue
            self._drop_first(kept)
            heapq.heapreplace(largest, (-kept.bytes, name))

    def _drop_first(self, kept: _Kept) -> None:
        first = kept.releases.pop(0)
        size = _bytes_of(first)
        kept.dropped += 1
        kept.bytes -= size
        self._bytes -= size
        self._forgotten = max(self._forgotten, first.sequence)

    def _forget_ended(self) -> None:
        if self._keep is None or len(self._series) <= ENDED or self._looked == self._tick:
            return
        self._looked = self._tick  # many series may begin in one tick
        ended = [newest for newest in self.latest().values() if newest.tick < self._tick - 1]
        for last in sorted(ended, key=_by_sequence)[:-ENDED]:
            self._forgotten = max(self._forgotten, last.sequence)
            self._bytes -= self._series.pop(last.series).bytes

    def _check_same(self, release: Release) -> None:
        for known in self.since(release.sequence - 1, limit=1):
            if known.sequence == release.sequence and known.body == release.body:
                return
        if release.sequence > self._forgotten:
            raise FailClosed(
                f"release {release.sequence} of series {release.series!r} came out of order, or came "
                "a second time with other bytes. Published releases never change; check who writes "
                "to this sink"
            )


def _bytes_of(release: Release) -> int:
    return len(release.body) + _BESIDE_BODY_BYTES


class Behind(NamedTuple):
    """For how many seconds the next tick should have been public, and in how many more the public ticks will have
    caught up at their present rate (None: the rate is not known, or too low).
    """

    behind: int
    caught_up_in: int | None


@dataclass(frozen=True)
class PublicView:
    """Everything the server can answer with; anything else cannot leak.

    The first three functions are called for each answer, because series are added while the engine runs; their
    results have the forms of `server.models.configured`. `schema` returns what can be asked. `live_series` works for
    holders of `token` (empty: for nobody), or of a token in `analysts` (by name) or in `issued`, each with an own
    ledger. `readers` returns whose reading token a text is. `catching_up` says whether the engine has lost its
    brokers, `behind` how late public ticks are.
    """

    pipeline: Callable[[], Mapping[str, Any]]
    plan: Callable[[], Mapping[str, Any]]
    budget: Callable[[], Mapping[str, Any]]
    log: ReleaseLog
    live_series: LiveSeriesService | None = None
    token: str = field(default="", repr=False)
    analysts: Mapping[str, str] = field(default_factory=dict, repr=False)
    issued: Callable[[str], TokenHolder | None] = lambda _token: None
    readers: Callable[[str], TokenReader | None] = lambda _token: None
    schema: Callable[[], Mapping[str, Any]] = lambda: {"fields": (), "statistics": ()}
    catching_up: Callable[[], bool] = lambda: False
    behind: Callable[[], Behind | None] = lambda: None
