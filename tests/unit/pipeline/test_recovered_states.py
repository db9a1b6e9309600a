"""What a start takes over: states of the series that lived, and of releases those alone that are public."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from unit.live.live_series_worlds import PIPELINE, World, batches
from unit.live.test_message_recovery import lived, rewritten

from stream_dp.engine import engine as engines
from stream_dp.engine.recovery import recover
from stream_dp.engine.series import MadeSeries
from stream_dp.errors import FailClosed
from stream_dp.files.memory import MemorySource
from stream_dp.journal.commit import Commit, SavedStates


@pytest.mark.parametrize("hidden", [0, 1, 2, 7])
async def test_what_is_not_public_yet_answers_nobody(
    monkeypatch: pytest.MonkeyPatch, hidden: int
) -> None:
    """What comes last in the journal may be told only if it is public; else what is public is read again."""
    world = await lived()
    bodies = list(world.bodies)
    seen: list[Mapping[str, bytes]] = []

    async def noted(*arguments: Any) -> Any:
        recovered = await recover(*arguments)
        assert recovered is not None
        seen.append(dict(recovered.latest))
        return recovered

    monkeypatch.setattr(engines, "recover", noted)
    del world.bodies[len(bodies) - hidden :]
    await world.live()
    assert world.bodies == bodies
    end = json.loads(bodies[-1])["tick"]
    last = {one["series"]: body for body in bodies if (one := json.loads(body))["tick"] == end}
    assert seen == [{} if hidden else last]
    assert len(last) >= 2


def one_fewer(commit: Commit) -> Mapping[str, Any]:
    if commit.snapshot is None:
        return {}
    kept = dict(sorted(commit.snapshot.states.items())[:-1])
    return {"snapshot": SavedStates(kept)}


def one_more(commit: Commit) -> Mapping[str, Any]:
    """A snapshot with the state of a series that never lived."""
    if commit.snapshot is None:
        return {}
    states = commit.snapshot.states
    return {"snapshot": msgspec.structs.replace(commit.snapshot, states={**states, 99: states[0]})}


@pytest.mark.parametrize("change", [one_fewer, one_more])
async def test_a_snapshot_of_other_series_is_refused(
    monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    monkeypatch.setattr(engines, "SNAPSHOT_TICKS", 4)
    world = rewritten(await lived(), change)
    assert any(commit.snapshot is not None for commit in world.commits())
    with pytest.raises(FailClosed, match="does not match the series that ran at that commit"):
        await world.live()
    assert world.bodies == world.answers == []


async def test_what_is_made_of_releases_is_made_again_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A version of the code that makes other bytes of the same releases goes no further."""
    de = {
        "name": "de",
        "statistic": "count",
        "epsilon": "0.5",
        "where": [{"field": "country", "equals": "DE"}],
    }
    share = {"name": "share", "statistic": "ratio", "of": "de", "over": "orders"}
    series = [*PIPELINE["series"], de, share]
    world, made = World(PIPELINE | {"series": series}), MadeSeries._written

    async def again() -> None:
        await world.engine(MemorySource(batches(), partitions=(0, 1))).run()

    await again()
    await again()
    monkeypatch.setattr(MadeSeries, "_written", lambda *given: made(*given) + b" ")
    with pytest.raises(FailClosed, match="replaying tick 0 of series share does not give"):
        await again()
