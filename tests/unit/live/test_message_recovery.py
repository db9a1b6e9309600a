"""What a start makes of a journal with messages: it asks again byte for byte, and shows what is missing."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.message_worlds import SCRIPT, WITH_ANALYSTS, MessageWorld, findings

from stream_dp.engine import engine as engines
from stream_dp.errors import FailClosed, StreamDPError
from stream_dp.journal.commit import Asked, Commit


async def lived() -> MessageWorld:
    world = MessageWorld(WITH_ANALYSTS, script=SCRIPT)
    await world.live()
    return world


def rewritten(world: MessageWorld, change: Callable[[Commit], Mapping[str, Any]]) -> MessageWorld:
    """The same with commits that say something else, in an unbroken chain, and nothing public."""
    world.rewrite(change)
    world.answers.clear()
    world.bodies.clear()
    return world


def asks(commit: Commit) -> bool:
    return any(isinstance(change, Asked) for change in commit.changes)


async def test_what_is_missing_is_shown_as_it_was() -> None:
    world = await lived()
    answers, bodies = list(world.answers), list(world.bodies)
    for kept in (len(answers) - 1, len(answers) // 2, 0):
        del world.answers[kept:]
        await world.live()
        assert world.answers == answers
    await rewritten(world, lambda commit: {}).live()
    assert (world.answers, world.bodies) == (answers, bodies)


async def test_a_journal_that_is_older_than_its_answers_is_refused() -> None:
    world = await lived()
    place = max(n for n, commit in enumerate(world.commits()) if commit.answers)
    last = world.commits()[place].releases
    assert not last
    del world.store.commits[place:]
    public = [commit.releases for commit in world.commits() if commit.releases]
    world.bodies[:] = [release.body for releases in public for release in releases]
    with pytest.raises(
        FailClosed, match=r"than, or differs from, what its answer topic or file already"
    ):
        await world.live()


async def test_answers_of_another_journal_are_refused() -> None:
    world = await lived()
    world.answers[-1] = world.answers[-1].replace(b'"detail":"', b'"detail":"x')
    with pytest.raises(FailClosed, match="what its answer topic or file already shows"):
        await world.live()


def other_body(commit: Commit) -> Mapping[str, Any]:
    told = [
        msgspec.structs.replace(answer, body=answer.body.replace(b'"above":false', b'"above":true'))
        for answer in commit.answers
    ]
    return {"answers": tuple(told)} if asks(commit) else {}


def other_parameters(commit: Commit) -> Mapping[str, Any]:
    changes = [
        msgspec.structs.replace(change, parameters=b'{"threshold":-1000000}') if isinstance(change, Asked) else change
        for change in commit.changes
    ]  # fmt: skip
    return {"changes": tuple(changes)}


TAMPERED: list[Callable[[Commit], Mapping[str, Any]]] = [
    other_body,
    other_parameters,
    lambda c: {"changes": _asked(c, parameters=b"no JSON")},
    lambda c: {"changes": _asked(c, parameters=b"{}")},
    lambda c: {"changes": _asked(c, number=0)},
    lambda c: {"changes": _asked(c, answer=1)},
    lambda c: {"changes": _asked(c, at=0)},
    lambda c: {"answers": ()} if asks(c) else {},
]


def _asked(commit: Commit, **fields: Any) -> tuple[Any, ...]:
    return tuple(
        msgspec.structs.replace(change, **fields) if isinstance(change, Asked) else change
        for change in commit.changes
    )


@pytest.mark.parametrize("tamper", TAMPERED)
async def test_a_journal_that_does_not_give_its_answers_again_is_refused(
    tamper: Callable[[Commit], Mapping[str, Any]],
) -> None:
    world = rewritten(await lived(), tamper)
    with pytest.raises(FailClosed) as caught:
        await world.live()
    assert isinstance(caught.value, StreamDPError)
    assert world.answers == []
    assert "threshold" not in str(caught.value)


async def test_a_start_from_a_snapshot_asks_again_what_came_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "SNAPSHOT_TICKS", 4)
    for left in range(5, 120, 9):
        world = MessageWorld(WITH_ANALYSTS, script=SCRIPT)
        try:
            await world.live(Fuse(left))
        except Crash:
            await world.live()
        assert findings(world) == [], f"after a crash at place {left}"
    assert sum(commit.snapshot is not None for commit in world.commits()) >= 2
    assert json.loads(world.answers[0])["number"] == 1
