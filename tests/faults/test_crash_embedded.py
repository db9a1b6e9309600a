"""kill -9 of a run on a file and the embedded journal, at random moments and at fixed points, until the end."""

import random
from pathlib import Path

import pytest

from faults.cases import Case, flights
from faults.checker import findings, unfounded
from faults.evidence import embedded
from faults.killing import POINTS, Look, killed_at, killed_at_random

DAWDLE = ("--dawdle", "2")


def look(case: Case) -> Look:
    async def now() -> list[str]:
        return unfounded(embedded(case.journal, case.releases, case.key, case.expected.pipeline))

    return now


@pytest.mark.timeout(1000)
async def test_nothing_is_lost_or_counted_twice_over_twenty_random_kills(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=400)
    options = ("--zero-noise", *DAWDLE)
    assert await killed_at_random(case, random.Random(20), 20, look(case), *options) == 16
    case.finish("--zero-noise")
    assert case.findings() == []


@pytest.mark.timeout(1000)
async def test_nothing_is_lost_or_counted_twice_over_kills_at_fixed_points(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=300)
    for point in POINTS:
        await killed_at(case, look(case), point, "--zero-noise", *DAWDLE, anew=point == POINTS[0])
    case.finish("--zero-noise")
    assert case.findings() == []


@pytest.mark.timeout(1000)
async def test_with_noise_every_release_has_one_version(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=500, block=24).expecting(zero_noise=False)
    for point in POINTS:
        await killed_at(case, look(case), point, *DAWDLE, anew=point == POINTS[0])
    await killed_at_random(case, random.Random(3), 4, look(case), *DAWDLE)
    case.finish()
    assert case.findings() == []


@pytest.mark.parametrize("noise", [("--zero-noise",), ()])
async def test_a_restart_from_a_snapshot_goes_on(tmp_path: Path, noise: tuple[str, ...]) -> None:
    """Snapshots come every 1,000 ticks, also when no single run lives that long."""
    case = flights(tmp_path, ticks=1300, block=10).expecting(zero_noise=bool(noise))
    for point in ("after-publish:60", "mid-publish:45", "before-commit:2", "mid-commit:1"):
        await killed_at(case, look(case), point, *noise)
    case.finish(*noise)
    left = embedded(case.journal, case.releases, case.key, case.expected.pipeline)
    at = [commit["ticks"][-1] for commit in left.commits if commit["snapshot"] is not None]
    assert len(at) == 1
    assert 999 <= at[0] < 1100
    assert findings(case.expected, case.events, left) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [("--zero-noise",), ()])
async def test_many_kills_over_a_snapshot(
    tmp_path: Path, seed: int, noise: tuple[str, ...]
) -> None:
    case = flights(tmp_path, ticks=2500, block=7).expecting(zero_noise=bool(noise))
    chance = random.Random(seed)
    await killed_at_random(case, chance, 40, look(case), *noise, *DAWDLE)
    for point in POINTS:
        await killed_at(case, look(case), point, *noise, *DAWDLE, anew=point == POINTS[0])
    case.finish(*noise)
    assert case.findings() == []
