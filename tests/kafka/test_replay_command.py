"""`stream-dp replay` on a real broker: what it examines, sends, leaves out, goes on with and refuses."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

import pytest
from faults.kafka_transactions import decided
from kafka.hostile_mix import accepted
from kafka.kafka_worlds import administering, create, half_a_transaction, visible, writing
from kafka.raw_batches import plain
from kafka.raw_wire import Wire

from stream_dp.cli.commands.broker import replay
from stream_dp.core.time import TickGrid
from stream_dp.errors import FailClosed, UsageError
from stream_dp.files.records import Record, load_records, ticked
from stream_dp.journal.keys import make_key
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import KafkaFeed
from stream_dp.kafka.client.tick_marks import TICK_HEADER, TickMarks
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.replay_feed import feed_id
from stream_dp.pipeline.yaml import load
from stream_dp.testing.kafka import fresh_topic_name

PIPELINE = """\
version: 1
name: shops
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"}}
schema:
  time: {{type: time{time}}}
  shop: {{type: category, domain: [a, b]}}
  count: {{type: integer, nullable: true}}
privacy: {{epsilon: 1}}
clock: {{kind: replay, field: time, start: 2020-01-01T00:00:00Z, step: 1s, horizon: 4}}
series:
  - {{name: all, statistic: histogram, by: shop, method: tree, epsilon: 1, where: [{{field: count, at_most: 9}}]}}
"""
HEADER = "time,shop,count\n"
GOOD = [f"2020-01-01T00:00:0{at % 4}Z,a,{at % 9}\n" for at in range(10)]
BAD = [
    "2020-01-01 00:00:00,a,1\n",
    "2020-01-01T00:00:01Z,a,secret2\n",
    "2020-01-01T00:00:01Z,a,secret3\n",
    "2020-01-01T00:00:09Z,a,1\n",
    "secret4\n",
]
MARKS = 8  # four ticks, two partitions


class World:
    """A pipeline file, its key and its topic's name; `said` is what the command printed."""

    def __init__(
        self, kafka: str, folder: Path, capsys: pytest.CaptureFixture[str], time: str = ""
    ) -> None:
        self.kafka, self.folder, self._capsys = kafka, folder, capsys
        self.topic = fresh_topic_name("replayed")
        self.pipeline, self.key = folder / "p.yaml", folder / "key"
        self.pipeline.write_text(PIPELINE.format(topic=self.topic, kafka=kafka, time=time))
        if not self.key.exists():
            make_key(self.key)

    def file(self, rows: list[str], name: str = "data.csv") -> Path:
        path = self.folder / name
        path.write_text(HEADER + "".join(rows))
        return path

    def replay(self, file: Path, skip_bad: bool = False) -> str:
        replay(
            file,
            topic=self.topic,
            pipeline=self.pipeline,
            create=2,
            key_file=self.key,
            skip_bad=skip_bad,
        )
        return self.said()

    def said(self) -> str:
        return self._capsys.readouterr().err

    def values(self) -> list[bytes]:

        async def both() -> list[bytes]:
            await decided(self.kafka)
            found = [await visible(self.kafka, self.topic, partition=each) for each in (0, 1)]
            return sorted(one.value or b"" for part in found for one in part)

        return asyncio.run(both())

    def feeding(self, file: Path) -> tuple[KafkaFeed, list[list[Record]]]:
        spec = load(self.pipeline)
        assert spec.clock.start is not None
        grid = TickGrid(spec.clock.start, spec.clock.step, spec.clock.horizon)
        ticks = ticked(load_records(file, spec.fields, "time"), grid)
        marks = TickMarks(sealer_for(spec, self.key).mark_key(), self.topic, grid, feed_id(ticks))
        return KafkaFeed(KafkaSettings(self.kafka), marks), [list(tick) for tick in ticks]


Make = Callable[..., World]


