"""What a Faust app remembers beyond its workers: how far its origin was fed, and which releases it has dealt with.

A topic that was deleted and made anew is refused as an origin: its records would be taken for those fed before.
"""

import asyncio
import json
from pathlib import Path

import pytest
from faults.kafka_evidence import records
from kafka.faust_worlds import PARTITIONS, FaustWorld, until, working
from kafka.kafka_worlds import Close, administering, create, deleted, visible

from stream_dp.errors import FailClosed
from stream_dp.integrations.faust.origin_writer import Made, OriginWriter, Target
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.testing.kafka import fresh_topic_name


async def made_anew(kafka: str, topic: str, partitions: int) -> None:
    """Delete a topic and make another of its name."""
    async with administering(kafka) as admin:
        await deleted(admin, topic)
    await create(kafka, topic, partitions)


class Fed:
    """A pipeline's source, and writers of what is made of an origin."""

    def __init__(self, settings: KafkaSettings, name: str, closing: list[Close]) -> None:
        self.target = Target(settings, name, fresh_topic_name("source"))
        self.origin = fresh_topic_name("origin")
        self._closing = closing

    async def made(self) -> "Fed":
        """Create the topics."""
        for topic in (self.target.topic, self.origin):
            await create(self.target.settings.bootstrap, topic, 1)
        return self

    async def feed(self, *made: Made) -> list[bytes]:
        """Feed these by a writer of its own, as another worker does; what the source then holds."""
        writer = OriginWriter(self.target, self.origin, 0, lambda: True)
        self._closing.append(writer.close)
        assert await writer.feed(made)
        found = await visible(self.target.settings.bootstrap, self.target.topic)
        return [one.value for one in found]


async def test_an_origin_that_was_made_anew_is_refused_and_nothing_is_fed(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    fed = await Fed(settings, name, closing).made()
    old = [Made(0, b"old 0"), Made(1, b"old 1")]
    assert await fed.feed(*old) == [b"old 0", b"old 1"]
    assert await fed.feed(*old, Made(2, b"old 2")) == [b"old 0", b"old 1", b"old 2"]
    await made_anew(kafka, fed.origin, 1)
    new = Made(0, b"new 0")
    with pytest.raises(FailClosed, match=rf"{fed.origin}.*made anew.*Name the new topic otherwise"):
        await fed.feed(new)
    found = await visible(kafka, fed.target.topic)
    assert [one.value for one in found] == [b"old 0", b"old 1", b"old 2"]


async def test_a_writer_that_does_not_look_loses_what_is_new(
    settings: KafkaSettings,
    kafka: str,
    name: str,
    closing: list[Close],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The twin, which knows a topic by its name alone: what the refusal is for."""

    async def by_name(_: OriginWriter) -> str:
        return ""

    monkeypatch.setattr(OriginWriter, "_identity", by_name)
    fed = await Fed(settings, name, closing).made()
    await fed.feed(Made(0, b"old 0"))
    await made_anew(kafka, fed.origin, 1)
    assert await fed.feed(Made(0, b"new 0")) == [b"old 0"]


async def test_an_app_whose_origin_was_made_anew_ends_with_4(kafka: str, tmp_path: Path) -> None:
    world = await FaustWorld.made(tmp_path, kafka)
    events = [(n % PARTITIONS, n) for n in range(1, 9)]
    async with working(world, 1) as first:
        await until(lambda: world.released() != [])
        await world.put(events)
        await until(lambda: world.released()[-1][1] == len(events))
        first.terminate()
        await until(lambda: first.poll() is not None)
    assert first.returncode == 0
    await made_anew(kafka, world.raw, PARTITIONS)
    await world.put(events)
    async with working(world, 2) as second:
        await until(lambda: second.poll() is not None)
    assert second.returncode == 4
    assert f"topic '{world.raw}' was deleted and made anew" in (tmp_path / "log-2").read_text()
    assert world.released()[-1][1] == len(events)


async def kept_in_table(kafka: str, world: FaustWorld) -> int:
    """The last release that the changelog of the table holds, once it holds one: a worker writes it behind itself."""
    async with asyncio.timeout(100):
        while not (found := await records(kafka, f"app-{world.talk.name}-seen-changelog")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return int(json.loads(found[-1].value)[0])


@pytest.mark.parametrize("table", [True, False], ids=["a table", "a dict"])
async def test_releases_seen_in_a_table_do_not_come_again_after_a_kill(
    kafka: str, tmp_path: Path, table: bool
) -> None:
    """Faust has committed nothing, so it delivers every release again; a dict, the twin, has died with the worker."""
    made = await FaustWorld.made(tmp_path, kafka)
    world = FaustWorld(made.talk, made.raw, table=table, commit_s=10_000.0)
    async with working(world, 1) as first:
        await until(lambda: len(world.released()) > 20)
        kept = await kept_in_table(kafka, world) if table else 0
        first.kill()
    before = [number for number, _ in world.released()]
    assert before == [*range(1, len(before) + 1)]
    async with working(world, 2) as second:
        await until(lambda: world.released()[-1][0] > before[-1] + 20)
        second.terminate()
        await until(lambda: second.poll() is not None)
    assert second.returncode == 0
    after = [number for number, _ in world.released()][len(before) :]
    assert after == [*range(after[0], after[-1] + 1)]  # once each, in order, without a gap
    assert after[0] == 1 if not table else kept < after[0] <= len(before) + 1
