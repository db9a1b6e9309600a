"""The bands that a pipeline's releases carry are those of public values, for every statistic and method."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET
from unit.mechanisms.private_parts import check_band, states

from stream_dp.core.sealed import inside_of
from stream_dp.core.tick_grid import TickGrid
from stream_dp.engine.actor import step
from stream_dp.engine.series import Series
from stream_dp.errors import TaintError
from stream_dp.journal.release import former, read
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.testing.noise import SeededNoise

EVERY: list[dict[str, Any]] = [
    {"statistic": "count"},
    {"statistic": "count", "release_every": "3"},
    {"statistic": "histogram", "by": "destination", "method": "tree"},
    {"statistic": "histogram", "by": "destination", "method": "hss"},
    {"statistic": "top", "by": "destination", "k": "3", "method": "tree"},
    {"statistic": "top", "by": "destination", "k": "3", "method": "hss"},
    {"statistic": "maximum", "by": "destination"},
    {"statistic": "alerts", "by": "airline", "threshold": "30"},
]


def series(data: dict[str, Any], more: dict[str, Any]) -> Series:
    """A series of the pipeline, as the engine gets it."""
    spec = data | {"series": [{"name": "one", "epsilon": "2"} | more]}
    (one,) = build(PipelineSpec.model_validate(spec)).run_config(0, private=True).series
    return one


def check(one: Series) -> None:
    """Its bands in a run with bursts."""
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


@pytest.mark.parametrize("method", ["hss", "paper_hss"])
def test_whose_the_maximum_is_depends_on_public_parts_only(
    data: dict[str, Any], method: str
) -> None:
    if method == "paper_hss":
        data["privacy"] |= {"neighbors": "replace", "moves": "within_tick"}
    more = {"statistic": "maximum", "by": "destination", "method": method, "epsilon": "40"}
    data["privacy"]["epsilon"] = "40"
    one, names = series(data, more), set()

    def told(tick: int, state: Any) -> Any:
        assert one.tell is not None
        names.add(one.tell(one.keys, np.array([7]), tick, state).get("name"))
        return one.tell(one.keys, np.array([7]), tick, state)

    check(replace(one, band=told))
    assert names > {None}


def test_a_name_by_what_is_pending_is_caught(data: dict[str, Any]) -> None:
    one = series(data, {"statistic": "maximum", "by": "destination"})

    def told(tick: int, state: Any) -> Any:
        assert one.tell is not None
        both = replace(state, released=state.released + state.pending)
        return one.tell(one.keys, np.array([7]), tick, both)

    with pytest.raises((AssertionError, TaintError)):
        check(replace(one, band=told))


def test_a_builder_that_widens_bands_by_what_is_pending_is_caught(data: dict[str, Any]) -> None:
    one = series(data, EVERY[3])

    def wider(tick: int, state: Any) -> int:
        return one.band(tick, state) + int(inside_of(state.parts.live[0].state).count.max())

    with pytest.raises((AssertionError, TaintError)):
        check(replace(one, band=wider))


@pytest.mark.parametrize(
    "statistic", [{"statistic": "count"}, {"statistic": "histogram", "by": "destination"}]
)
def test_a_held_value_says_at_which_tick_it_holds(
    data: dict[str, Any], statistic: dict[str, Any]
) -> None:
    """At the tick that a release names its band holds, at its own tick it does not: there events came since.

    Errs with 1e-7: a band of confidence 1 - 1e-8 holds at each of ten deadlines, by a union bound.
    """
    every = {"release_every": "10", "method": "tree"}
    one, noise = series(data | {"confidence": "0.99999999"}, statistic | every), SeededNoise(2)
    grid, state = TickGrid(0, 3_600_000, 100), one.mechanism.init(noise)
    counts, named = [np.zeros(one.mechanism.width, dtype=np.int64)], list[int | None]()
    held, own = 0, 0
    for tick in range(100):
        row = np.full(one.mechanism.width, 5_000, dtype=np.int64)
        counts.append(counts[-1] + row)
        state, body = step(replace(one, rows=slice(None)), grid, state, tick, tick, row, noise)
        release = read(body)
        assert release.as_of is not UNSET
        named.append(release.as_of)
        values = [release.value] if release.values is UNSET else list(release.values.values())
        right = counts[0 if release.as_of is None else release.as_of + 1]
        held += int(np.abs(np.array(values) - right).max() <= release.band)
        own += int(np.abs(np.array(values) - counts[-1]).max() <= release.band)
        assert former(body) == body.replace(b',"as_of":%s' % _text(release.as_of), b"")
    assert named == [None] * 9 + [tick - (tick + 1) % 10 for tick in range(9, 100)]
    assert held == 100
    assert own == 10  # the twin: a release read as one of its own tick holds at deadlines only
    assert b"as_of" not in series(data, statistic | {"method": "tree"}).body(
        grid, 0, 0, one.mechanism.init(noise), counts[0]
    )


def _text(as_of: int | None) -> bytes:
    return b"null" if as_of is None else str(as_of).encode()
