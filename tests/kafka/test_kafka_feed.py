"""A feed into a topic, the commands `replay` and `topic`, and a run whose broker stops."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka.kafka_worlds import (
    CLOCKS,
    ENDLESS,
    SETTLE,
    STEP,
    Close,
    WallClock,
    create,
    tick_marks,
    visible,
    writing,
)

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.cli.commands.replay import replay
from stream_dp.cli.commands.topic import topic as make_topic
from stream_dp.engine.ports import Batch, Ports
from stream_dp.errors import UsageError, WorldError
from stream_dp.files.records import Record
from stream_dp.journal.keys import Sealer, make_key
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import KafkaFeed
from stream_dp.kafka.client.tick_marks import TICK_HEADER
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import Holder, KafkaLease
from stream_dp.kafka.log.public import KafkaSink
from stream_dp.kafka.source.source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.operate.run import settings
from stream_dp.operate.run.run_pipeline import RunOptions, run_pipeline
from stream_dp.operate.run.running import Setup
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.kafka import fresh_topic_name


async def test_a_feed_goes_on_after_its_last_mark_and_names_a_missing_topic(
    kafka: str, settings: KafkaSettings, closing: list[Close]
) -> None:
    missing = tick_marks(fresh_topic_name("no-such"))
    feed = KafkaFeed(KafkaSettings(kafka, patience_s=ENDLESS), missing)
    closing.append(feed.close)
    with pytest.raises(WorldError, match=r"no-such.* does not exist at .*create it.*--create N"):
        await feed.open()
    topic = await create(kafka, fresh_topic_name("fed"), 2)
    marks = tick_marks(topic)
    for first in (0, 2):
        feed = KafkaFeed(settings, marks)
        closing.append(feed.close)
        assert await feed.open() == first
        await feed.send(first, [[Record(0, None, b"a")], []])
    async with writing(kafka) as producer:
        for value in (b"soon", b"9" * 18, b"999", marks.sign(1, 9), *[marks.sign(0, 1)] * 200):
            headers = [(TICK_HEADER, value)]
            await producer.send_and_wait(topic, b"", partition=0, headers=headers)
    feed = KafkaFeed(settings, marks)
    closing.append(feed.close)
    assert await feed.open() == 4


def test_a_topic_is_made_once(
    kafka: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WAIT_S", 0.0)
    name = fresh_topic_name("made")
    make_topic(name, bootstrap=kafka, partitions=2)
    make_topic(name, bootstrap=kafka, partitions=1, stamped=False)
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: created, 2 partitions, records are stamped on arrival",
        f"{name}: exists already and was left as it is",
    ]
    source = KafkaSource(KafkaSettings(kafka), name, WallClock(), StampTicks(STEP, SETTLE, CLOCKS))

    async def partitions() -> tuple[int, ...]:
        try:
            return await source.open(WallClock().now())
        finally:
            await source.close()

    assert asyncio.run(partitions()) == (0, 1)
    with pytest.raises(UsageError, match="NAME"):
        make_topic("a b", bootstrap=kafka)
    with pytest.raises(WorldError, match=r"127\.0\.0\.1:1"):
        make_topic("a", bootstrap="127.0.0.1:1")


PIPELINE = """\
version: 1
name: {name}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}", patience: 2s}}
schema: {{time: {{type: time}}}}
privacy: {{epsilon: 1}}
clock: {clock}
series:
  - {{name: all, statistic: count, epsilon: 1}}
"""


REPLAYED = "{kind: replay, field: time, start: 2020-01-01T00:00:00Z, step: 1s, horizon: 3}"


def test_a_replay_into_another_topic_is_told_and_a_missing_one_is_named_at_once(
    kafka: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patient = KafkaSettings(kafka, patience_s=ENDLESS)
    monkeypatch.setattr("stream_dp.operate.replay_feed.settings_for", lambda _: patient)
    pipeline, events = tmp_path / "p.yaml", tmp_path / "events.csv"
    text = PIPELINE.format(name="p", topic="expected", kafka=kafka, clock=REPLAYED)
    pipeline.write_text(text)
    events.write_text("time\n2020-01-01T00:00:01Z\n")
    name = fresh_topic_name("fed")
    key = tmp_path / "key"
    make_key(key)
    with pytest.raises(WorldError, match=f"{name} does not exist"):
        replay(events, topic=name, pipeline=pipeline, key_file=key)
    warning = f"Warning: p reads topic expected, not {name}"
    assert warning in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(UsageError, match=r"operator key.*--key-file"):
        replay(events, topic=name, pipeline=pipeline, create=1)
    replay(events, topic=name, pipeline=pipeline, create=1, key_file=key)
    assert len(asyncio.run(visible(kafka, name))) == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # half-open sockets
@pytest.mark.parametrize("clock", ["{kind: wall, step: 200ms}", REPLAYED], ids=["wall", "replay"])
async def test_a_broker_that_stops_during_a_run_is_one_line(
    tmp_path: Path, clock: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline, key = tmp_path / "p.yaml", tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(bytes(32))

    def hasty(spec: PipelineSpec, sealer: Sealer, accepted: str, holder: Holder) -> Ports:
        settings = KafkaSettings(address, patience_s=5, transaction_timeout_ms=5_000)
        lease = KafkaLease(settings, spec.name, holder)
        ticks = (
            StampTicks(200, 250, CLOCKS) if "wall" in clock else ReplayTicks(tick_marks("events"))
        )
        source = Noted(settings, "events", WallClock(), ticks)
        journal = KafkaJournal(lease, "events")
        return Ports(source, journal, KafkaSink(lease), WallClock(), sealer)

    class Noted(KafkaSource):
        async def read(self) -> Sequence[Batch]:
            reading.set()
            return await super().read()

    reading = asyncio.Event()
    broker = LocalKafka(tmp_path / "broker")
    async with asyncio.timeout(250):
        await broker.start()
        address = broker.bootstrap
        try:
            await create_topic(address, "events", 2, {"message.timestamp.type": "LogAppendTime"})
            text = PIPELINE.format(name="p", topic="events", kafka=broker.bootstrap, clock=clock)
            pipeline.write_text(text)
            running = asyncio.create_task(
                run_pipeline(pipeline, RunOptions(key_file=key), Setup(adapters=hasty))
            )
            at_work = asyncio.create_task(reading.wait())
            await asyncio.wait({running, at_work}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(1)
            assert not running.done()
        finally:
            await broker.stop()
        with pytest.raises(WorldError) as caught:
            await running
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5
    assert "check that" in str(caught.value)
    del running, caught, at_work
    gc.collect()
    assert [one.getMessage() for one in caplog.records if "Unclosed" in one.getMessage()] == []
