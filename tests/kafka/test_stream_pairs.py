"""One added event, whatever it holds, changes one tick row by one, or adds one dead letter or one late record, or
nothing where its transaction never was; and no publication moves: hundreds of pairs of logs, read by the whole engine.

The logs are on paper, so that all other stamps are the same, and the clock is set by hand. Each stream is read with
delays, fetches and kills of its own. That what brokers do is what the paper does is tested on a real broker, by
`test_hostile_batches` and `test_log_oracle`.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from kafka.hostile_records import GOOD
from kafka.log_worlds import KINDS, _judge, differences
from kafka.paper_broker import Outcome, PaperOffsets, World, live_source, run
from kafka.paper_log import PaperLog, PaperPartition
from kafka.raw_batches import plain
from kafka.stream_pairs import Pair, pair
from oracles.kafka_log import Grid, Said, said

from stream_dp.engine.ports import Behinds, Positions, Source
from stream_dp.journal.dead_letters import UNREADABLE_RECORD
from stream_dp.kafka.source import source as kafka_source
from stream_dp.kafka.source.record_batches import RecordBatch, Unpacked, plain_batch
from stream_dp.kafka.source.source import KafkaSource
from stream_dp.kafka.source.ticks import StampedTicks
from stream_dp.kafka.source.unpacker import Unpacker, _refused

GRID = Grid(1_700_000_000_000, 100, 100, 6)
PAIRS = 80
FEW = 20


def says(log: PaperLog) -> Said:
    frames = {number: one.frames() for number, one in log.items()}
    return said(frames, GRID, _judge)


def effect(without: Outcome, having: Outcome) -> str:
    """What the added event did: the tick it counts in, "dead", "late", "nothing", or what it must not do."""
    before, after = (
        np.array([one.journal.rows[tick] for tick in range(GRID.horizon)])
        for one in (without, having)
    )
    changed = after - before
    ticks = np.flatnonzero(changed.any(axis=1)).tolist()
    late = having.journal.late - without.journal.late
    dead = having.dead.copy()
    dead.subtract(without.dead)
    letters = sorted(number for number in dead.values() if number)
    match ticks, late, letters:
        case [], 0, []:
            return "nothing"
        case [], 1, []:
            return "late"
        case [], 0, [1]:
            return "dead"
        case [tick], 0, [] if changed[tick].tolist() in _by_one():
            return f"tick {tick}"
    return f"too much: {changed[ticks].tolist()} in ticks {ticks}, {late} late, {letters} dead"


def _by_one() -> list[list[int]]:
    return [[1, *row] for row in np.eye(len(KINDS) + 1, dtype=np.int64).tolist()]


def expected(without: Said, having: Said) -> str:
    if having.late != without.late:
        return "late"
    if having.dead_letters != without.dead_letters:
        return "dead"
    moved = [n for n in range(GRID.horizon) if having.tick(n) != without.tick(n)]
    return f"tick {moved[0]}" if moved else "nothing"


Opening = Callable[..., Source]


def findings(two: Pair, seed: int, source: Opening = live_source) -> Iterator[str]:
    chance = random.Random(seed)
    outcomes, logs = [], []
    for number, log in enumerate((two.without, two.having)):
        kills = sorted(chance.sample(range(GRID.horizon - 1), chance.choice((0, 0, 1, 2))))
        outcomes.append(run(log, GRID, 2 * seed + number, kills, source))
        logs.append(says(log))
        yield from differences(logs[-1], outcomes[-1].journal, GRID)
        yield from outcomes[-1].stops
    if outcomes[0].moments != outcomes[1].moments:
        yield "releases in another order or at other moments"
    if any(len(one.journal.rows) < GRID.horizon for one in outcomes):
        yield "held up"
        return
    found, wanted = effect(*outcomes), expected(*logs)
    if found != wanted:
        yield f"{found} instead of {wanted}"


def test_one_more_event_changes_one_row_by_one_and_no_publication() -> None:
    wrong = {}
    effects: Counter[str] = Counter()
    for seed in range(PAIRS):
        two = pair(seed, GRID)
        if found := list(findings(two, seed)):
            wrong[seed, two.what] = found
        effects[expected(says(two.without), says(two.having)).partition(" ")[0]] += 1
    assert wrong == {}
    assert min(effects[one] for one in ("tick", "dead", "late", "nothing")) > 1, effects


class AsItIsRead(StampedTicks):
    """Broken: an event belongs to the tick in which it is read, so many records to a tick."""

    read = 0

    def _count(self, batch: RecordBatch, skip: int) -> None:
        AsItIsRead.read += batch.records
        tick = min(AsItIsRead.read // 20, GRID.horizon - 1)
        super()._count(batch._replace(stamp=self._grid.start(tick)), skip)


def _waiting(world: World, grid: Grid) -> Source:
    return live_source(world, grid, wait=True)


def _whole_batch(
    self: Unpacker, batch: RecordBatch, data: memoryview, whole: memoryview | None = None
) -> Unpacked:
    """Broken: what the client library cannot parse drops its batch."""
    try:
        return self._parsed(whole or plain_batch(data, batch.base, batch.records), batch.base)
    except Exception:  # noqa: BLE001 - as the product
        return _refused(batch, UNREADABLE_RECORD)


async def _not_silent(self: KafkaSource, busy: set[int]) -> None:
    """Broken: only a later event ends a tick."""
    if self._grid is not None and self._due(self._grid) == GRID.horizon - 1:
        await _pass_silent(self, busy)


async def _nothing_behind(self: KafkaSource, positions: Positions, behind: Behinds = {}) -> None:  # noqa: B006
    """Broken: a start forgets what was open."""
    await _seek(self, positions)


def _counted_where_it_lies(self: StampedTicks, batch: RecordBatch) -> None:
    """Broken: a transaction's records count where they lie, whatever its end."""
    if batch.producer is not None and batch.base >= self._start:
        batch = batch._replace(producer=None)
    _take(self, batch)


