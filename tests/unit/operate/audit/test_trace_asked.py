"""Thresholds that analysts ask of a mechanism are part of the trace: answers are compared, and a twin's are caught."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from unit.live.message_worlds import WATCHED, WITH_ANALYSTS, MessageWorld, sealed, text
from unit.operate.audit.trace_worlds import SEALER, blobs

from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Asked, digest, encode
from stream_dp.operate.audit.trace_check import TraceReport, compared
from stream_dp.pipeline.builder import Built

SCRIPT = [
    (tick, sealed(text(f"q{tick}", "ask", series="watched", threshold=threshold)))
    for tick, threshold in ((1, 500), (3, 600), (5, 700), (8, 10))
]


@pytest.fixture
async def world() -> MessageWorld:
    """A life in which a series is asked four times, the last time with a threshold far below its count."""
    world = MessageWorld(WITH_ANALYSTS, script=list(SCRIPT))
    await world.live()
    return world


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pipeline's second series be the one that is asked, as the world's engine has it."""
    before = Built.run_config

    def run_config(self: Built, now: int, **more: Any) -> Any:
        config = before(self, now, **more)
        return replace(config, series=(config.series[0], WATCHED))

    monkeypatch.setattr(Built, "run_config", run_config)


async def checked(world: MessageWorld) -> TraceReport:
    """The check of the world's journal."""
    return await compared(world.built, SEALER, blobs(world))


async def test_what_was_asked_is_answered_by_the_composition(world: MessageWorld) -> None:
    found = await checked(world)
    asked = [c for commit in world.commits() for c in commit.changes if isinstance(c, Asked)]
    assert found.answers == len(asked) == 4
    assert found.counts.asks == 2 * found.releases + found.answers
    assert found.apart is True
    told = [json.loads(body)["answer"]["above"] for body in world.answers]
    assert told[-1] is True


async def test_an_altered_answer_is_caught(world: MessageWorld) -> None:
    """Sealed with the right key, in an unbroken chain."""
    commits, previous = world.commits(), b""
    world.store.commits.clear()
    for commit in commits:
        told = tuple(
            msgspec.structs.replace(each, body=each.body.replace(b"false", b"true"))
            for each in commit.answers
        )
        linked = msgspec.structs.replace(commit, answers=told, previous=previous)
        world.store.commits.append(SEALER.seal(commit.sequence, encode(linked)))
        previous = digest(world.store.commits[-1])
    with pytest.raises(FailClosed, match="other bytes than the recorded answer"):
        await checked(world)
