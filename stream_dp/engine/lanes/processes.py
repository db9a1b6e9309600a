"""Lanes: several processes read the source, each the partitions of one lane, and their closed ticks are added up here.

A `Lane` runs in a process of its own: source -> guard -> router -> ticks, as `OwnReader` does, over pipes. `LaneReader`
is the engine's side. A partition is in lane `partition mod lanes`, so a user, whose records lie in one partition, is in
one lane.

Rules: nothing that a lane holds is durable. It is told where to begin: the cut, what its users have used of their
caps, and what is counted. From there all is read as one process would read it, so a lane that ends, or falls silent,
begins again at the engine's cut, with all others. The sum of lanes is a tick once every lane has it. What a lane's
records used of caps is checked once more here, where all lanes meet. Reports hold exact counts and keyed hashes:
private.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, cast

from stream_dp.engine.ports import Beginning, Behinds, Channel, Crew, Positions, Source
from stream_dp.engine.tick_assembler import (
    ClosedTick,
    Cut,
    Row,
    TickAssembler,
    dense,
    total,
)
from stream_dp.engine.tick_reader import Gathering, Reader, RecordGuard
from stream_dp.engine.user_table import Arrivals, Used
from stream_dp.errors import EngineEnded, FailClosed, StreamDPError, WorldError
from stream_dp.journal.dead_letters import DeadLetters

BEAT_S = 1.0
"""How often a lane says that it is there."""
SILENT_S = 5.0
SILENCES, BEGINNING = 3, 12
"""A lane that says nothing for so many times so long hangs, and is ended; `BEGINNING` is for its first word."""
DEATHS = 4
"""So often in a row, without a tick between, may lanes end before the engine does."""
QUEUED = 4
"""How many messages of a lane wait until the others have the same ticks."""
_log = logging.getLogger(__name__)


class Counting(Protocol):
    """A router whose counting another one, in another process, can take over."""

    def counting(self) -> Any:
        """Return what is counted now, for `count`."""

    def count(self, counting: Any) -> None:
        """Count this from here on."""


@dataclass(frozen=True, slots=True, repr=False)
class Seek:
    """Let the source stand here, and say `Sought`."""

    epoch: int
    positions: Positions
    behind: Behinds


@dataclass(frozen=True, slots=True, repr=False)
class Go:
    """Read on, behind this cut, and count this. `held` is what users have used of their caps at the cut, by memory;
    None: the lane knows.
    """

    epoch: int
    cut: Cut
    counting: Any
    held: Mapping[str, Mapping[int, bytes]] | None
    group: int


@dataclass(frozen=True, slots=True, repr=False)
class Settled:
    """Nothing before this tick is read again."""

    next_tick: int


Order: TypeAlias = Seek | Go | Settled


@dataclass(frozen=True, slots=True, repr=False)
class Sought:
    epoch: int


@dataclass(frozen=True, slots=True, repr=False)
class Came:
    """The next closed ticks of a lane (none: its source is at the end), and the known ends of its partitions."""

    epoch: int
    ticks: Sequence[ClosedTick]
    ends: Positions


@dataclass(frozen=True, slots=True, repr=False)
class Failed:
    """The lane has ended with this error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Logged:
    level: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Beat:
    """The lane is there."""


Report: TypeAlias = Sought | Came | Failed | Logged | Beat


