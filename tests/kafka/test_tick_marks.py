"""Marks that somebody forges in a replay topic: the engine goes on, and every tick holds what it would have held."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.cases import Case, document, expectation, flights, write
from faults.checker import findings
from faults.evidence import Letter
from faults.kafka_evidence import over_kafka
from kafka.kafka_worlds import marks_of, tick_marks, writing

from stream_dp.broker.topics import create_topic
from stream_dp.core.time import TickGrid
from stream_dp.files.records import FieldType, load_records, ticked
from stream_dp.journal.dead_letters import BAD_MARK
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import KafkaFeed
from stream_dp.kafka.client.tick_marks import TICK_HEADER
from stream_dp.testing.kafka import fresh_topic_name

TICKS, HALF, PARTITIONS = 40, 20, 2
FIELDS = {
    "time": FieldType.TIME,
    "airline": FieldType.CATEGORY,
    "destination": FieldType.CATEGORY,
    "delay": FieldType.INTEGER,
}
Forged = list[tuple[bytes, bool]]
"""Values of the header, and whether such a record is a dead letter."""


def fresh(kafka: str, folder: Path) -> Case:
    made = flights(folder, TICKS)
    name = fresh_topic_name("marks")
    source = {"kind": "kafka", "topic": f"{name}.events", "bootstrap": kafka}
    write(folder, document(name, TICKS, 6, source))
    return Case(folder, expectation(name, TICKS), made.events)


def words(_: Case) -> Forged:
    return [(b"soon", True), (b"", True), (b"\xff\xfe", True), (b"-1", True)]


def numbers(_: Case) -> Forged:
    return [(b"%d" % tick, True) for tick in (0, HALF, TICKS - 1, TICKS, 10**9, 10**18)]


def signed_elsewhere(case: Case) -> Forged:
    name = case.expected.pipeline
    origin, step = case.expected.origin, case.expected.step
    others = (
        tick_marks(f"{name}.other", case.key, origin, step),
        tick_marks(f"{name}.events", bytes(32), origin, step),
        tick_marks(f"{name}.events", case.key, origin, step + 1),
    )
    absurd = tick_marks(f"{name}.events", case.key, origin, step, TICKS + 1).sign(0, TICKS)
    own = marks_of(case)
    return [(one.sign(0, HALF + 9), True) for one in others] + [
        (absurd, True),
        (own.sign(1, HALF + 9), True),  # read by whoever may read partition 1, written into 0
    ]


def copied(case: Case) -> Forged:
    return [(marks_of(case).sign(0, tick), False) for tick in (HALF - 1, 0, HALF - 1)]


@pytest.mark.parametrize("forge", [words, numbers, signed_elsewhere, copied])
async def test_forged_marks_are_dead_letters_and_close_nothing(
    kafka: str, tmp_path: Path, forge: Callable[[Case], Forged]
) -> None:
    """They lie in partition 0 between two halves of a feed that begins anew behind them."""
    case = fresh(kafka, tmp_path)
    topic = f"{case.expected.pipeline}.events"
    await create_topic(kafka, topic, PARTITIONS)
    rows = load_records(tmp_path / "slice.csv", FIELDS, "time")
    ticks = list(ticked(rows, TickGrid(case.expected.origin, case.expected.step, TICKS)))
    letters: list[Letter] = []

    async def fed(begin: int, end: int) -> None:
        feed = KafkaFeed(KafkaSettings(kafka), marks_of(case))
        try:
            assert await feed.open() == begin
            await feed.send(begin, ticks[begin:end])
        finally:
            await feed.close()

    await fed(0, HALF)
    await fed(HALF, HALF)  # begins once the end of the transaction before is in the log
    async with writing(kafka) as producer:
        for value, dead in forge(case):
            headers = [(TICK_HEADER, value)]
            stored = await producer.send_and_wait(topic, b"", partition=0, headers=headers)
            if dead:
                letters.append(Letter(0, stored.offset, BAD_MARK, None))
    await fed(HALF, TICKS)
    await asyncio.to_thread(case.finish, "--zero-noise")
    left = await over_kafka(kafka, case.expected.pipeline, case.key)
    wanted = case.expecting(letters=tuple(letters)).expected
    assert findings(wanted, case.events, left) == []
