"""How much work the bands of every statistic are while a window fills: they are computed on the engine's event loop.

Work is counted, not timed: the values of transforms (one for each angle and noise), and a Fourier transform as
so many as take the same time. 250,000 take about 5 ms of a CPU.
"""

import tracemalloc
from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.engine.run_config import RunConfig
from stream_dp.mechanisms import noise_law, noise_quantiles
from stream_dp.mechanisms.noise_quantiles import laplace_quantile
from stream_dp.mechanisms.serving import MOST_BYTES, Bands
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics import STATISTICS
from stream_dp.testing.noise import SeededNoise

MOST = 250_000
TICKS, WEEK_TICKS = 200, 168  # hours
FULL = {"mean_week", "gauge_week", "top_week"}  # whose bands repeat once the week is full
WEEK = ("24h", "7d")
OF = {"of": "amount", "clamp": ["0", "240"]}
FINE = OF | {"step": "0.01"}
EVENTS: dict[str, dict[str, Any]] = {
    "count": {"statistic": "count"},
    "count_week": {"statistic": "count", "windows": [*WEEK, "ever"]},
    "sum": {"statistic": "sum", **OF},
    "sum_week": {"statistic": "sum", **FINE, "windows": [*WEEK, "ever"]},
    "mean": {"statistic": "mean", **OF},
    "mean_week": {"statistic": "mean", **FINE, "windows": WEEK},
    "gauge_week": {"statistic": "gauge", "of": "page", "plus": ["home"], "minus": ["cart"], "windows": WEEK},
    "tree": {"statistic": "histogram", "by": "page", "method": "tree"},
    "hss": {"statistic": "histogram", "by": "page", "method": "hss"},
    "top_week": {"statistic": "top", "by": "page", "k": "2", "windows": WEEK},
    "top_hss": {"statistic": "top", "by": "page", "k": "2", "method": "hss"},
    "maximum": {"statistic": "maximum", "by": "page"},
    "largest": {"statistic": "largest", "by": "page", "rank": "2"},
    "columns_above": {"statistic": "columns_above", "by": "page", "level": "90"},
    "sliding": {"statistic": "quantiles", **OF, "at": ["0.5"], "windows": [*WEEK, "ever"]},
    "tumbling": {"statistic": "quantiles", **OF, "at": ["0.5"], "every": "24h"},
    "alerts": {"statistic": "alerts", "by": "page", "threshold": "300"},
    "monitor": {"statistic": "monitor", "value": "0.1", "watch": [{"name": "busy", "above": "90"}]},
    "ratio": {"statistic": "ratio", "of": "sum_week", "over": "count_week"},
}  # fmt: skip
USERS: dict[str, dict[str, Any]] = {
    "distinct": {"statistic": "distinct", "of": "customer", "every": "24h", "running": "true"},
    "cut_off": {"statistic": "cut_off", "window": "1d"},
    "mean_week": {"statistic": "mean", **FINE, "windows": WEEK},
}
UNITS = {
    "event": ({}, EVENTS),
    "user": ({"unit": "user", "user": "customer", "max_events": "20", "per": "1d"}, USERS),
}


def made(unit: str, epsilon: str) -> RunConfig:
    privacy, series = UNITS[unit]
    listed = [
        {"name": name} | each | ({} if name == "ratio" else {"epsilon": epsilon})
        for name, each in series.items()
    ]
    schema = {
        "time": {"type": "time"}, "page": {"type": "category", "domain": ["home", "cart", "paid"]},
        "amount": {"type": "number"},
    }  # fmt: skip
    customer = {"customer": {"type": "text"}} if unit == "user" else {}
    clock = {
        "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": "8760",
    }  # fmt: skip
    data = {
        "version": "1", "name": "shop", "source": {"kind": "file", "path": "shop.jsonl"}, "schema": schema | customer,
        "privacy": privacy | {"epsilon": "40"}, "clock": clock, "series": listed,
    }  # fmt: skip
    return build(PipelineSpec.model_validate(data)).run_config(0, private=True)


