"""The statistic `top`: its ranks and ties, what its releases say, what it chooses, and what is refused, and where."""

import json
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.time import TickGrid
from stream_dp.engine.cut_changes import selected
from stream_dp.engine.series import Series
from stream_dp.journal.release import Rank, Shape, read
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.windows_and_ever import WindowsAndEver
from stream_dp.mechanisms.serving import Differences, all_at_once
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load
from stream_dp.python.tick_release import Counts, PublicRelease
from stream_dp.statistics.top import MOST_TIED, ranks
from stream_dp.testing.noise import ZeroNoise

FILE = """\
version: 1
name: flights
source: {{kind: file, path: flights.jsonl}}
schema:
  time: {{type: time}}
  place: {{type: category, domain: [d, c, b, a]}}
  seats: {{type: list, domain: [x, y, z], most: 3}}
privacy: {{epsilon: 2{delta}}}
clock: {{kind: replay, field: time, start: "2026-03-01T00:00:00Z", step: 1h, horizon: 48}}
series:
  - {{name: one, statistic: top, {keys}}}
"""
RIGHT = {"by": "place", "k": "2", "epsilon": "1"}
GRID = TickGrid(1_772_323_200_000, 3_600_000)
ROWS = ([40, 10, 40, 0, 9], [0, 10, 500, 0, 0])


def file(folder: Path, **more: str) -> Path:
    """A pipeline file with one series of these keys; an empty text leaves a key out."""
    keys = ", ".join(f"{key}: {value}" for key, value in {**RIGHT, **more}.items() if value)
    path = folder / "flights.yaml"
    delta = ', delta: "1e-6", filter: zcdp' if more.get("method") == "gaussian" else ""
    path.write_text(FILE.format(keys=keys, delta=delta))
    return path


def built(folder: Path, **more: str) -> Built:
    """What such a file builds."""
    return build(load(file(folder, **more)))


def series_of(made: Built, start: int = 0) -> Series:
    """What the engine runs."""
    (chosen,) = made.chosen
    return chosen.series(made.spec, made.layout.slice("one"), made.layout.keys("one"), start)


def bodies(series: Series, start: int = 0) -> list[bytes]:
    """The releases of ROWS, without noise."""
    mechanism, found = series.mechanism, []
    state = mechanism.init(ZeroNoise())
    for tick, row in enumerate(ROWS, start):
        state, _ = mechanism.step(state, Update(np.array(row, dtype=np.int64)), ZeroNoise())
        state, answer = mechanism.step(state, Query(), ZeroNoise())
        assert answer is not None
        found.append(series.body(GRID, tick + 1, tick, state, answer))
        assert len(found[-1]) <= series.most_bytes
    return found


def brute_ranks(
    names: str, counts: list[int], k: int, apart: int
) -> list[tuple[str, int, list[str]]]:
    """The ranks by their definition."""
    order = sorted(range(len(names)), key=lambda at: (-counts[at], at))
    near = {
        at: [names[o] for o in order if o != at and abs(counts[o] - counts[at]) <= apart]
        for at in order
    }
    return [(names[at], counts[at], near[at]) for at in order[:k]]


def test_ranks_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        counts = rng.integers(0, 12, 7)
        k, apart = int(rng.integers(1, 8)), int(rng.integers(0, 6))
        told = ranks("gfedcba", counts, k, apart)
        assert [(r.name, r.value, list(r.tied)) for r in told] == brute_ranks(
            "gfedcba", counts.tolist(), k, apart
        )
        assert not any(r.more for r in told)


def test_many_ties_are_listed_up_to_a_number_and_the_rest_is_counted() -> None:
    """The greatest first; the room that a release may take is known beforehand."""
    names = [f"n{place:02}" for place in range(40)]
    told = ranks(names, np.zeros(40, dtype=np.int64), 3, 0)
    assert [r.name for r in told] == names[:3]
    assert all(len(r.tied) == MOST_TIED and r.more == 39 - MOST_TIED for r in told)
    assert told[0].tied == tuple(names[1 : 1 + MOST_TIED])
    assert told[2].tied == (*names[:2], *names[3 : 1 + MOST_TIED])


def test_the_bytes_of_a_top_list_so_far(tmp_path: Path) -> None:
    """To the byte: equal values in the domain's order, `other` among them, the band of all at once."""
    series = series_of(built(tmp_path, k="3"))
    first, second = bodies(series)
    assert isinstance(series.mechanism, Counter)
    band = series.mechanism.band(1, all_at_once(0.95, 5))
    apart = Differences(series.mechanism).band(1, 0.95)
    assert 10 <= apart < 30
    shown = (
        '"ranks":[{"name":"d","value":40,"tied":["b"]},{"name":"b","value":40,"tied":["d"]},'
        '{"name":"c","value":10,"tied":["other","a"]}]'
    )
    head = '{"v":1,"sequence":1,"series":"one","tick":0,"end":"2026-03-01T01:00:00Z"'
    assert first.decode() == f'{head},{shown},"band":{band},"confidence":0.95}}'
    assert read(first).shape is Shape.RANKS
    assert [r.name for r in read(second).ranks or ()] == ["b", "d", "c"]


