"""Pairs of streams: the second is the first with one event more, whatever it holds.

Rules: a stream is a list of acts of producers with stamps, each a function of the seed; what brokers refuse is not
among them. The event is added in one of four ways: a batch of its own, one more record of a batch, the same within a
transaction that is committed, aborted or never ended, or a transaction of its own. Stamps of all else are the same.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from kafka.hostile_batches import HOSTILE
from kafka.hostile_mix import CATEGORIES
from kafka.hostile_records import BAD_VALUES
from kafka.paper_log import PaperLog, PaperPartition, marker, transactional
from kafka.raw_batches import CODECS, Header, RawBatch, record
from oracles.kafka_log import Grid

PARTITIONS = 2
PRODUCERS = range(1, 4)
OWN = 9
HEADERS: Sequence[Sequence[Header]] = (
    (),
    [(b"\xff\xfe\x80", b"1")],
    [(b"\xed\xa0\x80", None)],
    [(b"", None)],
    [(b"k", b"v")] * 20,
    [(b"stream-dp-tick", b"9" * 18)],
)
_SHORT = 2_000
_SMALL = 20_000
_DEAR = (" MB ", "4,000,000")


@dataclass(frozen=True, slots=True)
class Item:
    value: bytes | None = field(repr=False)
    headers: Sequence[Header] = ()
    key: bytes | None = None
    time: int = 0
    attributes: int = 0
    width: int = 0

    def encoded(self, delta: int) -> bytes:
        """Its bytes at this place of its batch."""
        return record(
            self.value, delta, key=self.key, headers=self.headers, attributes=self.attributes,
            time=self.time, width=self.width,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Act:
    """Something in a partition's log: items in a batch, perhaps of a transaction; raw bytes; or a transaction's end."""

    stamp: int
    partition: int
    items: tuple[Item, ...] = ()
    codec: int = 0
    producer: int | None = None
    raw: bytes = field(default=b"", repr=False)
    commit: bool | None = None

    @property
    def growing(self) -> bool:
        return bool(self.items)

    def encoded(self) -> bytes:
        if self.raw:
            return self.raw
        if self.commit is not None and self.producer is not None:
            return marker(self.producer, commit=self.commit)
        batch = RawBatch([one.encoded(at) for at, one in enumerate(self.items)], self.codec)
        return batch.encoded() if self.producer is None else transactional(batch, self.producer)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two streams and what was added, in words."""

    what: str
    without: PaperLog = field(repr=False)
    having: PaperLog = field(repr=False)


def pair(seed: int, grid: Grid) -> Pair:
    chance = random.Random(seed)
    acts = _acts(chance, grid)
    way = chance.choice((_alone, _within, _within, _own_transaction))
    what, more = way(chance, grid, acts)
    born = grid.origin + 2 * grid.step if chance.random() < 0.3 else 0
    return Pair(what, _log(acts, born), _log(more, born))


def _log(acts: Sequence[Act], born: int) -> PaperLog:
    """The log of these acts; the last partition is added at the moment `born`."""
    log = {number: PaperPartition() for number in range(PARTITIONS)}
    log[PARTITIONS - 1].born = born
    for act in sorted(acts, key=lambda act: act.stamp):
        log[act.partition].append(act.encoded(), max(act.stamp, log[act.partition].born))
    return log


