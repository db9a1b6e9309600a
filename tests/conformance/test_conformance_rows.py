"""The worker's own lane keeps the contract of rows, and hosts that break it are found."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec
import pytest

from stream_dp.engine.lanes import workers
from stream_dp.engine.lanes.rows import LaneChain, LaneRow, Layout, Stamp, encoded, row_in
from stream_dp.errors import FailClosed
from stream_dp.kafka.source.batches import batches
from stream_dp.operate.keys import worker_keys_for
from stream_dp.operate.run.hosted import HostedLane, LaneHost, RawRecord
from stream_dp.pipeline.router import Counting
from stream_dp.pipeline.yaml import load
from stream_dp.testing import rows as suite
from stream_dp.testing.rows import ROWS_CHECKS, SETTLE, TICKS, Opening, RowsCase


@pytest.mark.parametrize("check", ROWS_CHECKS, ids=lambda check: check.__name__)
def test_the_lane_of_workers_keeps_the_contract(check: Callable[[RowsCase], None]) -> None:
    check(RowsCase())


def test_a_host_of_events_alone_is_not_asked_for_users() -> None:
    class Refusing(HostedLane):
        def __init__(self, host: LaneHost, number: int) -> None:
            assert host.spec.privacy.unit == "event"
            super().__init__(host, number)

    for check in ROWS_CHECKS:
        check(RowsCase(made(Refusing), users=False))


def test_the_worlds_hold_what_the_contract_speaks_of() -> None:
    with suite._worlds(RowsCase()) as worlds:
        for of_users in (False, True):
            said = [row for world in worlds if world.users == of_users for row in world.model]
            assert len(said) == len(worlds) // 2 * TICKS
            assert sum(row.late for row in said) > 10
            assert sum(row.dead for row in said) > 10
            assert sum(len(row.pending) for row in said) > 10
            assert (sum(row.capped for row in said) > 10) == of_users


def made(twin: type[HostedLane]) -> Callable[[Opening], HostedLane]:
    def make(opening: Opening) -> HostedLane:
        known = opening.layouts[: 1 if twin is HearsNoLayouts else None]
        host = LaneHost.of(opening.pipeline, opening.key_file, known)
        assert host is not None
        return twin(host, opening.lane)

    return make


class Unfiltered(HostedLane):
    """Counts what is delivered again."""

    def feed(self, partition: int, records: Sequence[RawRecord]) -> None:
        log = self._logs[partition]
        for batch in batches(records):
            log.take(batch)
        log.flush()
        self._take()


class StopsAtJunk(HostedLane):
    """Decodes records itself, and fails at what is none."""

    def feed(self, partition: int, records: Sequence[RawRecord]) -> None:
        for record in records:
            msgspec.json.decode(record.value or b"")
        super().feed(partition, records)


class DropsTombstones(HostedLane):
    """Leaves out records without a value."""

    def feed(self, partition: int, records: Sequence[RawRecord]) -> None:
        super().feed(partition, [record for record in records if record.value is not None])


class DropsJunk(HostedLane):
    """Leaves out what it cannot decode, so nobody learns of it."""

    def feed(self, partition: int, records: Sequence[RawRecord]) -> None:
        def decodes(record: RawRecord) -> bool:
            try:
                msgspec.json.decode(record.value or b"")
            except (msgspec.DecodeError, RecursionError):
                return False
            return True

        super().feed(partition, [record for record in records if decodes(record)])


class OneWatermark(HostedLane):
    """Lets the newest stamp of any partition end the ticks of all of them."""

    def feed(self, partition: int, records: Sequence[RawRecord]) -> None:
        super().feed(partition, records)
        for other in self._logs:
            self.quiet(other, records[-1].timestamp, 0)


class IdleTimeout(HostedLane):
    """Ends the ticks of a silent partition without a look at its end."""

    def quiet(self, partition: int, stamp: int, end: int) -> None:
        super().quiet(partition, stamp, 0)


class NeverQuiet(HostedLane):
    """Waits for the next record, however long a partition is silent."""

    def quiet(self, partition: int, stamp: int, end: int) -> None:
        pass


class ByEventTime(HostedLane):
    """Settles at once: what comes a little late is late."""

    def feed(self, partition: int, records: Sequence[RawRecord]) -> None:
        eager = [record._replace(timestamp=record.timestamp + SETTLE) for record in records]
        super().feed(partition, eager)


class Sealing(HostedLane):
    """Writes other rows than its lane makes."""

    def change(self, row: LaneRow) -> LaneRow:
        return row

    def stamp(self, row: LaneRow) -> Stamp:
        return Stamp("row", row.lane, row.tick, row.epoch)

    def rows(self) -> list[Any]:
        changed = [self.change(row_in(plain)) for _, plain in self._work.rows()]
        return [self._host.sealer.record(self.stamp(row), encoded(row)) for row in changed]


class StampsLaneZero(Sealing):
    def stamp(self, row: LaneRow) -> Stamp:
        return super().stamp(msgspec.structs.replace(row, lane=0))


class LosesTheChain(Sealing):
    """Does not name the row before."""

    def change(self, row: LaneRow) -> LaneRow:
        return msgspec.structs.replace(row, previous=bytes(32))


class TellsTheTime(Sealing):
    """Puts a clock into its rows."""

    def change(self, row: LaneRow) -> LaneRow:
        return msgspec.structs.replace(row, late=row.late + time.monotonic_ns())


class SkipsEmptyTicks(HostedLane):
    """Writes no row where nothing was counted."""

    def rows(self) -> list[Any]:
        every = [(stamp, plain) for stamp, plain in self._work.rows() if row_in(plain).records]
        return [self._host.sealer.record(*pair) for pair in every]


class Deaf(HostedLane):
    """Hears no rows while it reads."""

    begun = False

    def begin(self, starts: Mapping[int, int]) -> dict[int, int]:
        self.begun = True
        return super().begin(starts)

    def hear(self, headers: Iterable[tuple[str, bytes]], value: bytes) -> None:
        if not self.begun:
            super().hear(headers, value)


class FromTheBegin(HostedLane):
    """Reads again from the begin, as if nothing had counted."""

    def hear(self, headers: Iterable[tuple[str, bytes]], value: bytes) -> None:
        pass


class PassesOver(HostedLane):
    """Takes what does not open for nothing."""

    def hear(self, headers: Iterable[tuple[str, bytes]], value: bytes) -> None:
        try:
            super().hear(headers, value)
        except FailClosed:
            return


class AnyLane(HostedLane):
    """Counts records of partitions of other lanes."""

    def _require_mine(self, partition: int) -> None:
        pass


class HearsNoLayouts(HostedLane):
    """Goes on with the layout that it began with."""


class CountsTheFileAlone(HostedLane):
    """Counts nothing that a layout adds, and everything that it mutes."""

    def __init__(self, host: LaneHost, number: int) -> None:
        host.router.count(Counting((), (), host.layout.width))
        super().__init__(host, number)


TWINS: dict[type[HostedLane], str] = {
    Unfiltered: "repeats", StopsAtJunk: "hostile", DropsTombstones: "hostile", DropsJunk: "hostile",
    OneWatermark: "order", IdleTimeout: "silence", NeverQuiet: "silence", ByEventTime: "counts",
    StampsLaneZero: "counts", LosesTheChain: "counts", TellsTheTime: "order", SkipsEmptyTicks: "counts",
    Deaf: "contested", FromTheBegin: "kills", AnyLane: "lanes",
    HearsNoLayouts: "epochs", CountsTheFileAlone: "epochs",
}  # fmt: skip
"""Hosts that break the contract, each with a check that finds it."""


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_a_host_that_breaks_the_contract_is_found(twin: type[HostedLane]) -> None:
    found = {line.partition(":")[0] for line in found_in(RowsCase(made(twin)))}
    assert f"check_{TWINS[twin]}" in found


def found_in(case: RowsCase) -> list[str]:
    """The rules that a host breaks."""
    broken = list[str]()
    for check in ROWS_CHECKS:
        try:
            check(case)
        except AssertionError as error:
            broken.append(f"{check.__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - a host that stops is broken
            broken.append(f"{check.__name__}: {type(error).__name__}")
    return broken


@pytest.mark.parametrize("twin", ["users", "pending", "epoch", "anchor", "key"])
def test_a_lane_that_forgets_is_found(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, counted = LaneChain.take, LaneChain._count
    case = RowsCase()
    if twin == "users":
        monkeypatch.setattr(workers, "remember", lambda guard, row: None)
    elif twin == "pending":

        def forgetting(chain: LaneChain, row: LaneRow, found: bytes) -> None:
            counted(chain, row, found)
            chain.cut = replace(chain.cut, pending={})

        monkeypatch.setattr(LaneChain, "_count", forgetting)
    elif twin == "epoch":

        class AnyEpoch(LaneChain):
            def take(self, row: LaneRow, plain: bytes) -> Any:
                of_this = msgspec.structs.replace(row, epoch=self._layout.epoch)
                return taken(self, of_this, encoded(of_this))

        monkeypatch.setattr(workers, "LaneChain", AnyEpoch)
    elif twin == "anchor":
        monkeypatch.setattr(LaneChain, "require_begun", lambda chain: None)
    else:
        layouts = list[Layout]()

        def with_a_cached_layout(opening: Opening) -> HostedLane:
            spec = load(opening.pipeline)
            try:
                host = LaneHost.of(opening.pipeline, opening.key_file, opening.layouts)
                assert host is not None
                layouts.append(host.layout)
            except FailClosed:
                host = LaneHost(spec, worker_keys_for(spec, opening.key_file), layouts[-1])
            return PassesOver(host, opening.lane)

        case = RowsCase(with_a_cached_layout)
    assert found_in(case)


def test_a_stamp_that_is_not_of_its_row_is_found() -> None:
    numbers = count()

    class Numbered(Sealing):
        def stamp(self, row: LaneRow) -> Stamp:
            return Stamp("row", row.lane, next(numbers), row.epoch)

    assert found_in(RowsCase(made(Numbered)))