@pytest.fixture
def make(kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Make:
    return lambda time="": World(kafka, tmp_path, capsys, time)


def test_bad_records_are_listed_and_nothing_is_sent(make: Make) -> None:
    world = make()
    with pytest.raises(UsageError, match=r"data\.csv: shops cannot use the records.*--skip-bad"):
        world.replay(world.file([*GOOD, *BAD]))
    said = world.said()
    assert said.splitlines() == [
        "NOT PRIVATE: shops cannot use 5 of the 15 records of data.csv:",
        "  wrong_type in count: 2, the first in line 13",
        "  wrong_type in time: 1, the first in line 12 (a time needs an offset, or the schema must declare its "
        "`zone:`, or the `format:` of its numbers)",
        "  time_out_of_range in time: 1, the first in line 15 (the clock declares start, step and horizon)",
        "  wrong_type: 1, the first in line 16",
    ]
    assert "secret" not in said
    with pytest.raises(UsageError, match="cannot use any of its records"):
        world.replay(world.file(BAD), skip_bad=True)
    assert not asyncio.run(topic_exists(world))


def test_bad_records_are_left_out_if_that_is_asked_for(make: Make) -> None:
    world = make()
    file = world.file([*GOOD, *BAD])
    said = world.replay(file, skip_bad=True).splitlines()
    told = f"{world.topic}: all ticks of the clock are sent. NOT PRIVATE: "
    assert said[-1] == told + "10 records sent, 5 left out"
    sent = world.values()
    assert len(sent) == len(GOOD) + MARKS
    assert not any(b"secret" in value for value in sent)
    said = world.replay(file, skip_bad=True).splitlines()
    assert said[-1] == told + "0 records sent, 10 sent already by an earlier run, 5 left out"
    assert world.values() == sent


def test_times_without_an_offset_need_a_zone(make: Make) -> None:
    rows = [f"2020-01-01 01:00:0{at},a,1\n" for at in range(4)]
    world = make()
    with pytest.raises(UsageError, match="--skip-bad"):
        world.replay(world.file(rows))
    world = make(", zone: Europe/Paris")
    assert "4 records sent" in world.replay(world.file(rows))
    assert len(world.values()) == 4 + MARKS


def test_a_topic_of_another_replay_is_refused(make: Make) -> None:
    """Of another file, with other records left out, or with marks by another key."""
    world = make()
    file = world.file([*GOOD, *BAD])
    world.replay(file, skip_bad=True)
    before, text = world.values(), world.pipeline.read_text()

    def refused(file: Path, why: str = "holds the tick marks of another replay") -> None:
        with pytest.raises(FailClosed, match=f"topic {world.topic} {why}.*nothing was sent"):
            world.replay(file, skip_bad=True)
        assert world.values() == before

    refused(world.file(GOOD[:-1], "other.csv"))
    world.pipeline.write_text(text.replace(", where: [{field: count, at_most: 9}]", ""))
    refused(file)
    world.pipeline.write_text(text)
    world.key.unlink()
    make_key(world.key)
    refused(file, "holds records, but no tick mark that this operator's key signed")


@pytest.mark.parametrize("hostile", [False, True])
def test_a_topic_with_records_and_no_marks_is_refused(make: Make, hostile: bool) -> None:
    world = make()
    asyncio.run(create(world.kafka, world.topic, 2))
    record = accepted(dear=False)[0][1] if hostile else plain([b"{}"]).encoded()
    with Wire(world.kafka) as wire:
        assert wire.produce(world.topic, 1, record).error == 0
    with pytest.raises(FailClosed, match=r"holds records, but no tick mark .*--create N"):
        world.replay(world.file(GOOD))


async def fed(world: World, file: Path, begin: int, end: int) -> None:
    feed, wanted = world.feeding(file)
    try:
        assert await feed.open() == begin
        await feed.send(begin, wanted[begin:end])
    finally:
        await feed.close()


def test_an_interrupted_replay_goes_on_behind_whatever_others_wrote(make: Make) -> None:
    """Copied marks, and every batch that brokers take and whose reading is cheap: the client's own reader ends at the
    first of them.
    """
    world = make()
    file = world.file(GOOD)
    asyncio.run(create(world.kafka, world.topic, 2, message_timestamp_type="LogAppendTime"))
    asyncio.run(fed(world, file, 0, 2))

    async def copied() -> None:
        marks = world.feeding(file)[0]._marks
        async with writing(world.kafka) as producer:
            for value in (marks.sign(0, 0), b"soon"):
                headers = [(TICK_HEADER, value)]
                await producer.send_and_wait(world.topic, b"", partition=0, headers=headers)

    asyncio.run(copied())
    with Wire(world.kafka) as wire:
        stored = [wire.produce(world.topic, 0, batch) for _, batch in accepted(dear=False)]
    assert len(stored) > 20
    assert not any(one.error for one in stored)
    asyncio.run(fed(world, file, 2, 3))
    before = sum(int(row[18]) < 3 for row in GOOD)
    said = world.replay(file)
    assert f"{10 - before} records sent, {before} sent already by an earlier run" in said


def test_what_a_killed_feed_left_open_is_no_record(make: Make) -> None:
    world = make()
    file = world.file(GOOD)

    async def killed() -> None:
        await create(world.kafka, world.topic, 2)
        feed, wanted = world.feeding(file)
        await feed.open()
        await half_a_transaction(cast("KafkaLease", feed), world.topic, wanted[0][0].payload)
        feed._producer = None

    asyncio.run(killed())
    assert "10 records sent" in world.replay(file)
    assert len(world.values()) == len(GOOD) + MARKS


def test_a_bad_cell_of_a_parquet_file_is_one_record(make: Make) -> None:
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    world = make()
    ends = b"".join(end.to_bytes(4, "little") for end in (0, 1, 2, 3, 4))
    shops = pa.Array.from_buffers(
        pa.utf8(), 4, [None, pa.py_buffer(ends), pa.py_buffer(b"a\xffb\xfe")]
    )
    times = pa.array([1_577_836_800 + at for at in range(4)], pa.timestamp("s", "Asia/Tokyo"))
    file = world.folder / "data.parquet"
    parquet.write_table(pa.table({"time": times, "shop": shops, "count": [1, 2, 3, 4]}), file)
    with pytest.raises(UsageError, match="--skip-bad"):
        world.replay(file)
    assert "wrong_type: 2, the first in line 2" in world.said()
    assert "2 records sent, 2 left out" in world.replay(file, skip_bad=True)
    assert [value for value in world.values() if value] == [
        b'{"time":"2020-01-01T00:00:00Z","shop":"a","count":1}',
        b'{"time":"2020-01-01T00:00:02Z","shop":"b","count":3}',
    ]


async def topic_exists(world: World) -> bool:
    async with administering(world.kafka) as admin:
        return world.topic in await admin.list_topics()
