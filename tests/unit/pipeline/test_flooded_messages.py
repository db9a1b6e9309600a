"""Messages as fast as they come, most of them hostile: ticks go on, memory is bounded, everything is answered once."""

import asyncio
from collections import deque
from functools import partial
from typing import Any

import pytest
from unit.pipeline.flood_worlds import AT_A_TIME, FloodedWorld, flood_findings

from stream_dp.errors import NotAccepted
from stream_dp.runtime import engine as engines
from stream_dp.runtime.answer_body import AnswerCut
from stream_dp.runtime.answering import Answering
from stream_dp.runtime.commands import Inbox
from stream_dp.runtime.conversation import Conversation
from stream_dp.runtime.ports import Question, Questions


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_flood_holds_nothing_up_and_is_answered_once(seed: int) -> None:
    world = FloodedWorld()
    await world.flooded(3000, seed)
    assert flood_findings(world) == []
    kinds = {each["refused"]["kind"] for each in world.said() if each["id"] is None}
    assert kinds == {"unreadable", "signature", "expired", "used", "repeated", "rate"}
    assert world.held == AT_A_TIME


class MessagesFirst(Inbox):
    """Takes ticks only where no message waits: a flood stops them."""

    async def get(self, most: int) -> Any:
        self._commanded = False
        return await super().get(most)


class SharesNothing(Conversation):
    """Every refusal has an answer of its own."""

    def refuse(self, refusal: NotAccepted, place: int, standing: AnswerCut) -> None:
        super().refuse(refusal, place, standing)
        self._close_refused(standing)


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
        ("Conversation", SharesNothing, "do not share answers"),
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
