"""One added event in a replay topic, a forged or copied tick mark among them, changes one tick row by one, or adds one
dead letter or one late record; a true mark said once more changes nothing. Hundreds of pairs of logs on paper.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from kafka.kafka_worlds import tick_marks
from kafka.log_worlds import LivePipeline
from kafka.paper_broker import TOPIC
from kafka.paper_log import PaperLog, PaperPartition
from kafka.raw_batches import CODECS
from kafka.stream_pairs import Act, Item
from oracles.kafka_log import Grid

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import TickAssembler
from stream_dp.kafka.client.tick_marks import TICK_HEADER, TickMarks
from stream_dp.kafka.source.record_batches import record_batches
from stream_dp.kafka.source.ticks import MarkedTicks, Place, Room
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec

PAIRS, FEW, PARTITIONS, WRITER = 120, 10, 2, 9
GRID = Grid(1_700_000_000_000, 1_000, 0, 6)
MARKS = tick_marks(TOPIC, bytes(32), GRID.origin, GRID.step, GRID.horizon)
OTHERS = tick_marks(TOPIC, bytes(31) + b"1", GRID.origin, GRID.step, GRID.horizon)
HEADER = TICK_HEADER.encode()


@cache
def router() -> Router:
    shown = LivePipeline("paper", TOPIC, "127.0.0.1:1", Path(), GRID).document()
    shown["schema"]["time"] = {"type": "time"}
    start, step = shown["clock"]["start"], shown["clock"]["step"]
    shown["clock"] = {
        "kind": "replay", "field": "time", "start": start, "step": step, "horizon": GRID.horizon, "block": 1,
    }  # fmt: skip
    return Router(PipelineSpec.model_validate(shown), GRID.origin)


@dataclass(slots=True)
class Sums:
    """What the ticks of a log hold."""

    rows: list[IntArray] = field(default_factory=list)
    dead: int = 0
    late: int = 0


def read(log: PaperLog, seed: int) -> Sums:
    """Read a log by the product's parts, in pieces and from partitions as `seed` will have it."""
    chance, out, room = random.Random(seed), list[Batch](), Room()
    lanes = {
        number: MarkedTicks(Place(number, 0), Unpacker(marks=True), room, out, MARKS)
        for number in log
    }
    left = {number: record_batches(b"".join(k.data for k in log[number].kept), 0) for number in log}
    assembler, sums = TickAssembler(list(log), router().width), Sums()
    while left:
        number = chance.choice(sorted(left))
        for _ in range(chance.randint(1, 5)):
            if (batch := next(left[number], None)) is None:
                del left[number]
                break
            assert lanes[number].take(batch) is None
        lanes[number].flush()
        for given in out:
            assembler.add(given, router().route(given))
        out.clear()
        for closed in assembler.closed(chance.randint(1, 3)):
            sums.rows.append(closed.row)
            sums.dead += closed.dead_letters.records
            sums.late += closed.late
    for closed in assembler.closed(GRID.horizon):
        sums.rows.append(closed.row)
        sums.dead += closed.dead_letters.records
        sums.late += closed.late
    return sums


def good(chance: random.Random, tick: int) -> Item:
    """An event of this tick, perhaps of the one before or of one to come."""
    tick = max(0, min(GRID.horizon - 1, tick + chance.choice((-1, 0, 0, 0, 1))))
    moment = np.datetime64(GRID.origin + tick * GRID.step + chance.randrange(GRID.step), "ms")
    return Item(json.dumps({"kind": "red", "time": f"{moment}Z"}).encode())


def mark(partition: int, tick: int) -> Item:
    return Item(None, [(HEADER, MARKS.sign(partition, tick))])


def lanes_of(chance: random.Random) -> list[list[Item]]:
    """The items of each partition: events, and a mark at the end of every tick."""
    lanes: list[list[Item]] = [[] for _ in range(PARTITIONS)]
    for tick in range(GRID.horizon):
        for number, lane in enumerate(lanes):
            lane += [good(chance, tick) for _ in range(chance.randrange(5))]
            lane.append(mark(number, tick))
    return lanes


def forgery(chance: random.Random, partition: int) -> Item:
    """What says that it is a mark of this partition and is none."""
    tick = chance.randrange(GRID.horizon)
    true, others = MARKS.sign(partition, tick), OTHERS.sign(partition, tick)
    elsewhere = MARKS.sign(1 - partition, tick)
    absurd = (
        b"soon",
        b"",
        b"9" * 18,
        b"-1",
        b"\xff",
        b"1." + b"9" * 18 + true[true.find(b".", 2) :],
    )
    moved = MARKS.sign(partition, (tick + 1) % GRID.horizon)
    spliced = b"1.%d%s" % (tick, moved[moved.find(b".", 2) :])
    items = (
        *(Item(None, [(HEADER, one)]) for one in (*absurd, others, elsewhere, spliced)),
        Item(None, [(HEADER, None)]),
        Item(None, [(HEADER, true), (HEADER, true)]),
        Item(good(chance, tick).value, [(HEADER, true)]),
        Item(b"junk", [(HEADER, true)]),
    )
    return chance.choice(items)


