"""Engines that answer wrongly somewhere, each found by the tests of messages: the twins of `test_messages`."""

from typing import Any

import pytest
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.message_worlds import SCRIPT, WITH_ANALYSTS, MessageWorld, findings

from stream_dp.engine import engine as engines
from stream_dp.engine.cut_changes import CutChanges
from stream_dp.engine.gate import Gate
from stream_dp.engine.messages.conversation import Conversation
from stream_dp.engine.recovery import Recovered
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit


class AnswersBeforeTheCommit(Gate):
    """Shows an answer that a crash takes back."""

    async def commit(self, commit: Commit, sealed: bytes) -> None:
        await self.tell(commit.answers)
        await super().commit(commit, sealed)


class OneSeedForTwoAsks(CutChanges):
    """Two queries draw the same noise: the difference of two answers is exact."""

    async def _asked(self, *asked: Any) -> Any:
        seed = self._seeds()
        self._kept = getattr(self, "_kept", seed)
        fresh, self._seeds = self._seeds, lambda: self._kept
        try:
            return await super()._asked(*asked)
        finally:
            self._seeds = fresh


class ForgetsIds(Conversation):
    """After a restart the copy of an old message is executed again."""

    def replay(self, commit: Commit) -> None:
        super().replay(commit)
        self._used.clear()


async def keeps_quiet(gate: Gate, durable: Any) -> None:
    """Publishes no answer of an earlier run."""


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("Gate", AnswersBeforeTheCommit), ("CutChanges", OneSeedForTwoAsks), ("Conversation", ForgetsIds),
    ],
)  # fmt: skip
async def test_the_twin_is_found(
    name: str, twin: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, name, twin)
    assert await wrong()


async def test_an_outbox_that_is_not_emptied_at_the_start_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent(engines.Engine):
        async def _start(self) -> Recovered:
            tell, Gate.tell = Gate.tell, keeps_quiet  # type: ignore[method-assign, assignment]
            try:
                return await super()._start()
            finally:
                Gate.tell = tell  # type: ignore[method-assign]

    assert await wrong(Silent)


async def wrong(kind: type[engines.Engine] = engines.Engine) -> bool:
    """Whether some crash shows that something is wrong."""
    for left in range(59, 1, -1):
        world = MessageWorld(WITH_ANALYSTS, script=SCRIPT, kind=kind)
        try:
            try:
                await world.live(Fuse(left))
            except Crash:
                await world.live()
        except FailClosed:
            return True
        if findings(world):
            return True
    return False
