"""A start that nothing lies before which counts: whatever a broker's look-up by time says, and whatever is read."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from stream_dp.kafka.source.record_batches import APPENDED, Kind, RecordBatch
from stream_dp.kafka.source.source import Origin, start_at

ORIGIN = Origin(1_000, 20)
PLACE = "the partition"


def log_of(stamps: Sequence[int], attributes: int = APPENDED, length: int = 3) -> list[RecordBatch]:
    """Batches of `length` offsets with these stamps."""
    return [
        RecordBatch(
            Kind.DATA, length * at, length * (at + 1), stamp, attributes, None, length, memoryview(b"")
        )
        for at, stamp in enumerate(stamps)
    ]  # fmt: skip


class Reader:
    """What is used of a consumer, over a list of batches; with `silent` it gives nothing."""

    def __init__(self, log: Sequence[RecordBatch], *, silent: bool = False) -> None:
        self.fetches = 0
        self._log = log
        self._silent = silent
        self._at = 0

    def assign(self, _: object) -> None:
        assert self._log, "a partition without a place to read"

    def unsubscribe(self) -> None: ...

    def seek(self, _: object, offset: int) -> None:
        self._at = offset

    async def getmany(self, place: str, **_: Any) -> dict[str, list[RecordBatch]]:
        self.fetches += 1
        assert any(one.base <= self._at < one.next for one in self._log), "out of range"
        return {} if self._silent else {place: [one for one in self._log if one.next > self._at]}


def start(reader: Reader, within: range) -> int:
    return asyncio.run(start_at(reader, PLACE, within, ORIGIN))


def stamps(chance: random.Random) -> list[int]:
    """Stamps around the origin that step back by no more than they may."""
    rising = sorted(chance.randrange(900, 1_100) for _ in range(chance.randrange(1, 40)))
    return [one - chance.choice((0, 0, chance.randint(0, ORIGIN.settle))) for one in rising]


def test_nothing_that_counts_lies_before_the_start_and_little_else_behind_it() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        log = log_of(stamps(chance))
        cut = chance.randint(0, log[-1].next)
        reader = Reader(log)
        found = start(reader, range(cut))
        assert found <= cut
        assert all(one.stamp < ORIGIN.moment for one in log if one.base < found)
        assert reader.fetches <= cut.bit_length() + 1
        older = [one.next for one in log if one.stamp < ORIGIN.moment - 2 * ORIGIN.settle]
        assert found >= min(cut, max(older, default=0))


def test_a_true_look_up_is_taken_with_one_fetch() -> None:
    reader = Reader(log_of([100] * 50 + [1_500] * 50))
    assert (start(reader, range(150)), reader.fetches) == (150, 1)


@pytest.mark.parametrize("cut", [151, 152, 170, 300])
def test_a_look_up_that_is_too_late_is_not_believed(cut: int) -> None:
    assert start(Reader(log_of([100] * 50 + [1_500] * 50)), range(cut)) == 150


def test_what_was_not_stamped_on_arrival_does_not_step_back() -> None:
    """A topic whose setting was changed shortly before the origin is read from the change on."""
    log = log_of([995] * 10, attributes=0)
    assert start(Reader(log), range(30)) == 30


def test_where_nothing_is_read_all_is() -> None:
    assert start(Reader(log_of([100] * 50), silent=True), range(6, 150)) == 6


def test_an_empty_range_needs_no_fetch() -> None:
    reader = Reader([])
    assert (start(reader, range(7, 7)), start(reader, range(7, 2)), reader.fetches) == (7, 7, 0)
