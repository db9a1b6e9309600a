"""Intervals of ratios cover at their stated rate, and are not much wider than they must be.

As in test_band_coverage: 200 runs of each, the run-wise fractions at most as spread as a binomial's, each test errs
with probability below 1e-4. The two series are real mechanisms with the product's noise, released as they are
published; a trial is a run. Twins: widths that do not grow with the quotient, that take both noises for the same one,
and of a quarter's confidence, do not cover.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from statistical.band_runs import CONFIDENCE, Errors, noise_of
from statistical.test_band_coverage import covers

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.quotients import Widths, quotient
from stream_dp.mechanisms.serving import Contrasts, WidthsAt, clipped
from stream_dp.statistics.parts.series_spec import Input

ADD, HALF, RUNS, TICKS, WIDTH = Neighbors.ADD_REMOVE, Fraction(1, 2), 200, 40, 12
LOOKED_AT = (9, 19, 29, 39)
SHARE = (Fraction(0), Fraction(1))
WIDEST = 1.15
COUNTER, NOISY = (Counter(WIDTH, epsilon, ADD, TICKS) for epsilon in (HALF, Fraction(1, 10)))
SUMS = SumCounter(WIDTH, Fraction(1), ADD, TICKS, -2, 10)


@dataclass(frozen=True)
class Case:
    """Two mechanisms, what events bring the upper one, how many events there are in a tick."""

    above: Any
    brings: Callable[[np.random.Generator, IntArray], IntArray]
    events: int
    signed: bool = False
    within: tuple[Fraction, Fraction] | None = SHARE
    below: Counter = COUNTER


def share(of: float) -> Callable[[np.random.Generator, IntArray], IntArray]:
    """So large a share of the events."""
    return lambda rng, events: rng.binomial(events, of).astype(np.int64)


def amounts(rng: np.random.Generator, events: IntArray) -> IntArray:
    """Amounts from -2 to 10 of each event, in halves."""
    return np.array([rng.integers(-2, 11, each).sum() for each in events], dtype=np.int64)


CASES = {
    "half": Case(COUNTER, share(0.5), 50),
    "most": Case(COUNTER, share(0.9), 50),
    "few": Case(COUNTER, share(0.02), 50),
    "over more noise": Case(COUNTER, share(0.7), 50, below=NOISY),
    "hardly any events": Case(COUNTER, share(0.3), 2),
    "mean of amounts": Case(SUMS, amounts, 50, signed=True, within=None),
}


@lru_cache(maxsize=8)
def runs(name: str) -> list[tuple[int, int, Fraction, Fraction, Fraction]]:
    """(run, tick, released above, released below, true quotient) of every entry with events."""
    case, found = CASES[name], []
    for run in range(RUNS):
        rng, above, below = (
            np.random.default_rng(run),
            noise_of(f"{name} above", run),
            noise_of(name, run),
        )
        states = [case.above.init(above), case.below.init(below)]
        true = np.zeros((2, WIDTH), dtype=np.int64)
        for tick in range(TICKS):
            events = rng.poisson(case.events, WIDTH).astype(np.int64)
            rows = case.brings(rng, events), events
            true += np.array(rows)
            states[0], _ = case.above.step(states[0], Update(rows[0]), above)
            states[1], _ = case.below.step(states[1], Update(rows[1]), below)
            if tick in LOOKED_AT:
                _, upper = case.above.step(states[0], Query(), above)
                _, lower = case.below.step(states[1], Query(), below)
                assert lower is not None
                shown = upper if case.signed else clipped(upper)
                for at in np.flatnonzero(true[1]).tolist():
                    right = Fraction(int(true[0, at]), int(true[1, at]))
                    numbers = Fraction(int(shown[at])), Fraction(int(clipped(lower)[at]))
                    found.append((run, tick, *numbers, right))
    return found


def widths_of(name: str, confidence: Fraction) -> WidthsAt:
    """How wide a ratio takes them for at a tick."""
    case = CASES[name]
    above, below = (
        Input(part, ("",), (), mechanism, Fraction(1), confidence)
        for part, mechanism in (("above", case.above), ("below", case.below))
    )
    farthest = None if case.within is None else case.within[1]
    return Contrasts(above.answer(""), below.answer(""), float(confidence), farthest)


def errors(name: str, widths: WidthsAt) -> tuple[Errors, float]:
    """Whether each true quotient lies in its interval, as errors of 0 or 1 beside a band of 0; half the mean width of
    those that have both ends over the quantile of the error.
    """
    case, out, run_of, off, half = CASES[name], [], [], [], []
    for run, tick, upper, lower, right in runs(name):
        found = quotient(upper, lower, widths(tick), 6, signed=case.signed, within=case.within)
        inside = (found.low is None or found.low <= right) and (
            found.high is None or right <= found.high
        )
        out.append(not inside)
        run_of.append(run)
        if found.value is not None and found.low is not None and found.high is not None:
            off.append(abs(float(found.value) - float(right)))
            half.append(float(found.high - found.low) / 2)
    covered = Errors(
        np.array(out, dtype=np.int64), np.zeros(len(out), dtype=np.int64), np.array(run_of)
    )
    return covered, float(np.mean(half) / np.quantile(off, CONFIDENCE))


@pytest.mark.parametrize("name", CASES)
def test_intervals_of_ratios_cover_and_are_not_much_too_wide(name: str) -> None:
    found, wide = errors(name, widths_of(name, Fraction(19, 20)))
    assert covers(found), f"{name}: covered {found.coverage:.3f}"
    assert wide <= WIDEST, f"{name}: {wide:.2f} times the quantile"


@pytest.mark.parametrize("name", ["over more noise"])
def test_widths_that_do_not_grow_with_the_quotient_do_not_cover(name: str) -> None:
    both = widths_of(name, Fraction(19, 20))
    found, _ = errors(name, lambda tick: Widths(((both(tick).at(Fraction(0)), Fraction(0)),)))
    assert not covers(found), f"covered {found.coverage:.3f}"


@pytest.mark.parametrize("name", ["half", "most"])
def test_widths_of_noises_that_are_taken_for_the_same_one_do_not_cover(name: str) -> None:
    """The twin has |1 - r| times the band of one."""
    both = widths_of(name, Fraction(19, 20))

    def same(tick: int) -> Widths:
        band = both(tick).at(Fraction(0))
        return Widths(((band, -band), (-band, band)))

    found, _ = errors(name, same)
    assert not covers(found), f"covered {found.coverage:.3f}"


@pytest.mark.parametrize("name", ["half", "few", "over more noise", "mean of amounts"])
def test_widths_of_a_quarters_confidence_do_not_cover(name: str) -> None:
    found, _ = errors(name, widths_of(name, Fraction(1, 4)))
    assert not covers(found), f"covered {found.coverage:.3f}"
