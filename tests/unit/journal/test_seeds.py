"""Every seed of every commit comes from the port, is used for one thing, and never again after an attempt was lost."""

import pytest
from unit.journal import broken_seeds as broken
from unit.journal.seed_worlds import Lives, check, three_lives
from unit.live import live_series_worlds

from stream_dp.engine import engine as module
from stream_dp.engine.engine import Engine
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Created, Halted

TWINS = [
    broken.FirstSeedOfZeros,
    broken.CreatedSeedOfZeros,
    broken.CreatedWithTheFirstSeed,
    broken.OneSeedForAGroup,
    broken.SeedsOfTheLostAttempt,
]


@pytest.mark.parametrize("snapshots", [1000, 3])
async def test_every_seed_is_the_ports_and_used_once(
    snapshots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_TICKS", snapshots)
    found = await three_lives()
    check(found)
    check_is_worth_it(found, snapshots < 1000)


def check_is_worth_it(found: Lives, snapshots: bool) -> None:
    """All that seeds are drawn for happens in these lives, and two attempts are lost."""
    commits = found.world.commits()
    changes = [type(change) for commit in commits for change in commit.changes]
    assert changes == [Created, Created, Halted]
    assert max(len(commit.ticks) for commit in commits) > 1
    assert any(commit.snapshot for commit in commits[:-1]) == snapshots
    lost = [life.attempts[-1] for life in found.lives[:-1]]
    assert [bool(attempt.ticks) for attempt in lost] == [True, False]
    assert len(lost[0].seeds) > 1
    assert all(life.before for life in found.lives[1:])


@pytest.mark.parametrize("twin", TWINS)
async def test_a_seed_from_elsewhere_or_used_twice_is_caught(
    twin: type[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_series_worlds, "Engine", twin)
    found = await three_lives()
    with pytest.raises(AssertionError):
        check(found)


@pytest.mark.parametrize("twin", [broken.FirstNoiseOfZeros, broken.OtherSeedsAfterARestart])
async def test_recovery_catches_another_seed(
    twin: type[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_series_worlds, "Engine", twin)
    with pytest.raises(FailClosed, match="does not give the recorded bytes"):
        await three_lives()
