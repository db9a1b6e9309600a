"""Messages as fast as they come, most of them hostile: ticks go on, memory is bounded, everything is answered once."""

import asyncio
from collections import deque
from functools import partial
from typing import Any

import pytest
from unit.live.flood_worlds import AT_A_TIME, Flood, FloodedWorld, flood_findings
from unit.live.live_series_worlds import HORIZON, Stopping
from unit.live.message_worlds import refusals, sealed, text

from stream_dp.engine import engine as engines
from stream_dp.engine.commands import Inbox
from stream_dp.engine.messages.answering import Answering
from stream_dp.engine.messages.conversation import Conversation
from stream_dp.engine.ports import Question, Questions


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_flood_holds_nothing_up_and_is_answered_once(seed: int) -> None:
    world = FloodedWorld()
    await world.flooded(3000, seed)
    assert flood_findings(world) == []
    kinds = {part["kind"] for each in world.said() if each["id"] is None for part in refusals(each)}
    assert kinds == {"unreadable", "signature", "expired", "used", "repeated", "rate"}
    assert world.held == AT_A_TIME


class MessagesFirst(Inbox):
    """Takes ticks only where no message waits: a flood stops them."""

    async def get(self, most: int) -> Any:
        self._commanded = False
        return await super().get(most)


class SharesNothing(Conversation):
    """Refusals are told whenever there are some."""

    @property
    def due(self) -> bool:
        return bool(self._refused)


class NoRate(Conversation):
    """An analyst may have as much executed between two ticks as she likes."""

    def require_rate(self, analyst: str) -> None:
        pass


class ReadsAhead(engines.Engine):
    """Reads the queue without waiting for what it read to be executed."""

    async def _listen(self, answering: Answering, questions: Questions | None) -> None:
        async def all_of(found: deque[Question]) -> None:
            while found:
                await self._done(partial(answering.hear, found))

        waiting = []
        while questions is not None:
            waiting.append(asyncio.ensure_future(all_of(deque(await questions.read()))))
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("name", "twin", "why"),
    [
        ("Inbox", MessagesFirst, "was held up by messages"),
        ("Conversation", SharesNothing, "do not share one answer a tick"),
        ("Conversation", NoRate, "more than so many between two ticks"),
        ("", ReadsAhead, "more was read than is executed at a time"),
    ],
)
async def test_the_twin_does_not_stand_the_flood(
    name: str, twin: type[Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FloodedWorld()
    if name:
        monkeypatch.setattr(engines, name, twin)
    else:
        world.kind = twin
    await world.flooded(1500, 3)
    assert any(why in each for each in flood_findings(world))


def junk(records: int) -> list[bytes]:
    """Records without a valid signature, of two kinds in turn, and one good message in the midst of them."""
    forged = sealed(text("forged", "list", "ann"), "bob")
    found = [forged if at % 2 else b"junk" for at in range(records)]
    return [*found[: records // 2], sealed(text("good", "list")), *found[records // 2 :]]


async def junked(records: int, *, killed: bool = False) -> FloodedWorld:
    """A world that was sent junk; where it is killed, once in the midst of it."""
    world = FloodedWorld()
    for again in range(1 + killed):
        source = Stopping(HORIZON)
        source.limit = -1
        world.queue = Flood(junk(records), source)
        engine = world.messaging(source)
        world.plugged(engine)
        run = asyncio.create_task(engine.run())
        while not world.over(engine, len(world.queue.messages)):
            if killed and not again and world.public_tick() >= HORIZON // 2:
                run.cancel()
                break
            await asyncio.sleep(0)
        source.go(HORIZON)
        await asyncio.wait({run})
    return world


async def test_junk_lets_neither_the_journal_nor_the_answers_grow() -> None:
    """Ten times as many records take some more digits, and their ticks one line."""
    small, large = [await junked(records) for records in (400, 4000)]
    for world in (small, large):
        lines = [each for each in world.said() if each["id"] is None]
        assert len(lines) <= HORIZON + 1
        assert all(len(each["places"]) <= 20 for line in lines for each in refusals(line))
    sizes = [
        (sum(map(len, world.answers)), sum(map(len, world.store.commits)))
        for world in (small, large)
    ]
    assert sizes[1][0] < sizes[0][0] + 200 * HORIZON
    assert sizes[1][1] < sizes[0][1] + 1000 * HORIZON


@pytest.mark.parametrize("killed", [False, True])
async def test_each_record_of_junk_is_counted_once_by_its_kind_also_after_a_kill(
    killed: bool,
) -> None:
    world = await junked(1000, killed=killed)
    found = dict.fromkeys(("unreadable", "signature"), 0)
    for line in world.said():
        for each in refusals(line) if line["id"] is None else []:
            found[each["kind"]] += each["records"]
    assert found == {"unreadable": 500, "signature": 500}
    assert [each["id"] for each in world.said() if each["id"]] == ["good"]
