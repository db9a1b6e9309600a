"""`python -m stream_dp.testing run`: what it marks, and that it speaks like the product."""

import json
from pathlib import Path

import pytest

from faults.cases import Case, flights


def values(case: Case) -> list[bytes]:
    return case.releases.read_bytes().splitlines()


@pytest.mark.parametrize("noise", [("--zero-noise",), ("--seed", "3"), ()])
def test_every_release_says_that_it_is_not_private(tmp_path: Path, noise: tuple[str, ...]) -> None:
    case = flights(tmp_path, 24).expecting(zero_noise=noise == ("--zero-noise",))
    case.finish(*noise)
    assert case.findings() == []
    assert all(json.loads(body)["not_private"] is True for body in values(case))


def test_the_products_releases_say_nothing_of_it(tmp_path: Path) -> None:
    case = flights(tmp_path, 24)
    assert case.run("--until-end", kit=False).returncode == 0
    assert not any("not_private" in json.loads(body) for body in values(case))


def test_a_seed_gives_the_same_noise_again(tmp_path: Path) -> None:
    cases = [flights(tmp_path / name, 24) for name in ("a", "b", "c")]
    for case, seed in zip(cases, ("3", "3", "4"), strict=True):
        case.finish("--seed", seed)
    a, b, c = map(values, cases)
    assert a == b != c


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--zero-noise", "--seed", "3"), "--zero-noise and --seed"),
        (("--crash", "somewhere:1"), "POINT:NUMBER"),
        (("--crash", "mid-commit:x"), "POINT:NUMBER"),
        (("--surprise",), "--surprise"),
    ],
)
def test_bad_usage_is_exit_2(tmp_path: Path, options: tuple[str, ...], word: str) -> None:
    done = flights(tmp_path, 12).run(*options)
    assert done.returncode == 2
    assert word in done.stderr


def test_a_bad_pipeline_file_is_exit_2(tmp_path: Path) -> None:
    case = flights(tmp_path, 12)
    case.pipeline.write_text("version: 1\nsurprise: 2\n")
    done = case.run()
    assert done.returncode == 2
    assert "pipeline.yaml:2" in done.stderr
