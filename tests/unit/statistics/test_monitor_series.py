"""The statistic monitor as people write it: what it means, what it costs, and what is refused, with its place."""

from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.watches.kinds import Monitor
from stream_dp.mechanisms.watches.monitor_state import WatchTerms
from stream_dp.pipeline.builder import Chosen, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load

FILE = """\
version: 1
name: watched
source: {{kind: file, path: flights.jsonl}}
schema:
  time: {{type: time}}
  destination: {{type: category, domain: [ATL, BOS]}}
  origin: {{type: category, domain: [JFK, LGA]}}
  delay: {{type: integer, nullable: true}}
  tags: {{type: list, domain: [a, b, c], most: 2}}
privacy: {{epsilon: 2, neighbors: {neighbors}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 4}}
series:
  - name: m
    statistic: monitor
    epsilon: 0.2
{more}
    watch:
{watch}
"""
WATCH = """\
      - {name: large, where: [{field: delay, at_least: 60}], above: 50}
      - {name: quiet, where: [{field: origin, equals: JFK}], below: 3}
      - {name: busy, by: destination, above: 100, rearm: false}
"""


def written(
    folder: Path, watch: str = WATCH, more: str = "", neighbors: str = "add_remove"
) -> Path:
    """A pipeline file with one monitor."""
    lines = "".join(f"    {line}\n" for line in more.splitlines())
    text = FILE.format(watch=watch, more=lines, neighbors=neighbors)
    path = folder / "watched.yaml"
    path.write_text("".join(line for line in text.splitlines(keepends=True) if line.strip()))
    return path


def chosen(path: Path) -> Chosen:
    """What is chosen for the monitor."""
    (found,) = build(load(path)).chosen
    return found


def mechanism(path: Path) -> Monitor:
    """The monitor's mechanism."""
    found = chosen(path).mechanism
    assert isinstance(found, Monitor)
    return found


def test_each_watch_has_its_terms_and_the_monitor_what_they_overlap(tmp_path: Path) -> None:
    found = mechanism(written(tmp_path))
    quiet = WatchTerms(3, tick=True, below=True)
    assert found.watches == (WatchTerms(50), quiet, WatchTerms(100, 3, rearm=False))
    assert (found.width, found.ones) == (105, 3)
    assert not found.value_epsilon
    assert found.scale == 15


def test_neighbours_of_equal_terms_are_one_entry_for_the_mechanism(tmp_path: Path) -> None:
    lines = [f"      - {{name: w{i}, above: {5 + i // 3}}}\n" for i in range(7)]
    found = mechanism(written(tmp_path, "".join(lines)))
    assert found.watches == (WatchTerms(5, 3), WatchTerms(6, 3), WatchTerms(7))
    assert found.ones == 7


@pytest.mark.parametrize(
    ("watch", "ones"),
    [
        ("where: [{field: origin, equals: JFK}]|where: [{field: origin, equals: LGA}]", 1),
        ("where: [{field: origin, equals: JFK}]|where: [{field: destination, equals: BOS}]", 2),
        ("where: [{field: delay, at_most: 5}]|where: [{field: delay, at_least: 6}]", 1),
        ("where: [{field: delay, at_most: 5}]|where: [{field: delay, at_least: 5}]", 2),
        ("by: destination|by: origin", 2),
        ("by: tags|by: origin", 3),
        ("where: [{field: tags, contains: a}]|where: [{field: tags, contains: b}]", 2),
    ],
)  # fmt: skip
def test_filters_that_no_event_passes_together_cost_once(
    tmp_path: Path, watch: str, ones: int
) -> None:
    lines = [f"      - {{name: w{i}, {one}, above: 5}}\n" for i, one in enumerate(watch.split("|"))]
    found = chosen(written(tmp_path, "".join(lines)))
    assert getattr(found.mechanism, "ones", None) == ones
    assert f"at most {ones} of its places" in found.choice.why
    assert found.derivation.guarantee.measure.epsilon == Fraction(1, 5)  # type: ignore[union-attr]


def test_a_count_at_its_crossing_is_paid_for_beside(tmp_path: Path) -> None:
    path = written(tmp_path, more="value: 0.1\nmost: 1000\ntouch: 4")
    found, series = mechanism(path), chosen(path)
    assert (found.value_epsilon, found.width, found.ones) == (Fraction(1, 10), 1000, 4)
    assert series.spec.price == Fraction(3, 10)
    (planned,) = plan_json(build(load(path)))["series"]
    assert (planned["epsilon"], planned["mechanism"]) == (0.3, "Monitor")
    assert "fire too early" in planned["why"]
    spec = load(path)
    told = series.series(spec, slice(0, 1000), ("large",))
    assert told.counts_band == found.value_band(0.95)


def test_where_a_replacement_may_move_both_epsilons_are_halved(tmp_path: Path) -> None:
    path = written(tmp_path, more="value: 0.1", neighbors="replace")
    found = mechanism(path)
    assert (found.epsilon, found.value_epsilon) == (Fraction(1, 10), Fraction(1, 20))
    assert found.neighbors is Neighbors.ADD_REMOVE
    assert chosen(path).derivation.guarantee.measure.epsilon == Fraction(3, 10)  # type: ignore[union-attr]


def test_readers_are_told_when_each_watch_fires(tmp_path: Path) -> None:
    described = chosen(written(tmp_path)).spec.described()
    assert described["about"] == "3 watches"
    assert described["parameters"] == {
        "large": "above 50",
        "quiet": "below 3 in a tick",
        "busy": "above 100 for each of destination, once",
    }


def test_the_fingerprint_takes_what_conditions_mean(tmp_path: Path) -> None:
    now = fingerprint(load(written(tmp_path)))
    same = WATCH.replace("at_least: 60", 'at_least: "060"')
    assert fingerprint(load(written(tmp_path, same))) == now
    for other in (
        WATCH.replace("above: 50", "above: 51"),
        WATCH.replace("at_least: 60", "at_least: 61"),
        WATCH.replace(", rearm: false", ""),
        WATCH.replace("name: large", "name: huge"),
    ):
        assert fingerprint(load(written(tmp_path, other))) != now
    assert fingerprint(load(written(tmp_path, more="touch: 3"))) != now
