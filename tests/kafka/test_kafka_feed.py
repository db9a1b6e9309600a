"""A feed into a topic, and the commands `replay` and `topic`."""

import asyncio
from pathlib import Path

import pytest
from kafka.kafka_worlds import ENDLESS, Close, administering, create, tick_marks, visible, writing

from stream_dp.cli.commands.broker import replay
from stream_dp.cli.commands.broker import topic as make_topic
from stream_dp.errors import UsageError, WorldError
from stream_dp.files.records import Record
from stream_dp.journal.keys import make_key
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import KafkaFeed
from stream_dp.kafka.client.tick_marks import TICK_HEADER
from stream_dp.kafka.client.topics import config
from stream_dp.operate.run import settings
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

    async def looked() -> tuple[str, str, int]:
        async with administering(kafka) as admin:
            (found,) = (one for one in await admin.describe_topics() if one["topic"] == name)
            settings = await config(admin, name)
        kept = (settings["message.timestamp.type"], settings["compression.type"])
        return (*kept, len(found["partitions"]))

    assert asyncio.run(looked()) == ("LogAppendTime", "uncompressed", 2)
    with pytest.raises(UsageError, match="NAME"):
        make_topic("a b", bootstrap=kafka)
    with pytest.raises(WorldError, match=r"127\.0\.0\.1:1"):
        make_topic("a", bootstrap="127.0.0.1:1")


PIPELINE = """\
version: 1
name: p
source: {{kind: kafka, topic: expected, bootstrap: "{kafka}", patience: 2s}}
schema: {{time: {{type: time}}}}
privacy: {{epsilon: 1}}
clock: {{kind: replay, field: time, start: 2020-01-01T00:00:00Z, step: 1s, horizon: 3}}
series:
  - {{name: all, statistic: count, epsilon: 1}}
"""


def test_a_replay_into_another_topic_is_told_and_a_missing_one_is_named_at_once(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = KafkaSettings(kafka, patience_s=ENDLESS)
    monkeypatch.setattr("stream_dp.operate.replay_feed.settings_for", lambda _: patient)
    pipeline, events = tmp_path / "p.yaml", tmp_path / "events.csv"
    pipeline.write_text(PIPELINE.format(kafka=kafka))
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