@dataclass(frozen=True, slots=True)
class Added:
    """An item, and where it is put before which other one; `alone` in a batch of its own."""

    what: str
    partition: int
    at: int
    item: Item
    alone: bool

    def to(self, act: Act, begin: int) -> list[Act]:
        """The act, whose items begin at `begin` of their partition, with this item if it lies there."""
        cut = self.at - begin
        if act.partition != self.partition or not 0 <= cut < len(act.items):
            return [act]
        before, after = act.items[:cut], act.items[cut:]
        if not self.alone:
            return [replace(act, items=(*before, self.item, *after))]
        return [replace(act, items=part) for part in (before, (self.item,), after) if part]


def added(chance: random.Random, lanes: Sequence[Sequence[Item]]) -> Added:
    """One item more: a forged mark, a copy of one that lies before it, an event or junk."""
    partition = chance.randrange(PARTITIONS)
    lane = lanes[partition]
    marks = [at for at, one in enumerate(lane) if one.headers]
    at, alone = chance.randint(0, marks[-1]), chance.random() < 0.5
    what = chance.choice(("forgery", "forgery", "copy", "event", "junk"))
    said = [lane[one] for one in marks if one < at]
    if what == "copy" and said:
        return Added(what, partition, at, chance.choice(said), alone)
    if what == "event":
        return Added(what, partition, at, good(chance, chance.randrange(GRID.horizon)), alone)
    if what == "junk":
        return Added(what, partition, at, Item(b"junk", [(b"\xff\xfe", b"")]), alone)
    return Added("forgery", partition, at, forgery(chance, partition), alone)


def pair(seed: int) -> tuple[str, PaperLog, PaperLog]:
    """What is added, and both logs; the items lie in batches and transactions as chance will have it."""
    chance = random.Random(seed)
    lanes = lanes_of(chance)
    more = added(chance, lanes)
    without, having = ({number: PaperPartition() for number in range(PARTITIONS)} for _ in range(2))
    for number, items in enumerate(lanes):
        begin = 0
        while begin < len(items):
            some = tuple(items[begin : begin + chance.randint(1, 8)])
            producer = WRITER if chance.random() < 0.3 else None
            act = Act(0, number, some, chance.choice((0, *CODECS.values())), producer)
            _append(without[number], [act])
            _append(having[number], more.to(act, begin))
            begin += len(some)
    return more.what, without, having


def _append(log: PaperPartition, acts: Sequence[Act]) -> None:
    for one in acts:
        log.append(one.encoded(), 0)
    if acts[0].producer is not None:
        log.append(replace(acts[0], items=(), commit=True).encoded(), 0)


def effect(without: Sums, having: Sums) -> str:
    changed = np.array(having.rows) - np.array(without.rows)
    late, dead = having.late - without.late, having.dead - without.dead
    ticks = np.flatnonzero(changed.any(axis=1)).tolist()
    match len(ticks), late, dead:
        case 0, 0, 0:
            return "nothing"
        case 0, 1, 0:
            return "late"
        case 0, 0, 1:
            return "dead"
        case 1, 0, 0 if sorted(changed[ticks[0]].tolist()) == [0, 0, 0, 1, 1]:
            return "one row by one"
    return f"too much: {changed.tolist()}, {late} late, {dead} dead"


ALLOWED = {
    "forgery": {"dead"},
    "junk": {"dead"},
    "copy": {"nothing"},
    "event": {"one row by one", "late"},
}


def findings(pairs: int) -> tuple[Counter[tuple[str, str]], list[str]]:
    seen: Counter[tuple[str, str]] = Counter()
    wrong = []
    for seed in range(pairs):
        what, *logs = pair(seed)
        sums = [read(log, 2 * seed + at) for at, log in enumerate(logs)]
        if any(len(one.rows) != GRID.horizon for one in sums):
            wrong.append(f"{seed}: {what} closes ticks or keeps them open")
            continue
        found = effect(*sums)
        seen[what, found] += 1
        if found not in ALLOWED[what]:
            wrong.append(f"{seed}: {what}: {found}")
    return seen, wrong


def test_one_more_record_of_a_replay_topic_changes_one_row_by_one_at_most() -> None:
    seen, wrong = findings(PAIRS)
    assert wrong == []
    assert {what for what, _ in seen} == ALLOWED.keys()
    assert seen["event", "late"] > 0


def test_marks_that_anybody_could_make_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a reader that believes the number in a mark."""

    def believed(_: TickMarks, _partition: int, value: bytes) -> int | None:
        number = value.split(b".")[1:2]
        return int(number[0]) if number and number[0].isdigit() else None

    monkeypatch.setattr(TickMarks, "read", believed)
    assert findings(FEW)[1]