class Lane:
    """Reads the partitions of one lane; the source gives no others."""

    def __init__(
        self,
        source: Source,
        guard: RecordGuard,
        router: Any,
        opened: Callable[[], Awaitable[Sequence[int]]],
        tell: Callable[[Report], Awaitable[None]],
        ends: Callable[[], Positions] = dict,
    ) -> None:
        """`opened` opens the source and returns its partitions; `router` can take over a `Counting`."""
        self._source, self._guard, self._router = source, guard, router
        self._opened, self._tell, self._ends = opened, tell, ends
        self._partitions: Sequence[int] = ()
        self._sent: deque[tuple[int, Sequence[Used]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def serve(self, orders: Callable[[], Awaitable[Order]]) -> None:
        """Do as told until `orders` raises EOFError, or this lane fails, which it tells."""
        try:
            self._partitions = await self._opened()
            while True:
                match await orders():
                    case Seek(epoch, positions, behind):
                        await self._end()
                        await self._source.seek(positions, behind)
                        await self._tell(Sought(epoch))
                    case Go() as go:
                        self._begin(go)
                    case Settled(next_tick):
                        self._settle(next_tick)
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001 - the engine decides what it means
            await self._tell(Failed(_sendable(error)))
        finally:
            await self._end()

    async def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _begin(self, go: Go) -> None:
        self._settle(go.cut.next_tick)
        self._sent.clear()
        for memory in self._guard.memories:
            memory.rewind(go.cut)
        if go.held is not None:
            restore(self._guard, go.held, go.cut.next_tick)
        self._router.count(go.counting)
        self._task = asyncio.create_task(self._read(go))

    async def _read(self, go: Go) -> None:
        ticks = TickAssembler(self._partitions, self._router.width, go.cut)

        async def put(closed: list[ClosedTick]) -> None:
            self._sent += [(each.tick, each.used) for each in closed]
            await self._tell(Came(go.epoch, closed, self._ends()))

        gathering = Gathering(self._guard, self._router, ticks)
        try:
            await gathering.to_the_end(self._source, go.cut.next_tick, go.group, put)
        except Exception as error:  # noqa: BLE001 - the engine decides what it means
            await self._tell(Failed(_sendable(error)))

    def _settle(self, next_tick: int) -> None:
        taken = list[Used]()
        while self._sent and self._sent[0][0] < next_tick:
            taken += self._sent.popleft()[1]
        settle(self._guard, taken, next_tick)


def held_by(guard: RecordGuard) -> dict[str, dict[int, bytes]]:
    """Return what users have used of their caps at the cut, by memory and window."""
    return {memory.kind: memory.held() for memory in guard.memories}


def restore(guard: RecordGuard, held: Mapping[str, Mapping[int, bytes]], next_tick: int) -> None:
    """Let an empty guard stand before this tick, with what `held_by` returned there."""
    for memory in guard.memories:
        memory.become(held.get(memory.kind, {}), next_tick)


def settle(guard: RecordGuard, taken: Sequence[Used], next_tick: int) -> None:
    """Let a guard stand before this tick, behind records that used this much of the caps."""
    for memory in guard.memories:
        memory.take((used for used in taken if used.kind == memory.kind), next_tick)


def _sendable(error: Exception) -> Exception:
    """Return the error, or one that says the same: an exception of a library may not come through a pipe."""
    if isinstance(error, StreamDPError):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


@dataclass(slots=True, repr=False, eq=False)
class _Seat:
    """The engine's side of a lane."""

    number: int
    channel: Channel | None = None
    fresh: bool = True
    sought: int = -1
    came: deque[deque[ClosedTick]] = field(default_factory=deque)
    ended: bool = False
    hearing: asyncio.Task[None] | None = None

    def mine(self, by_partition: Mapping[int, Any], lanes: int) -> dict[int, Any]:
        return {at: part for at, part in by_partition.items() if at % lanes == self.number}

    def take(self) -> ClosedTick:
        closed = self.came[0].popleft()
        if not self.came[0]:
            self.came.popleft()
        return closed


class _Together(Mapping[int, Row]):
    """The rows of later ticks of several lanes, added up when they are asked for."""

    def __init__(self, parts: Sequence[Mapping[int, Row]], width: int) -> None:
        self._parts, self._width = parts, width

    def __getitem__(self, tick: int) -> Row:
        rows = [part[tick] for part in self._parts if tick in part]
        if not rows:
            raise KeyError(tick)
        return total(rows, self._width)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({tick for part in self._parts for tick in part}))

    def __len__(self) -> int:
        return len({tick for part in self._parts for tick in part})

    def __repr__(self) -> str:
        return "<_Together>"


def together(parts: Sequence[ClosedTick], width: int, guard: RecordGuard) -> ClosedTick:
    """Return the tick whose parts these are; what they used of caps is counted here by the memories of `guard`."""
    arrived, arriving = Arrivals(), dict[int, Arrivals]()
    for part in parts:
        arrived.add(part.arrived)
        for tick, columns in part.arriving.items():
            arriving.setdefault(tick, Arrivals()).add(columns)
    row = dense(total([part.row for part in parts], width), width)
    row.flags.writeable = False
    return ClosedTick(
        parts[0].tick, row,
        {at: where for part in parts for at, where in part.positions.items()},
        {at: mark for part in parts for at, mark in part.marks.items()},
        _Together([part.pending for part in parts], width),
        DeadLetters(*(part.dead_letters for part in parts)),
        sum(part.late for part in parts),
        sum(part.records for part in parts),
        {at: open_there for part in parts for at, open_there in part.behind.items()},
        [_counted(used, guard) for part in parts for used in part.used],
        sum(part.capped for part in parts),
        arrived.once(),
        {tick: columns.once() for tick, columns in sorted(arriving.items())},
    )  # fmt: skip


def _counted(used: Used, guard: RecordGuard) -> Used:
    """Count here what a lane's records used of a cap."""
    (memory,) = (memory for memory in guard.memories if memory.kind == used.kind)
    counted = memory.count(used.counted)
    if counted is None:
        raise FailClosed(
            "two lanes together count more events of a user than the cap allows. All records of "
            "a user must be in one partition. Nothing of this tick was committed or published; "
            "please report it"
        )
    return counted


@dataclass(slots=True, repr=False, eq=False, kw_only=True)
class LaneReader(Reader):
    """Reads by lanes, as many as `lanes`, in processes of the `crew`."""

    crew: Crew
    lanes: int
    beginning: Beginning
    _seats: Sequence[_Seat] = ()
    _epoch: int = 0
    _deaths: int = 0
    _error: Exception | None = None
    _waking: "asyncio.Task[None] | None" = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def seek(self, cut: Cut) -> None:
        """Start the lanes that do not run, and let all stand at the cut; raises what a lane fails with."""
        self._seats = self._seats or [_Seat(number) for number in range(self.lanes)]
        self._epoch += 1
        while True:
            self.lost = False
            for seat in self._seats:
                seat.came.clear()
                seat.ended = False
                if seat.channel is None:
                    await self._start(seat)
                if seat.sought != self._epoch and seat.channel is not None:
                    share = self._share(seat, cut)
                    seat.channel.send(Seek(self._epoch, share.positions, share.behind))
            self._changed.set()  # those that waited for room hear on
            await self._until(self._all_sought)
            if not self.lost:
                return

    def _all_sought(self) -> bool:
        return self.lost or all(seat.sought == self._epoch for seat in self._seats)

    async def _read(self, cut: Cut, group: int) -> None:
        counting = cast("Counting", self.router).counting()
        held = None
        if any(seat.fresh for seat in self._seats):
            held = held_by(self.guard)
        for seat in self._seats:
            share = self._share(seat, cut)
            if seat.number:  # rows of open ticks, and their identifiers, are added up: one lane goes on with them
                share = replace(share, pending={}, arriving={})
            if seat.channel is not None:
                seat.channel.send(
                    Go(self._epoch, share, counting, held if seat.fresh else None, group)
                )
            seat.fresh = False
        tick = cut.next_tick
        while True:
            await self._until(lambda: all(seat.came or seat.ended for seat in self._seats))
            closed = self._closed(group - tick % group)
            if not closed:
                return await self.inbox.put([])
            tick = closed[-1].tick + 1
            await self.inbox.put(closed, group)

    @property
    def waiting(self) -> dict[int, int]:
        """How many closed ticks of each lane wait for those of the others."""
        return {seat.number: sum(map(len, seat.came)) for seat in self._seats}

    def _closed(self, limit: int) -> list[ClosedTick]:
        """Return up to `limit` ticks that every lane has."""
        closed = list[ClosedTick]()
        while len(closed) < limit and all(seat.came for seat in self._seats):
            closed.append(together([seat.take() for seat in self._seats], self.width, self.guard))
        self._changed.set()
        return closed

    def settled(self, next_tick: int) -> None:
        self._deaths = 0
        for seat in self._seats:
            if seat.channel is not None:
                seat.channel.send(Settled(next_tick))

    async def forget(self) -> None:
        self._epoch += 1  # what lanes have sent is not wanted
        for seat in self._seats:
            seat.came.clear()
        self._changed.set()
        await Reader.forget(self)

    async def close(self) -> None:
        """End all lanes."""
        hearing = [seat.hearing for seat in self._seats if seat.hearing is not None]
        for task in (*hearing, self._waking):
            if task is not None:
                task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)
        await self.crew.close()

    def _share(self, seat: _Seat, cut: Cut) -> Cut:
        return replace(
            cut,
            positions=seat.mine(cut.positions, self.lanes),
            marks=seat.mine(cut.marks, self.lanes),
            behind=seat.mine(cut.behind, self.lanes),
        )

    async def _start(self, seat: _Seat) -> None:
        seat.channel = await self.crew.enlist(seat.number, self.lanes, self.beginning)
        seat.fresh, seat.sought = True, -1
        seat.hearing = asyncio.create_task(self._hear(seat, seat.channel))

    async def _hear(self, seat: _Seat, channel: Channel) -> None:
        """Take a lane's reports until it ends; then let the engine read again."""
        silences = BEGINNING
        try:
            while (report := await _reported(channel, silences)) is not None:
                silences = SILENCES
                await self._heard(seat, report)
        except EOFError:
            pass
        except Exception as error:  # noqa: BLE001 - what raised it must not leave the engine waiting
            self._error = self._error or error
        channel.kill()
        seat.channel = None
        self._lose()

    async def _heard(self, seat: _Seat, report: Report) -> None:
        if isinstance(report, Came):
            await self._take(seat, report)
        elif isinstance(report, Sought):
            seat.sought = report.epoch
        elif isinstance(report, Failed):
            self._error = self._error or report.error
        elif isinstance(report, Logged):
            logging.getLogger(report.name).log(report.level, "%s", report.text)
        self._changed.set()

    async def _take(self, seat: _Seat, came: Came) -> None:
        """Keep the ticks once there is room for them, unless all begins again meanwhile."""
        self.crew.ends.update(came.ends)
        while len(seat.came) >= QUEUED and came.epoch == self._epoch:
            self._changed.clear()
            await self._changed.wait()
        if came.epoch == self._epoch and came.ticks:
            seat.came.append(deque(came.ticks))
        elif came.epoch == self._epoch:
            seat.ended = True

    def _lose(self) -> None:
        self._deaths += 1
        if self._deaths > DEATHS:
            self._error = self._error or WorldError(
                f"processes that read lanes ended {self._deaths} times before any tick was complete; is there enough "
                "memory? What was published stays valid"
            )
        elif self._error is None:
            _log.warning(
                "A process that reads the source has ended or hangs; its lane begins again at the last commit: nothing "
                "is lost or counted twice"
            )
        self.lost = True
        self._changed.set()
        if self._waking is None or self._waking.done():
            self._waking = asyncio.create_task(self._wake())

    async def _wake(self) -> None:
        """Let the engine come to cuts until it reads again what is lost."""
        with suppress(EngineEnded, WorldError):
            while self.lost:
                await self.inbox.executed(_nothing)

    async def _until(self, there: Callable[[], bool]) -> None:
        while True:
            if self._error is not None:
                raise self._error
            if there():
                return
            self._changed.clear()
            await self._changed.wait()


async def _reported(channel: Channel, silences: int) -> Report | None:
    """Return the next report; None if the lane is silent for too long. Raises EOFError at its end."""
    for _ in range(silences):
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENT_S):
                report: Report = await channel.receive()
                return report
    return None


async def _nothing() -> None:
    return None
