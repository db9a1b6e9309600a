"""Journals with quantiles against the theory: sliding, so far and of windows that end; altered copies are caught.

One tick's releases are made anew from the journal's rows and seeds, byte by byte, ranges and bands too.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from unit.live.live_series_worlds import HORIZON, World
from unit.operate.audit.trace_worlds import RICH, SEALER, blobs, lived, seeded

from stream_dp.engine.recovery import _as_recorded
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit, Release, digest, encode
from stream_dp.journal.release import former
from stream_dp.mechanisms.quantiles import sliding_quantiles, tumbling_quantiles
from stream_dp.operate.audit.trace_check import compared

OF = {
    "statistic": "quantiles",
    "of": "amount",
    "clamp": ["0", "12"],
    "buckets": "12",
    "at": ["0.5", "0.9"],
}
PIPELINE: dict[str, Any] = {
    **RICH,
    "series": [
        {**OF, "name": "sliding", "windows": ["2h", "ever"], "epsilon": "1"},
        {**OF, "name": "all", "epsilon": "1"},
        {**OF, "name": "ending", "every": "2h", "epsilon": "1"},
    ],
}
ENDS = ["low", "high"]
SERIES = ("sliding", "all", "ending")


@pytest.fixture
async def world() -> World:
    """A life with restarts, snapshots, and series that come and go."""
    return await lived(seeded(PIPELINE))


async def test_what_was_released_is_what_the_journal_gives(world: World) -> None:
    found = await compared(world.built, SEALER, blobs(world))
    assert (found.ticks, found.apart) == (HORIZON, True)
    assert found.releases == sum(len(commit.releases) for commit in world.commits())
    assert found.snapshots >= 2


def resealed(world: World, change: Callable[[list[Commit]], None]) -> None:
    """The journal with a change in it, sealed with the right key in an unbroken chain."""
    commits, previous = world.commits(), b""
    change(commits)
    world.store.commits.clear()
    for each in commits:
        sealed = SEALER.seal(
            each.sequence, encode(msgspec.structs.replace(each, previous=previous))
        )
        world.store.commits.append(sealed)
        previous = digest(sealed)


async def test_a_journal_with_the_bodies_of_former_versions_is_theirs(world: World) -> None:
    """They wrote a chosen bucket as `low` and `high`; recovery takes the recorded bytes, and no others."""
    changed: list[Release] = []

    def change(commits: list[Commit]) -> None:
        for place, commit in enumerate(commits):
            old = [msgspec.structs.replace(one, body=former(one.body)) for one in commit.releases]
            changed.extend(one for one in commit.releases if former(one.body) != one.body)
            commits[place] = msgspec.structs.replace(commit, releases=tuple(old))

    resealed(world, change)
    found = await compared(world.built, SEALER, blobs(world))
    assert found.releases > len(changed) > 5
    new = changed[0]
    old = msgspec.structs.replace(new, body=former(new.body))
    assert _as_recorded(new.body, old, "ending", 3) == old.body
    with pytest.raises(FailClosed, match="does not give the recorded bytes"):
        _as_recorded(new.body.replace(b'"bucket":[', b'"bucket":[1'), old, "ending", 3)


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("key", ["value", "low", "high", "band"])
async def test_one_number_that_differs_is_caught(world: World, series: str, key: str) -> None:
    def change(commits: list[Commit]) -> None:
        place = next(n for n in range(len(commits) - 1, -1, -1) if commits[n].ticks)
        releases = list(commits[place].releases)
        at = next(n for n, one in enumerate(releases) if one.series == series)
        told = json.loads(releases[at].body)
        part = next(iter(told["windows"].values()))
        found = part["quantiles"]["0.5"]
        if "bucket" in found and key in ENDS:
            found["bucket"][ENDS.index(key)] += 1
        else:
            (part if key == "band" else found)[key] += 1
        body = msgspec.json.encode(told)
        releases[at] = msgspec.structs.replace(releases[at], body=body)
        commits[place] = msgspec.structs.replace(commits[place], releases=tuple(releases))

    resealed(world, change)
    with pytest.raises(FailClosed, match="gives other bytes than the recorded release"):
        await compared(world.built, SEALER, blobs(world))


@pytest.mark.parametrize("series", SERIES)
async def test_code_that_chose_otherwise_is_caught(
    monkeypatch: pytest.MonkeyPatch, series: str
) -> None:
    """A run by an engine whose quantiles are exact where that can be: the ranges alone, or the noise, are another's."""
    if series == "ending":
        right = tumbling_quantiles.TumblingQuantiles._chosen
        monkeypatch.setattr(
            tumbling_quantiles.TumblingQuantiles,
            "_chosen",
            lambda self, counts, noise: [place ^ 1 for place in right(self, counts, noise)],
        )
    else:
        monkeypatch.setattr(sliding_quantiles, "rank_margins", _none)
    pipeline = {**PIPELINE, "series": [s for s in PIPELINE["series"] if s["name"] == series]}
    lives = await lived(seeded(pipeline), live=False)
    monkeypatch.undo()
    with pytest.raises(FailClosed, match="gives other bytes than the recorded release"):
        await compared(lives.built, SEALER, blobs(lives))


def _none(terms: Any, squares: Any, fourths: Any, failure: float) -> Any:
    """Margins as if there were no noise."""
    return (0 * squares).astype(int)
