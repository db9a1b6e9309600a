"""The statistic `maximum`: what its releases say of whose count it is, in bytes, asks and programs."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.time import TickGrid
from stream_dp.engine.cut_changes import selected
from stream_dp.engine.series import Series
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.release import Shape, read
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.quantities import Largest
from stream_dp.mechanisms.papers.paper_hss import PaperHSS
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load
from stream_dp.python.tick_release import PublicRelease
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.parts.choose_hss import Demand, hss_for
from stream_dp.testing.noise import ZeroNoise

FILE = """\
version: 1
name: flights
source: {{kind: file, path: flights.jsonl}}
schema:
  time: {{type: time}}
  place: {{type: category, domain: [d, c, "böse, \\"lange\\" Straße", a]}}
  kind: {{type: category, domain: [x, y]}}
privacy: {{epsilon: 90{privacy}}}
clock: {{kind: replay, field: time, start: "2026-03-01T00:00:00Z", step: 1h, horizon: 48}}
series:
  - {{name: one, epsilon: 80, {keys}}}
"""
MOST = "statistic: maximum, by: place"
MOVES = ", neighbors: replace, moves: within_tick"
GRID = TickGrid(1_772_323_200_000, 3_600_000)


def built(folder: Path, keys: str = MOST, privacy: str = "") -> Built:
    """What a file with one series builds."""
    path = folder / "flights.yaml"
    path.write_text(FILE.format(keys=keys, privacy=privacy), encoding="utf-8")
    return build(load(path))


def series_of(made: Built, start: int = 0) -> Series:
    """What the engine runs."""
    (chosen,) = made.chosen
    return chosen.series(made.spec, made.layout.slice("one"), made.layout.keys("one"), start)


def bodies(series: Series, *rows: list[int]) -> list[bytes]:
    """The releases of these rows, without noise."""
    mechanism, found = series.mechanism, []
    state = mechanism.init(ZeroNoise())
    for tick, row in enumerate(rows):
        state, _ = mechanism.step(state, Update(np.array(row, dtype=np.int64)), ZeroNoise())
        state, answer = mechanism.step(state, Query(), ZeroNoise())
        assert answer is not None
        found.append(series.body(GRID, tick + 1, tick, state, answer))
        assert len(found[-1]) <= series.most_bytes
    return found


def told(series: Series, *rows: list[int]) -> list[tuple[Any, Any]]:
    """Name and value of each release."""
    all_said = [msgspec.json.decode(body) for body in bodies(series, *rows)]
    return [(said.get("name"), said["value"]) for said in all_said]


def test_the_bytes_of_a_maximum_with_its_name(tmp_path: Path) -> None:
    """To the byte; while the value is 0 nobody is named."""
    series = series_of(built(tmp_path))
    quiet, first = bodies(series, [0, 0, 0, 0, 0], [0, 0, 900, 5, 0])
    head = '{"v":1,"sequence":1,"series":"one","tick":0,"end":"2026-03-01T01:00:00Z"'
    assert quiet.decode() == f'{head},"value":0,"band":{read(quiet).band},"confidence":0.95}}'
    head = '{"v":1,"sequence":2,"series":"one","tick":1,"end":"2026-03-01T02:00:00Z"'
    name = '"name":"böse, \\"lange\\" Straße"'
    shown = f'{name},"value":900,"band":{read(first).band},"confidence":0.95}}'
    assert first.decode() == f"{head},{shown}"
    assert read(first).shape is Shape.SCALAR


@pytest.mark.parametrize(("privacy", "more"), [("", ""), (MOVES, ", method: paper_hss")])
def test_of_equal_counts_the_first_of_the_domain_has_it_and_other_may(
    tmp_path: Path, privacy: str, more: str
) -> None:
    """In both forms."""
    series = series_of(built(tmp_path, f"{MOST}{more}", privacy))
    assert isinstance(series.mechanism, PaperHSS if more else HSS)
    rows = [0, 0, 0, 0, 0], [0, 900, 0, 900, 0], [0, 0, 0, 0, 2_000]
    assert told(series, *rows) == [(None, 0), ("c", 900), ("other", 2_000)]


def test_a_combination_has_the_name_that_a_histogram_would_give_it(tmp_path: Path) -> None:
    series = series_of(built(tmp_path, "statistic: maximum, by: [kind, place]"))
    row = [0] * len(series.keys)
    row[3] = 500
    assert told(series, row) == [(series.keys[3], 500)]
    assert "," in series.keys[3]


def test_a_series_that_begins_later_tells_the_same(tmp_path: Path) -> None:
    made = built(tmp_path)
    rows = [0, 900, 0, 0, 0], [0, 0, 0, 2_000, 0]
    assert told(series_of(made, 7), *rows) == told(series_of(made), *rows)


def test_who_asks_and_programs_see_the_name(tmp_path: Path) -> None:
    """A maximum has one value: keys may not be asked for, as before it had a name."""
    series = series_of(built(tmp_path))
    quiet, body = bodies(series, [0] * 5, [900, 0, 0, 0, 0])
    asked = selected(series, body, {})
    assert (asked["name"], asked["value"], asked["band"]) == ("d", 900, read(body).band)
    assert "name" not in selected(series, quiet, {})
    with pytest.raises(UsageError, match="this series has one value and no keys"):
        selected(series, body, {"keys": ["d"]})
    assert (PublicRelease.of(body).name, PublicRelease.of(body).value) == ("d", 900)
    assert (PublicRelease.of(quiet).name, PublicRelease.of(quiet).value) == (None, 0)


@pytest.mark.parametrize("content", ['"values":{"a":1}', '"fired":[]', '"ranks":[]'])
def test_a_name_without_a_value_is_refused(content: str) -> None:
    head = '{"v":1,"sequence":1,"series":"one","tick":0,"end":"2026-03-01T01:00:00Z"'
    read(f'{head},{content},"band":3,"confidence":0.95}}'.encode())
    with pytest.raises(FailClosed, match="release"):
        read(f'{head},"name":"d",{content},"band":3,"confidence":0.95}}'.encode())


def test_the_name_costs_nothing_and_the_plan_says_that_it_is_told(tmp_path: Path) -> None:
    (planned,) = plan_json(built(tmp_path))["series"]
    assert planned["epsilon"] == 80
    default = "48 events (by default, one a tick: declare expected_events)"
    assert planned["why"].startswith(
        f"method: hss; error predicted for {default}; the name is told"
    )
    assert "the name is told too, at no further cost" in planned["why"]


def test_a_rank_below_the_first_is_told_without_a_name(tmp_path: Path) -> None:
    """For the count of a column of rank 2 has no upper bound: it grows beyond the first, and rank 2 stays as it is."""
    series = series_of(built(tmp_path, "statistic: largest, rank: 2, by: place"))
    assert told(series, [900, 899, 0, 0, 0], [0, 5_000, 0, 0, 0]) == [(None, 899)] * 2
    setting = Setting(2, Neighbors.ADD_REMOVE, 48, 0.95)
    behind = {}
    for rank in (1, 2):
        mechanism: Any = hss_for(Demand(setting, Largest(rank), Fraction(80), 9_000))
        state = mechanism.init(ZeroNoise())
        for row in ([900, 899], [0, 5_000]):
            state, _ = mechanism.step(state, Update(np.array(row)), ZeroNoise())
            state, answer = mechanism.step(state, Query(), ZeroNoise())
        column = int(np.argsort(-state.released, kind="stable")[rank - 1])
        behind[rank] = abs(int(answer[0]) - (900, 5_899)[column])
    assert behind == {1: 0, 2: 5_000}
    assert mechanism.band(mechanism.public(2, state), 0.95) < 20


def test_readers_are_told_that_there_are_names(tmp_path: Path) -> None:
    (series,) = built(tmp_path).spec.series
    assert series.described()["parameters"] == {"named": "place"}
    (second,) = built(tmp_path, "statistic: largest, rank: 2, by: place").spec.series
    assert "named" not in second.described()["parameters"]
