"""A series that is created in the commit of a question has its own seed, also when it begins again."""

import pytest
from unit.live.message_worlds import commit_as_before
from unit.live.monitor_worlds import MonitorWorld, message

from stream_dp.journal.commit import Asked, Created
from stream_dp.noise import NoiseStream

ALERTS = {"name": "new", "statistic": "alerts", "by": "country", "threshold": 5, "epsilon": "0.5"}


async def test_each_of_both_draws_from_its_own_seed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    commit_as_before(monkeypatch)
    drawn: list[tuple[bytes, int]] = []

    def noted(seed: bytes, stream: int) -> NoiseStream:
        drawn.append((seed, stream))
        return NoiseStream(seed, stream)

    script = [
        message(2, "a1", "ask", series="m", watch="large", threshold=10**6),
        message(2, "c1", "create", series=ALERTS),
    ]
    world = MonitorWorld(script=script, noise=noted)
    await world.live()
    assert "answer" in world.replies()["c1"], world.replies()["c1"]
    kinds = [tuple(type(c) for c in commit.changes) for commit in world.commits() if commit.changes]
    assert kinds == [(Asked, Created)]
    seeds = [seed for commit in world.commits() for seed in commit.seeds]
    assert len(set(seeds)) == len(seeds)  # also of two that draw from streams of their own
    once, drawn[:] = sorted(drawn), []
    bodies = list(world.bodies)
    await world.live()
    assert sorted(drawn) == once
    assert len(set(once)) == len(once)
    world.bodies.clear()
    await world.live()
    assert world.bodies == bodies
