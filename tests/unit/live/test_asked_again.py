"""Recovery of monitors: answers are told again, ended watches stay muted, the trace is that of the theory."""

import random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.live_series_worlds import HORIZON, SEALER
from unit.live.monitor_worlds import FR, MonitorWorld, message, no_noise
from unit.operate.audit.trace_worlds import blobs
from unit.statistics.parts.test_monitor_messages import SCRIPT

from stream_dp.engine import history, recovery
from stream_dp.errors import FailClosed
from stream_dp.journal.answer_body import ThresholdAnswer
from stream_dp.journal.commit import Asked, Halted, Unwatched, Watched
from stream_dp.operate.audit.trace_check import compared

LIVE = {
    "name": "live", "statistic": "monitor", "epsilon": "0.5", "value": "0.5", "touch": "4", "most": "9",
    "watch": [
        {"name": "once", "above": 5, "rearm": False},
        {"name": "by", "by": "country", "above": 9, "over": "tick"},
    ],
}  # fmt: skip
WATCHES = ["large", "by/DE", "quiet", "fr", "once", "by/other"]


def script(seed: int) -> list[tuple[int, bytes]]:
    """Asks of two monitors, whose watches come, end, and come again under the same names and places; one is halted."""
    rng = random.Random(seed)
    said = [message(0, "c", "create", series=LIVE)]
    for at in range(48):
        tick, series = 1 + at // 6, rng.choice(["m", "live"])
        match rng.choice(["ask", "ask", "ask", "watch", "unwatch"]):
            case "ask":
                asked: dict[str, Any] = {
                    "watch": rng.choice(WATCHES),
                    "threshold": rng.choice([1, 9, 10**6]),
                }
                said.append(message(tick, f"x{at}", "ask", series=series, **asked))
            case "watch":
                said.append(message(tick, f"x{at}", "watch", series=series, watch=FR))
            case _:
                gone = rng.choice(["fr", "fr", "by", "once", "large"])
                said.append(message(tick, f"x{at}", "unwatch", series=series, watch=gone))
    return [*said, message(9, "h", "halt", series="live")]


@pytest.mark.parametrize("seed", range(4))
async def test_every_answer_is_told_again_after_whatever_came_later(seed: int) -> None:
    world = MonitorWorld(script=script(seed))
    await world.live()
    kinds = [type(c) for commit in world.commits() for c in commit.changes]
    assert {Asked, Watched, Unwatched, Halted} <= set(kinds)
    assert kinds.count(Asked) >= 3
    assert all(commit.snapshot is None for commit in world.commits()[1:])
    for each in world.said():
        if each["do"] == "ask" and "answer" in each:
            msgspec.convert(each["answer"], ThresholdAnswer)  # the form of docs/messages.json
    answers, bodies = list(world.answers), list(world.bodies)
    await world.live()  # replays all of it, and compares each answer byte for byte
    assert (world.answers, world.bodies) == (answers, bodies)


@pytest.mark.parametrize("more", [-1, 1])
async def test_a_commit_with_another_number_of_seeds_than_draws_is_no_commit(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twin that pairs as many as there are goes on with noise that was never recorded, or leaves an ask out."""
    world = MonitorWorld(
        script=[message(2, "a", "ask", series="m", watch="large", threshold=10**6)]
    )
    await world.live()
    whole = history.read_history

    async def spoilt(*given: Any) -> Any:
        history = await whole(*given)
        if history is None:
            return None
        history.since[:] = [
            replace_seeds(each, more) if each.changes else each for each in history.since
        ]
        return history

    monkeypatch.setattr(recovery, "read_history", spoilt)
    with pytest.raises(FailClosed, match="must hold one seed for each of its changes"):
        await world.live()


def replace_seeds(commit: Any, more: int) -> Any:
    seeds = (*commit.seeds, b"s" * 32) if more > 0 else commit.seeds[:-1]
    return replace(commit, seeds=seeds)


PLACES = {"large": range(1, 2), "by": range(2, 5), "quiet": range(5, 6)}
"""The columns of the file's watches: behind that of `orders`, in their order; `by` has one for each country."""
ENDS = {"quiet": 2, "by": 4, "large": 6}


@pytest.mark.parametrize("left", [None, 12, 25, 38])
async def test_each_watch_counts_until_its_own_end_and_no_further(left: int | None) -> None:
    script = [
        message(tick, f"u-{name}", "unwatch", series="m", watch=name) for name, tick in ENDS.items()
    ]
    world = MonitorWorld(script=script, noise=no_noise)
    if left is not None:
        with pytest.raises(Crash):
            await world.live(Fuse(left))
    await world.live()
    rows = {t: row for c in world.commits() for t, row in zip(c.ticks, c.rows, strict=True)}
    assert sorted(rows) == list(range(HORIZON))
    for name, places in PLACES.items():
        end = world.replies()[f"u-{name}"]["answer"]["end"]
        assert end > ENDS[name]
        for column in places:
            counted = [tick for tick, row in rows.items() if row[column]]
            assert counted == [tick for tick in counted if tick < end], name
        assert all(any(rows[tick][column] for column in places) for tick in range(end)), name


async def test_the_engine_is_the_composition_also_where_watches_come_and_go() -> None:
    """Byte for byte; and one event more passes the verifier of the claimed relation, two in two ticks do not."""
    world = MonitorWorld(script=SCRIPT)
    await world.live()
    found = await compared(world.built, SEALER, blobs(world))
    changes = [change for commit in world.commits() for change in commit.changes]
    assert (found.releases, found.answers) == (
        2 * HORIZON,
        sum(isinstance(c, Asked) for c in changes),
    )
    assert found.counts.asks == 2 * found.releases + len(changes)
    assert found.apart is True
