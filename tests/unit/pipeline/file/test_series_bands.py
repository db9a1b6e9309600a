"""The bands that a pipeline's releases carry are those of public values, for every statistic and method."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from unit.mechanisms.private_parts import check_band, states

from stream_dp.core.sealed import inside_of
from stream_dp.core.time import TickGrid
from stream_dp.engine.series import Series
from stream_dp.errors import TaintError
from stream_dp.journal.release import is_recorded
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.noise import SeededNoise

EVERY: list[dict[str, Any]] = [
    {"statistic": "count"},
    {"statistic": "histogram", "by": "destination", "method": "tree"},
    {"statistic": "histogram", "by": "destination", "method": "hss"},
    {"statistic": "top", "by": "destination", "k": "3", "method": "tree"},
    {"statistic": "top", "by": "destination", "k": "3", "method": "hss"},
    {"statistic": "maximum", "by": "destination", "method": "tree"},
    {"statistic": "maximum", "by": "destination", "method": "hss"},
    {"statistic": "alerts", "by": "airline", "threshold": "30"},
]


def series(data: dict[str, Any], more: dict[str, Any]) -> Series:
    spec = data | {"series": [{"name": "one", "epsilon": "2"} | more]}
    (one,) = build(PipelineSpec.model_validate(spec)).run_config(0, private=True).series
    return one


def check(one: Series) -> None:
    rows = [
        np.full(one.mechanism.width, 80 if tick % 3 else 0, dtype=np.int64) for tick in range(8)
    ]
    for tick, state in states(one.mechanism, rows, SeededNoise(1)):
        check_band(one.band, tick, state)


@pytest.mark.parametrize("more", EVERY, ids=lambda m: m["statistic"])
def test_a_series_band_depends_on_public_parts_only(
    data: dict[str, Any], more: dict[str, Any]
) -> None:
    check(series(data, more))


@pytest.mark.parametrize("method", ["tree", "hss"])
def test_who_is_tied_depends_on_the_answer_and_on_public_parts_only(
    data: dict[str, Any], method: str
) -> None:
    one = series(data, {"statistic": "top", "by": "destination", "k": "3", "method": method})
    counts = np.arange(one.mechanism.width, dtype=np.int64) ** 2

    def told(tick: int, state: Any) -> Any:
        assert one.tell is not None
        return one.tell(one.keys, counts, tick, state)["ranks"]

    check(replace(one, band=told))


@pytest.mark.parametrize("method", ["tree", "hss", "paper_hss"])
def test_whose_the_maximum_is_depends_on_public_parts_only(
    data: dict[str, Any], method: str
) -> None:
    if method == "paper_hss":
        data["privacy"] |= {"neighbors": "replace", "moves": "within_tick"}
    more = {"statistic": "maximum", "by": "destination", "method": method, "epsilon": "40"}
    data["privacy"]["epsilon"] = "40"
    one, names = series(data, more), set()
    answer = np.arange(one.mechanism.width) if method == "tree" else np.array([7])

    def told(tick: int, state: Any) -> Any:
        assert one.tell is not None
        names.add(one.tell(one.keys, answer, tick, state).get("name"))
        return one.tell(one.keys, answer, tick, state)

    check(replace(one, band=told))
    assert names - {None}
    assert (None in names) == (method != "tree")


def test_a_name_by_what_is_pending_is_caught(data: dict[str, Any]) -> None:
    one = series(data, {"statistic": "maximum", "by": "destination", "method": "hss"})

    def told(tick: int, state: Any) -> Any:
        assert one.tell is not None
        both = replace(state, released=state.released + state.pending)
        return one.tell(one.keys, np.array([7]), tick, both)

    with pytest.raises((AssertionError, TaintError)):
        check(replace(one, band=told))


def test_a_builder_that_widens_bands_by_what_is_pending_is_caught(data: dict[str, Any]) -> None:
    one = series(data, EVERY[2])

    def wider(tick: int, state: Any) -> int:
        return one.band(tick, state) + int(inside_of(state.parts.live[0].state).count.max())

    with pytest.raises((AssertionError, TaintError)):
        check(replace(one, band=wider))


@pytest.mark.parametrize(
    ("more", "word"), [(EVERY[1], None), (EVERY[2], "calibrated"), (EVERY[4], None), (EVERY[6], "calibrated")]
)  # fmt: skip
def test_releases_of_what_lags_behind_have_ends_and_a_word_for_why(
    data: dict[str, Any], more: dict[str, Any], word: str | None
) -> None:
    one, noise, grid = series(data, more), SeededNoise(1), TickGrid(0, 1_000)
    state, row = one.mechanism.init(noise), np.full(one.mechanism.width, 30, dtype=np.int64)
    for tick in range(6):
        state, body = one.step(grid, state, tick, tick + 1, row, noise)
    told = msgspec.json.decode(body)
    assert told.get("ends") == word
    assert not is_recorded(body.replace(b'"band":', b'"band":1'), body)
    former = {key: told[key] for key in told if key not in ("low", "high", "lows", "highs", "ends")}
    assert is_recorded(msgspec.json.encode(former), body)
    if word is None:
        assert not told.keys() & {"low", "high", "lows", "highs"}
        return
    ranges = (
        [(told["value"], told["low"], told["high"])]
        if "value" in told
        else zip(told["values"].values(), told["lows"], told["highs"], strict=True)
    )
    for value, low, high in ranges:
        assert max(0, value - told["band"]) <= low <= value <= high
        assert high - low < 2 * told["band"]
