"""Users over several partitions of a real topic: replayed, killed and gone on with; producers that place otherwise."""

import asyncio
import json
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import murmur2
from faults.cases import Case, make_key
from faults.checker import Expected
from faults.kafka_evidence import MARK, over_kafka, records
from faults.killing import killed_at
from kafka.flight_topics import look, topic_of
from kafka.kafka_worlds import AT_ONCE, marks_of, visible
from oracles.user_caps import Event, Log, Mark, judge

from stream_dp.broker.topics import create_topic
from stream_dp.cli.commands.broker import replay
from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Placement
from stream_dp.errors import UsageError
from stream_dp.files.records import load_records, ticked
from stream_dp.integrations.faust.attached import Made, OriginWriter, Target
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import KafkaFeed
from stream_dp.pipeline.user_homes import placement_of
from stream_dp.pipeline.yaml import load
from stream_dp.records.schema import CategoryField, Fields, TextField, TimeField
from stream_dp.testing.kafka import fresh_topic_name

TICKS, CAP, WINDOW, PARTITIONS = 40, 2, 5, 3
KEYS = ("a", "b", "other")
USERS = tuple(f"user {number}" for number in range(12))
PIPELINE = """
version: 1
name: {name}
source: {{kind: kafka, topic: {name}.events, bootstrap: "{kafka}", keyed_by: customer}}
schema:
  time: {{type: time}}
  customer: {{type: text}}
  key: {{type: category, domain: [a, b]}}
privacy: {{unit: user, user: customer, max_events: 2, per: 5h, epsilon: 8}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 40, block: 4}}
journal: {{kind: kafka}}
series:
  - {{name: by_key, statistic: histogram, by: key, method: tree, epsilon: 8}}
"""
START = 1_767_225_600_000
FIELDS: Fields = {"time": TimeField(), "customer": TextField(), "key": CategoryField(domain=("a",))}


def home(user: str) -> int:
    return int(murmur2(user.encode()) & 0x7FFFFFFF) % PARTITIONS


def some_events(seed: int, most: int = 12) -> list[Event]:
    random = Random(seed)
    return [
        Event(random.choice(USERS[: 1 + random.randrange(12)]), tick, random.choice(KEYS))
        for tick in range(TICKS)
        for _ in range(random.randrange(most))
    ]


def time_of(event: Event) -> str:
    return f"2026-01-{1 + event.tick // 24:02}T{event.tick % 24:02}:30:00Z"


def payload(event: Event) -> bytes:
    made = {"time": time_of(event), "customer": event.user, "key": event.key}
    return json.dumps(made).encode()


def case_of(kafka: str, folder: Path, name: str) -> Case:
    (folder / "pipeline.yaml").write_text(PIPELINE.format(name=name, kafka=kafka))
    make_key(folder)
    lines = [f"{time_of(e)},{e.user},{e.key}" for e in some_events(7)]
    (folder / "events.csv").write_text("\n".join(["time,customer,key", *lines, ""]))
    expected = Expected(name, START, 3_600_000, TICKS, {}, (), (), zero_noise=True)
    return Case(folder, expected, (), AT_ONCE)


async def logs_of(kafka: str, case: Case) -> dict[int, Log]:
    logs: dict[int, list[Event | Mark]] = {number: [] for number in range(PARTITIONS)}
    passed = Counter[int]()
    for record in await records(kafka, f"{case.expected.pipeline}.events"):
        if MARK in dict(record.headers):
            logs[record.partition].append(Mark(passed[record.partition]))
            passed[record.partition] += 1
        else:
            told = json.loads(record.value)
            tick = (int(told["time"][8:10]) - 1) * 24 + int(told["time"][11:13])
            logs[record.partition].append(Event(told["customer"], tick, told["key"]))
    return dict(logs)


def rows_of(commits: list[dict[str, Any]]) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for commit in commits:
        for tick, row in zip(commit["ticks"], commit["rows"], strict=True):
            found.update({(tick, k): n for k, n in zip(KEYS, row, strict=True) if n})
    return found


async def run_through_kills(kafka: str, case: Case) -> list[dict[str, Any]]:
    """Run it, killed in the middle of a commit and behind one, then to its end; its commits."""
    for point in ("mid-commit:3", "after-commit:2"):
        await killed_at(case, look(kafka, case), point, "--zero-noise", "--dawdle", "2")
    await asyncio.to_thread(case.finish, "--zero-noise")
    return (await over_kafka(kafka, case.expected.pipeline, case.key)).commits