_pass_silent, _seek, _take = KafkaSource._pass_silent, KafkaSource.seek, StampedTicks.take
TWINS: dict[str, tuple[Any, str, Any]] = {
    "in the tick in which it is read": (kafka_source, "StampedTicks", AsItIsRead),
    "a bad record drops its batch": (Unpacker, "_records", _whole_batch),
    "an event ends the tick before": (KafkaSource, "_pass_silent", _not_silent),
    "a start forgets what was open": (KafkaSource, "seek", _nothing_behind),
    "an aborted transaction counts": (StampedTicks, "take", _counted_where_it_lies),
}


def caught(source: Opening = live_source) -> set[str]:
    found = (line for seed in range(FEW) for line in findings(pair(seed, GRID), seed, source))
    return {line.split(" ")[0] for line in found}


@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_twin_is_caught(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*TWINS[twin])
    assert caught()


def test_a_transaction_that_holds_its_tick_is_caught_by_the_moments_of_publication() -> None:
    """It is the setting for those who would rather wait, and so their residual channel."""
    assert "releases" in caught(_waiting)


@pytest.mark.parametrize("kills", [(), (1, 3)])
def test_only_the_first_start_looks_for_the_origin(
    kills: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start with a journal knows its positions."""
    asked: list[tuple[int, ...]] = []
    cuts = PaperOffsets.cuts

    async def noted(self: PaperOffsets, partitions: Iterable[int], moment: int) -> dict[int, int]:
        asked.append(tuple(partitions))
        return await cuts(self, partitions, moment)

    monkeypatch.setattr(PaperOffsets, "cuts", noted)
    log = {number: PaperPartition() for number in (0, 1)}
    for one in log.values():
        for tick in range(-1, GRID.horizon):
            one.append(plain([GOOD] * 3).encoded(), GRID.origin + tick * GRID.step + 50)
    found = run(log, GRID, 0, kills)
    assert asked == [(0, 1)]
    assert [found.journal.rows[tick][0] for tick in range(GRID.horizon)] == [6] * GRID.horizon