class Work:
    """Counts the values of transforms."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done = 0
        transform, inverse = noise_quantiles._Sum.transform, np.fft.irfft
        quantile = noise_law._Sum.quantile

        def counted(one: Any, theta: NDArray[np.float64]) -> Any:
            self.done += theta.size * one.scales.size
            return transform(one, theta)

        def contrast(one: Any, *asked: Any) -> Any:
            self.done += 1_000 * one.scales.size  # angles, about
            return quantile(one, *asked)

        def turned(values: NDArray[Any], size: int) -> Any:
            self.done += 2 * size
            return inverse(values, size)

        patch.setattr(noise_quantiles._Sum, "transform", counted)
        patch.setattr(noise_law._Sum, "quantile", contrast)
        patch.setattr(np.fft, "irfft", turned)


def works(
    config: RunConfig, patch: pytest.MonkeyPatch, names: Collection[str] = (), ticks: int = TICKS
) -> dict[str, list[int]]:
    """The work of each tick of each series, or of those of these names, with nothing remembered before the first."""
    noise_quantiles.laplace_quantile.cache_clear()
    noise_quantiles.lagging_quantile.cache_clear()
    noise_law.contrast_widths.cache_clear()
    noise, work, found = SeededNoise(3), Work(patch), dict[str, list[int]]()
    for one in config.series:
        if names and one.name not in names:
            continue
        state, rng = one.mechanism.init(noise), np.random.default_rng(5)
        begun = [work.done]
        for tick in range(ticks):
            row = rng.poisson(20, one.mechanism.width).astype(np.int64)
            whole = replace(one, rows=slice(None))
            state, _ = whole.step(config.grid(0), state, tick, tick, row, noise)
            begun.append(work.done)
        found[one.name] = [after - before for before, after in pairwise(begun)]
    return found


@pytest.mark.parametrize("epsilon", ["0.4", "0.01"])
@pytest.mark.parametrize("unit", UNITS)
def test_no_tick_waits_for_a_band(unit: str, epsilon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = works(made(unit, epsilon), monkeypatch)
    dearest = {name: max(ticks) for name, ticks in found.items()}
    assert {name: most for name, most in dearest.items() if most > MOST} == {}
    full = {name: sum(ticks[WEEK_TICKS:]) for name, ticks in found.items() if name in FULL}
    assert not any(full.values())


def computed_anew(bands: Bands, tick: int, state: Any) -> int:
    return bands._mechanism.band(bands._mechanism.public(tick + 1, state), bands._confidence)


def test_twins_that_work_anew_at_each_tick_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One remembers no band of a full window; one computes each from the whole law of its noise."""
    config = made("event", "0.4")
    with monkeypatch.context() as patch:
        patch.setattr(Bands, "__call__", computed_anew)
        patch.setattr(noise_law, "laplace_quantile", laplace_quantile.__wrapped__)
        (ticks,) = works(config, patch, {"top_week"}).values()
        assert min(ticks[WEEK_TICKS:]) > 0
    with monkeypatch.context() as patch:
        patch.setattr(noise_quantiles, "_whole_quickly", lambda *_: None)
        patch.setattr(noise_quantiles, "_weighted_quickly", lambda *_: None)
        (ticks,) = works(config, patch, {"sum_week"}, 2).values()
        assert max(ticks) > MOST


def test_every_statistic_has_a_case() -> None:
    cases = {each["statistic"] for _, series in UNITS.values() for each in series.values()}
    assert cases == {kind.model_fields["statistic"].default for kind in STATISTICS}


def test_what_is_remembered_of_bands_does_not_grow_with_the_ticks() -> None:
    """Each tick of a value so far has a band of its own; its noises were kept, at 4 kB a tick and series."""
    series = [one for one in made("event", "0.4").series if one.name in {"sum", "mean"}]

    def told(first: int, last: int) -> int:
        for one in series:
            answer = np.full(2, 50, dtype=np.int64)
            for tick in range(first, last):
                if one.tell is None:
                    one.band(tick, None)
                else:
                    one.tell(one.keys, answer, tick, None)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = told(0, 300)
        grown = told(300, 812) - before  # whole rounds of what is kept of a mean
    finally:
        tracemalloc.stop()
    assert grown < 700_000


def test_bands_of_wide_keys_are_kept_within_their_bytes() -> None:
    bands, wide = Bands(Wide(), 0.95), [bytes([n]) * 20_000 for n in range(100)]
    assert [bands(0, key) for key in wide] == [20_000] * 100
    kept: Any = bands._known
    assert 0 < sum(map(len, kept)) <= MOST_BYTES


class Wide:
    """A mechanism whose band depends on its released answer."""

    def public(self, updates: int, state: bytes) -> bytes:
        return state

    def band(self, public: bytes, confidence: float) -> int:
        return len(public)


def test_a_band_at_the_smallest_epsilon_is_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone with a quota of 10^-6 may ask for it, and the event loop waits."""
    work = Work(monkeypatch)
    terms = ((Fraction(3_000_000), 3), (Fraction(1_000_000), 2))
    assert 5_000_000 < laplace_quantile.__wrapped__(terms, 0.05) < 50_000_000
    assert work.done < MOST


@pytest.mark.parametrize("largest", [16, 64, 256])
def test_counting_in_steps_is_never_too_small_and_hardly_too_large(
    largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = ((Fraction(3000), 3), (Fraction(501, 2), 2))
    exact = laplace_quantile.__wrapped__(terms, 0.05)
    watch = noise_quantiles.lagging_quantile.__wrapped__(70, terms, Fraction(2000), 3, 0.05, 1.5)
    monkeypatch.setattr(noise_quantiles, "LARGEST_SCALE", largest)
    far = laplace_quantile.__wrapped__(terms, 0.05)
    assert exact <= far <= exact * (1 + 5 / largest)
    seen = noise_quantiles.lagging_quantile.__wrapped__(70, terms, Fraction(2000), 3, 0.05, 1.5)
    assert watch <= seen <= watch * (1 + 5 / largest)