async def test_a_replay_puts_users_where_the_guard_counts_them(
    kafka: str, tmp_path: Path, name: str
) -> None:
    """Placed by content, two thirds of the records were dead letters."""
    case = case_of(kafka, tmp_path, name)
    where: dict[str, Any] = {"topic": topic_of(case), "pipeline": case.pipeline}
    key = tmp_path / "operator.key"
    table = tmp_path / "events.csv"
    await asyncio.to_thread(replay, table, **where, create=PARTITIONS, key_file=key)
    logs = await logs_of(kafka, case)
    placed = [(one, at) for at, log in logs.items() for one in log if isinstance(one, Event)]
    assert len(placed) == len(some_events(7))
    assert all(home(one.user) == at for one, at in placed)


async def nothing(begin: int) -> None:
    pass


async def produced(
    kafka: str, case: Case, before: Callable[[int], Awaitable[None]] = nothing
) -> None:
    """Feed the file; between its ticks, producers with keys send the events of later ticks: the Java client's way, and
    librdkafka's, which the pipeline file does not name. `before` is awaited before each ten ticks."""
    topic = f"{case.expected.pipeline}.events"
    await create_topic(kafka, topic, PARTITIONS)
    ticks = ticked(
        load_records(case.folder / "events.csv", FIELDS, "time"), TickGrid(START, 3_600_000, TICKS)
    )
    feed = KafkaFeed(KafkaSettings(kafka), marks_of(case), placement_of(load(case.pipeline)))
    others = AIOKafkaProducer(bootstrap_servers=kafka, linger_ms=5)
    await feed.open()
    await others.start()
    try:
        for begin in range(0, TICKS, 10):
            await before(begin)
            for event in some_events(8, 4):
                if begin <= event.tick < begin + 10:
                    key = event.user.encode()
                    await others.send_and_wait(topic, payload(event), key=key)
                    elsewhere = zlib.crc32(key) % PARTITIONS
                    await others.send_and_wait(topic, payload(event), key=key, partition=elsewhere)
            await feed.send(begin, ticks[begin : begin + 10])
    finally:
        await feed.close()
        await others.stop()


async def test_what_another_partitioner_placed_is_dead_and_the_rest_counts_as_if_it_were_not_there(
    kafka: str, tmp_path: Path, name: str
) -> None:
    case = case_of(kafka, tmp_path, name)
    await produced(kafka, case)
    logs = await logs_of(kafka, case)
    expected = judge(logs, CAP, WINDOW, home)
    commits = await run_through_kills(kafka, case)
    assert rows_of(commits) == expected.rows
    assert sum(commit["capped"] for commit in commits) == expected.capped > 50
    letters = [letter for commit in commits for letter in commit["dead_letters"]]
    assert {(each[2], each[3]) for each in letters} == {("wrong_partition", "customer")}
    assert sum(each[4] for each in letters) == expected.dead > 20
    at_home = {
        partition: [one for one in log if isinstance(one, Mark) or home(one.user) == partition]
        for partition, log in logs.items()
    }
    assert judge(at_home, CAP, WINDOW).rows == expected.rows


async def test_an_agent_puts_users_where_the_guard_counts_them(
    kafka: str, tmp_path: Path, name: str
) -> None:
    case = case_of(kafka, tmp_path, name)
    topic, origin = f"{name}.events", fresh_topic_name("origin")
    for each, partitions in ((topic, PARTITIONS), (origin, 1)):
        await create_topic(kafka, each, partitions)
    target = Target(KafkaSettings(kafka), name, topic, placement_of(load(case.pipeline)))
    events = some_events(3)[:60]
    writer = OriginWriter(target, origin, 0, lambda: True)
    try:
        assert await writer.feed([Made(at, payload(each)) for at, each in enumerate(events)])
    finally:
        await writer.close()
    for number in range(PARTITIONS):
        theirs = [one.user for one in events if home(one.user) == number]
        found: list[Any] = []
        async with asyncio.timeout(60):  # a transaction shows when its marker has come
            while len(found) < len(theirs):
                found = await visible(kafka, topic, partition=number)
        assert Counter(json.loads(one.value)["customer"] for one in found) == Counter(theirs)
    undeclared = target._replace(place=without_key(case))
    with pytest.raises(UsageError, match="3 partitions"):
        await OriginWriter(undeclared, origin, 0, lambda: True).feed([Made(99, b"{}")])


def without_key(case: Case) -> Placement:
    """Where records of the same pipeline are put if nothing says so."""
    text = case.pipeline.read_text().replace(", keyed_by: customer", "")
    case.pipeline.write_text(text)
    return placement_of(load(case.pipeline))
