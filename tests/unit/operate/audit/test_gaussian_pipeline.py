"""A pipeline of Gaussian series from its file to its releases: attacked, run, stopped in the middle and gone on."""

import json
from pathlib import Path

import pytest

from stream_dp import Pipeline, PublicRelease
from stream_dp.journal.keys import make_key
from stream_dp.operate.audit.attack import attack

FILE = """
version: 1
name: shop
source: {{kind: file, path: orders.jsonl}}
schema:
  time: {{type: time}}
  country: {{type: category, domain: [AT, DE]}}
privacy: {{unit: event, neighbors: {relation}, epsilon: 1, delta: 1e-6, filter: {name}}}
clock: {{kind: replay, field: time, start: 2024-01-01T00:00:00Z, step: 1h, horizon: 12}}
journal: {{kind: sqlite, path: shop.journal}}
series:
  - {{name: orders, statistic: count, epsilon: 0.5, method: gaussian}}
  - {{name: by_country, statistic: histogram, by: country, epsilon: 0.5, method: gaussian}}
"""

HSS = """
  - {name: orders, statistic: histogram, by: country, epsilon: 0.5, method: hss, counter: gaussian}
  - {name: busiest, statistic: maximum, by: country, epsilon: 0.5, counter: gaussian}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve hours of orders, and a key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    key = tmp_path / "key"
    make_key(key)
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(key))
    records = [
        {"time": f"2024-01-01T{hour:02d}:{minute:02d}:00Z", "country": ["AT", "DE"][minute % 2]}
        for hour in range(12)
        for minute in range(0, 60, 3)
    ]
    (tmp_path / "orders.jsonl").write_text("\n".join(map(json.dumps, records)))
    return tmp_path


def written(
    folder: Path, name: str, relation: str = "add_remove", series: str | None = None
) -> Path:
    """The file with this filter, and these series instead of its own."""
    path, text = folder / "pipeline.yaml", FILE.format(name=name, relation=relation)
    if series:
        text = text.partition("series:\n")[0] + f"series:{series}"
    path.write_text(text)
    return path


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_games_against_an_hss_with_a_gaussian_counter_are_not_lost(
    folder: Path, relation: str
) -> None:
    found = attack(written(folder, "zcdp", relation, HSS), runs=100, ticks=1, confidence=0.9999999)
    found.require_unrefuted()
    assert {each["mechanism"] for each in found.json()["series"]} == {"GaussianHSS"}


async def test_an_hss_with_a_gaussian_counter_goes_on_where_it_was_left(folder: Path) -> None:
    """Its state, with the counter's inside, is in the journal: the same bytes after two stops."""
    path, seen = written(folder, "zcdp", series=HSS), []
    for most in (5, 9, 100):
        async with Pipeline.load(path).running() as releases:
            async for release in releases:
                seen.append(release)
                if len(seen) >= most:
                    break
    bodies = (folder / "shop.releases.jsonl").read_bytes().splitlines()
    assert len(bodies) == 24
    assert {release.body for release in seen} <= set(bodies)


@pytest.mark.parametrize(
    ("name", "relation"), [("zcdp", "add_remove"), ("gdp", "add_remove"), ("zcdp", "replace")]
)
def test_its_games_are_played_and_not_lost(folder: Path, name: str, relation: str) -> None:
    found = attack(written(folder, name, relation), runs=100, ticks=1, confidence=0.9999999)
    found.require_unrefuted()
    assert {each["mechanism"] for each in found.json()["series"]} == {"GaussianCounter"}


async def test_it_goes_on_where_it_was_left_with_the_same_bytes(folder: Path) -> None:
    """What was committed is computed again from its seeds at the start, and must be the same to go on."""
    path, seen = written(folder, "zcdp"), []
    for most in (5, 9, 100):
        async with Pipeline.load(path).running() as releases:
            async for release in releases:
                seen.append(release)
                if len(seen) >= most:
                    break
    bodies = (folder / "shop.releases.jsonl").read_bytes().splitlines()
    assert len(bodies) == 24
    assert {release.body for release in seen} <= set(bodies)
    last = json.loads(bodies[-1])
    assert (
        abs(last["values"]["AT"] - 120) < 3 * last["band"]
    )  # 1e-8: three bands are six deviations


def test_releases_are_near_the_truth(folder: Path) -> None:
    seen: list[PublicRelease] = []
    assert Pipeline.load(written(folder, "gdp")).run(seen.append) == 24
    for release in seen:
        assert release.band is not None
        if release.series == "orders":
            assert abs(int(str(release.value)) - 20 * (release.tick + 1)) < 4 * release.band
