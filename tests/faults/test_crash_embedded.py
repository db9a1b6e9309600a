"""kill -9 of a run on a file and the embedded journal, at random moments and at fixed points, until the end."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from faults.cases import Case, flights
from faults.checker import findings, unfounded
from faults.killing import POINTS, Look, checkpoints_every, killed_at, killed_at_random

DAWDLE = ("--dawdle", "2")


def look(case: Case) -> Look:
    async def now() -> list[str]:
        return unfounded(case.left())

    return now


@pytest.mark.timeout(1000)
async def test_nothing_is_lost_or_counted_twice_over_random_kills(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=250)
    options = ("--zero-noise", *DAWDLE)
    assert await killed_at_random(case, random.Random(20), 10, look(case), *options) == 8
    case.finish("--zero-noise")
    assert case.findings() == []


@pytest.mark.timeout(1000)
async def test_with_noise_every_release_has_one_version(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=300, block=24).expecting(zero_noise=False)
    for point in POINTS:
        await killed_at(case, look(case), point, *DAWDLE, anew=point == POINTS[0])
    case.finish()
    assert case.findings() == []


async def test_a_restart_from_a_snapshot_goes_on(tmp_path: Path) -> None:
    """Snapshots come also where no single run lives as long as their distance."""
    case = flights(tmp_path, ticks=130, block=10)
    case = Case(tmp_path, case.expected, case.events, checkpoints_every(100))
    for point in ("after-publish:6", "mid-publish:4", "before-commit:2", "mid-commit:1"):
        await killed_at(case, look(case), point, "--zero-noise", *DAWDLE)
    case.finish("--zero-noise")
    left = case.left()
    at = [commit["ticks"][-1] for commit in left.commits if commit["snapshot"] is not None]
    assert len(at) == 1
    assert 99 <= at[0] < 110
    assert findings(case.expected, case.events, left) == []


async def test_kills_at_every_point_over_checkpoints_in_pieces(tmp_path: Path) -> None:
    case = flights(tmp_path, ticks=150, block=3)
    case = Case(tmp_path, case.expected, case.events, checkpoints_every(10))
    for point in (
        "after-commit:9",
        "mid-commit:9",
        "before-commit:9",
        "after-publish:9",
        "mid-publish:9",
    ):
        await killed_at(case, look(case), point, "--zero-noise", *DAWDLE)
    case.finish("--zero-noise")
    assert findings(case.expected, case.events, case.left()) == []
    with closing(sqlite3.connect(case.journal)) as database:
        assert database.execute("SELECT count(*) FROM checkpoints").fetchone()[0] >= 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [("--zero-noise",), ()])
async def test_many_kills_over_a_snapshot(
    tmp_path: Path, seed: int, noise: tuple[str, ...]
) -> None:
    case = flights(tmp_path, ticks=2500, block=7).expecting(zero_noise=bool(noise))
    await killed_at_random(case, random.Random(seed), 40, look(case), *noise, *DAWDLE)
    for point in POINTS:
        await killed_at(case, look(case), point, *noise, *DAWDLE, anew=point == POINTS[0])
    case.finish(*noise)
    assert case.findings() == []
