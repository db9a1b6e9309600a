"""`python -m stream_dp.testing run`: what it marks, and that it speaks like the product."""

import json
from pathlib import Path

import pytest

from faults.cases import flights


@pytest.mark.parametrize("noise", [("--zero-noise",), ("--seed", "3")])
def test_every_release_says_that_it_is_not_private(tmp_path: Path, noise: tuple[str, ...]) -> None:
    case = flights(tmp_path, 24).expecting(zero_noise=noise == ("--zero-noise",))
    case.finish(*noise)
    assert case.findings() == []
    bodies = case.releases.read_bytes().splitlines()
    assert all(json.loads(body)["not_private"] is True for body in bodies)


def test_a_seed_gives_the_same_noise_again(tmp_path: Path) -> None:
    cases = [flights(tmp_path / name, 24) for name in ("a", "b", "c")]
    for case, seed in zip(cases, ("3", "3", "4"), strict=True):
        case.finish("--seed", seed)
    a, b, c = (case.releases.read_bytes() for case in cases)
    assert a == b != c


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--zero-noise", "--seed", "3"), "--zero-noise and --seed"),
        (("--crash", "somewhere:1"), "POINT:NUMBER"),
        (("--surprise",), "--surprise"),
    ],
)
def test_bad_usage_is_exit_2(tmp_path: Path, options: tuple[str, ...], word: str) -> None:
    done = flights(tmp_path, 12).run(*options)
    assert done.returncode == 2
    assert word in done.stderr