def test_windows_have_ranks_of_their_own(tmp_path: Path) -> None:
    series = series_of(built(tmp_path, windows="[2h, ever]"))
    assert isinstance(series.mechanism, WindowsAndEver)
    _, second = bodies(series)
    windows = msgspec.json.decode(second)["windows"]
    assert list(windows) == ["tick", "2h", "ever"]
    assert [r["name"] for r in windows["tick"]["ranks"]] == ["b", "c"]
    assert [r["value"] for r in windows["2h"]["ranks"]] == [540, 40]
    assert windows["tick"]["band"] < windows["2h"]["band"]
    assert not windows["ever"]["ranks"][0]["tied"]


def test_a_series_that_begins_later_tells_with_the_bands_of_its_own_ticks(tmp_path: Path) -> None:
    made = built(tmp_path)
    begun, later = bodies(series_of(made)), bodies(series_of(made, 7), 7)
    for one, other in zip(begun, later, strict=True):
        assert (read(one).ranks, read(one).band) == (read(other).ranks, read(other).band)


def test_what_is_below_zero_is_told_as_zero(tmp_path: Path) -> None:
    series = series_of(built(tmp_path))
    state = series.mechanism.init(ZeroNoise())
    body = series.body(GRID, 1, 0, state, np.array([-9, -2, -3, -1, -4]))
    assert [(r.name, r.value) for r in read(body).ranks or ()] == [("d", 0), ("c", 0)]


def test_auto_takes_the_narrower_band_for_all_names_and_says_so(tmp_path: Path) -> None:
    """An HSS has less typical error where little happens, and lags: who is told apart depends on the largest error."""
    (chosen,) = built(tmp_path, expected_events="100").chosen
    assert isinstance(chosen.mechanism, Counter)
    assert "bands of all names at once at the end: tree" in chosen.choice.why
    (named,) = built(tmp_path, method="hss").chosen
    assert isinstance(named.mechanism, PerBinHSS)
    (gaussian,) = built(tmp_path, method="gaussian", epsilon='"1/2"').chosen
    assert isinstance(gaussian.mechanism, GaussianCounter)


def test_the_plan_has_the_error_of_all_values_at_once(tmp_path: Path) -> None:
    made = built(tmp_path)
    (chosen,), (planned,) = made.chosen, plan_json(made)["series"]
    last = planned["predicted_error"][-1]
    assert last["error"] == chosen.mechanism.band(48, all_at_once(0.95, 5))
    assert last["confidence"] == 0.95
    assert planned["epsilon"] == 1


def test_a_top_list_costs_what_the_histogram_costs(tmp_path: Path) -> None:
    made = built(tmp_path, by="seats", method="tree")
    (chosen,) = made.chosen
    assert (chosen.mechanism.width, chosen.mechanism.rows.ones) == (4, 3)
    assert chosen.derivation.guarantee.measure == PureDP(Fraction(1))


def test_ranks_may_be_asked_by_their_names(tmp_path: Path) -> None:
    series = series_of(built(tmp_path))
    body = bodies(series)[-1]
    assert [r["name"] for r in selected(series, body, {})["ranks"]] == ["b", "d"]
    asked = selected(series, body, {"keys": ["d", "a"]})
    assert [r["name"] for r in asked["ranks"]] == ["d"]
    assert asked["band"] == read(body).band
    day = series_of(built(tmp_path, windows="[2h]"))
    found = selected(day, bodies(day)[-1], {"window": "2h", "keys": ["b"]})
    assert list(found["windows"]) == ["2h"]
    assert [r["value"] for r in found["windows"]["2h"]["ranks"]] == [540]


def test_a_program_sees_the_ranks(tmp_path: Path) -> None:
    found = PublicRelease.of(bodies(series_of(built(tmp_path)))[-1])
    assert isinstance(found.ranks[0], Rank)
    assert isinstance(found.value, Counts)
    assert dict(found.value) == {"b": 540, "d": 40}
    day = PublicRelease.of(bodies(series_of(built(tmp_path, windows="[2h]")))[-1])
    assert not day.ranks
    assert day.windows["2h"].ranks[0].name == "b"
    assert day.value == day.windows["tick"].value


@pytest.mark.parametrize(
    "content",
    [
        '"ranks":[{"name":"d","value":1}],"band":3',
        '"ranks":[{"name":"d","value":1,"tied":[]}]',
        '"ranks":[],"value":3,"band":3',
        '"ranks":[{"name":"d","value":1,"tied":[],"more":-1}],"band":3',
    ],
)
def test_what_is_no_top_list_is_refused(content: str) -> None:
    head = '{"v":1,"sequence":1,"series":"one","tick":0,"end":"2026-03-01T01:00:00Z"'
    with pytest.raises(Exception, match="release"):
        read(f'{head},{content},"confidence":0.95}}'.encode())


def test_the_api_says_how_many_ranks_there_are(tmp_path: Path) -> None:
    (chosen,) = built(tmp_path, windows="[24h]").chosen
    told = chosen.spec.described()
    assert told["parameters"] == {"k": 2}
    assert told["shape"] == "windows"
    assert told["about"] == "top 2 by place per tick and over 24h"
    assert json.dumps(told)