def _stamp(chance: random.Random, grid: Grid) -> int:
    """A moment up to the end of the last tick; the edges of ticks and of their settling are frequent."""
    stamp = chance.randrange(grid.origin - 20, grid.origin + grid.horizon * grid.step)
    if chance.random() < 0.4:
        edge = grid.origin + (stamp - grid.origin) // grid.step * grid.step
        stamp = edge + chance.choice((-1, 0, 1, grid.delay // 2 - 1, grid.delay // 2))
    return min(stamp, grid.origin + grid.horizon * grid.step - 1)


def _item(chance: random.Random) -> Item:
    if chance.random() < 0.5:
        return Item(json.dumps({"kind": chance.choice(CATEGORIES)}).encode())
    good = json.dumps({"kind": chance.choice(CATEGORIES)}).encode()
    value = chance.choice((good, chance.choice(_bad())))
    headers = chance.choice(HEADERS)
    time = chance.choice((0, -1, 2**61, -(2**61)))
    return Item(value, headers, chance.choice((None, b"", b"\xff")), time, chance.choice((0, 0xFF)))


@cache
def _bad() -> list[bytes | None]:
    return [value for value in BAD_VALUES if value is None or len(value) < _SHORT]


@cache
def _raw() -> list[bytes]:
    """Hostile batches that brokers take and that cost little."""
    cheap = [one for one in HOSTILE if one.accepted and not any(word in one.name for word in _DEAR)]
    return [data for one in cheap if len(data := one.encoded()) < _SMALL]


def _acts(chance: random.Random, grid: Grid) -> list[Act]:
    """Producers on their own, hostile batches, and up to three transactions at a time in each partition."""
    acts = [_act(chance, grid) for _ in range(chance.randrange(40))]
    for producer in PRODUCERS:
        for partition in range(PARTITIONS):
            acts += _transactions(chance, grid, producer, partition)
    return acts


def _act(chance: random.Random, grid: Grid) -> Act:
    stamp, partition = _stamp(chance, grid), chance.randrange(PARTITIONS)
    if chance.random() < 0.2:
        return Act(stamp, partition, raw=chance.choice(_raw()))
    return Act(stamp, partition, _items(chance), _codec(chance))


def _items(chance: random.Random) -> tuple[Item, ...]:
    return tuple(_item(chance) for _ in range(chance.choice((1, 1, 2, 5, 20))))


def _codec(chance: random.Random) -> int:
    return chance.choice((0, *CODECS.values()))


def _transactions(chance: random.Random, grid: Grid, producer: int, partition: int) -> list[Act]:
    """Some transactions of a producer, one after the other; the last one may stay open."""
    stamps = sorted(_stamp(chance, grid) for _ in range(chance.choice((0, 3, 6))))
    acts = []
    for stamp in stamps:
        if chance.random() < 0.4:
            commit = chance.random() < 0.7
            acts.append(Act(stamp, partition, producer=producer, commit=commit))
        else:
            acts.append(Act(stamp, partition, _items(chance), _codec(chance), producer))
    return acts


def _placed(chance: random.Random, acts: Sequence[Act], act: Act) -> list[Act]:
    """The acts with one more, anywhere among those of its stamp."""
    before = [one for one in acts if one.stamp < act.stamp]
    beside = [one for one in acts if one.stamp == act.stamp]
    beside.insert(chance.randint(0, len(beside)), act)
    return before + beside + [one for one in acts if one.stamp > act.stamp]


_Added = tuple[str, list[Act]]


def _alone(chance: random.Random, grid: Grid, acts: Sequence[Act]) -> _Added:
    item = _item(chance)
    act = Act(_stamp(chance, grid), chance.randrange(PARTITIONS), (item,), _codec(chance))
    return f"alone: {act}", _placed(chance, acts, act)


def _within(chance: random.Random, grid: Grid, acts: Sequence[Act]) -> _Added:
    growing = [at for at, act in enumerate(acts) if act.growing]
    if not growing:
        return _alone(chance, grid, acts)
    at, item = chance.choice(growing), _item(chance)
    items = list(acts[at].items)
    items.insert(chance.randint(0, len(items)), item)
    more = list(acts)
    more[at] = replace(acts[at], items=tuple(items))
    return f"{item} within {acts[at]}", more


def _own_transaction(chance: random.Random, grid: Grid, acts: Sequence[Act]) -> _Added:
    alone = Act(_stamp(chance, grid), chance.randrange(PARTITIONS), (_item(chance),), 0, OWN)
    more = _placed(chance, acts, alone)
    commit = chance.choice((True, True, False, None))
    if commit is None:
        return f"never ended: {alone}", more
    stamp = max(alone.stamp, _stamp(chance, grid))
    if stamp == alone.stamp:
        stamp += 1
    ended = Act(stamp, alone.partition, producer=OWN, commit=commit)
    return f"commit={commit} at {stamp}: {alone}", _placed(chance, more, ended)
