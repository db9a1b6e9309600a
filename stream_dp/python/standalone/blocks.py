"""What mechanisms that run alone take from below: choices of the pipeline's statistics, derivations, bands, noise.

Rules: one small function for each, so that nothing else in this folder knows where they live. Everything but
`new_noise` is a function of public parameters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

import numpy as np
from pydantic import ValidationError

from stream_dp.accounting.derive import derive as tightest
from stream_dp.accounting.filters.basic import by_ticks
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.situations import Alive, Filtered
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.row_relations import AMOUNTS
from stream_dp.engine.series import Tell
from stream_dp.errors import UsageError
from stream_dp.journal.release import told_number
from stream_dp.mechanisms.serving import (
    Answer,
    Bands,
    ServingMechanism,
    clipped,
    derived,
)
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.pipeline.derivations import whole
from stream_dp.python.standalone.numbers import words
from stream_dp.records.amount_units import Amount
from stream_dp.records.record_columns import Numbers
from stream_dp.statistics.alerts import AlertsSeries
from stream_dp.statistics.choice.choice import Setting
from stream_dp.statistics.choice.profiles import ExpectedShape
from stream_dp.statistics.count import CountSeries
from stream_dp.statistics.histogram import HistogramSeries
from stream_dp.statistics.maximum import MaximumSeries, leading_name
from stream_dp.statistics.parts.series_spec import SeriesSpec
from stream_dp.statistics.parts.windows import EVER, MOST_WINDOWS
from stream_dp.statistics.sum import SumSeries
from stream_dp.statistics.top import TopSeries

SUBJECT = "all that this budget ever pays for"
MOST_UNITS_A_TICK = AMOUNTS.highest
_SECOND = 1000  # ms: a tick, where windows are asked in ticks

Mechanism: TypeAlias = ServingMechanism[Any]
Windows: TypeAlias = tuple[int | str, ...]

__all__ = [
    "EVER",
    "MOST_UNITS_A_TICK",
    "MOST_WINDOWS",
    "Alone",
    "Amount",
    "Mechanism",
    "Setting",
    "amount_of",
    "band_of",
    "choose_alerts",
    "choose_counter",
    "choose_histogram",
    "choose_maximum",
    "choose_sum",
    "choose_top",
    "clipped",
    "derivation_of",
    "leading_name",
    "new_noise",
    "promise_of",
    "told_number",
    "units_of",
]


@dataclass(frozen=True, slots=True)
class Alone:
    """A mechanism that is to run alone.

    `bands(tick, state)`: the half-width of each view of its answers, one where it has no windows, functions of public
    values only. `tells`: what tells each view that is no counts.
    """

    mechanism: Mechanism
    bands: tuple[Callable[[int, Any], int], ...]
    tells: tuple[Tell, ...] = ()


def new_noise() -> Noise:
    """Return a noise stream under a seed of its own, from the operating system."""
    return NoiseStream(fresh_seed(), 0)


def derivation_of(mechanism: Mechanism, name: str) -> Derivation:
    """Return why `mechanism` guarantees what it claims.

    Raises
    ------
    NotDerivable
        No rule gives what it claims.
    """
    return derived(mechanism, name)


def band_of(mechanism: Mechanism, confidence: float) -> Bands:
    """Return `band(tick, state)`: the half-width after that tick, a function of public values only."""
    return Bands(mechanism, confidence)


def promise_of(filter_: Filter, parts: tuple[Derivation, ...], target: ApproxDP) -> Derivation:
    """Return what the filter promises for these parts, whatever their ticks, stated as (epsilon, delta).

    Raises
    ------
    NotDerivable
        There is no part, or one that the filter did not admit.
    """
    if by_ticks(filter_):  # no clock is shared, so nothing is derived from when a part was alive
        return tightest(parts, Filtered(SUBJECT, filter_))
    return whole("budget", filter_, [(part, Alive(0, None)) for part in parts], target)


def choose_counter(
    setting: Setting, epsilon: Fraction, method: str, windows: Windows = ()
) -> Alone:
    """Return a tree counter, a hybrid one without a horizon; or a Gaussian one, or the better one; or a forest.

    Raises
    ------
    UsageError
        Gaussian noise, and the setting has no delta.
    """
    return _chosen(CountSeries, setting, epsilon, windows, method=method)


def choose_histogram(
    setting: Setting,
    epsilon: Fraction,
    method: str,
    expected: int | None,
    shape: ExpectedShape | None,
    windows: Windows = (),
) -> Alone:
    """Return trees, HSS, what has the smaller typical error for such events, Gaussian noise, or a forest for windows.

    Raises
    ------
    UsageError
        Gaussian noise, and the setting has no delta.
    """
    guesses = {"expected_events": expected, "expected_shape": shape}
    return _chosen(HistogramSeries, setting, epsilon, windows, by="key", method=method, **guesses)


def choose_top(
    setting: Setting,
    epsilon: Fraction,
    k: int,
    method: str,
    expected: int | None,
    shape: ExpectedShape | None,
    windows: Windows = (),
) -> Alone:
    """Return what a histogram would be counted by, or with ``auto`` the narrower one in the end, told as ranks.

    Raises
    ------
    UsageError
        Gaussian noise, and the setting has no delta; or more ranks than a list may have.
    """
    guesses = {"expected_events": expected, "expected_shape": shape}
    return _chosen(TopSeries, setting, epsilon, windows, by="key", k=k, method=method, **guesses)


def amount_of(clamp: tuple[object, object], step: object) -> Amount:
    """Return what an event adds to a sum: a number within `clamp`, on a grid of `step`.

    Raises
    ------
    UsageError
        What is no exact number, bounds that are not on the grid or the wrong way round, or a grid too fine or wide.
    """
    return _series(SumSeries, Fraction(1), (), of="amount", clamp=clamp, step=step).amount


def units_of(amount: Amount, numbers: Sequence[float]) -> int:
    """Return what events with these numbers add to a row, in units: each is clamped and rounded to the grid alone."""
    return int(amount.of(Numbers(np.array(numbers, dtype=np.float64), None)).sum())


def choose_sum(
    setting: Setting, epsilon: Fraction, amount: Amount, *, keyed: bool, windows: Windows = ()
) -> Alone:
    """Return a tree counter for amounts, or a forest where windows are asked."""
    clamp = (amount.lowest, amount.highest)
    by = {"by": "key"} if keyed else {}
    given = {"of": "amount", "clamp": clamp, "step": amount.step, **by}
    return _told(_series(SumSeries, epsilon, windows, **given), setting)


def choose_maximum(setting: Setting, epsilon: Fraction, expected: int | None) -> Alone:
    """Return the HSS on the largest column."""
    return _chosen(MaximumSeries, setting, epsilon, by="key", expected_events=expected)


def choose_alerts(setting: Setting, epsilon: Fraction, threshold: int) -> Alone:
    """Return the re-armed sparse vectors of all keys."""
    return _chosen(AlertsSeries, setting, epsilon, by="key", threshold=threshold)


S = TypeVar("S", bound=SeriesSpec)


def _chosen(
    statistic: type[SeriesSpec],
    setting: Setting,
    epsilon: Fraction,
    windows: Windows = (),
    **more: Any,
) -> Alone:
    """What the pipeline would choose for such a series; the caller has checked windows and epsilon."""
    method = more.get("method")
    if method == "gaussian" and not setting.delta:
        raise UsageError(
            "method: gaussian needs a budget with a delta under filter zcdp, renyi or gdp, which add up Gaussian noise"
        )
    if windows and method == "hss":
        raise UsageError("method: windows are made by a forest of their own: leave method out")
    return _told(_series(statistic, epsilon, windows, **more), setting)


def _series(statistic: type[S], epsilon: Fraction, windows: Windows, **more: Any) -> S:
    """Such a series of a pipeline whose ticks are seconds (UsageError)."""
    given = {"name": "alone", "epsilon": epsilon, **more}
    if windows:
        asked = [each if each == EVER else f"{each}s" for each in windows if each != 1]
        given["windows"] = asked or ["1s"]
    try:
        return statistic.model_validate(given)
    except ValidationError as error:
        raise UsageError(words(error)) from None


def _told(series: SeriesSpec, setting: Setting) -> Alone:
    """What the series chooses, and how its answers are told."""
    mechanism = series.choose(replace(setting, step=_SECOND)).mechanism
    sure = series.each(setting.confidence, mechanism.width)
    places = range(len(series.views))
    told = [series.teller(mechanism, place, setting.confidence) for place in places or (None,)]
    return Alone(
        mechanism,
        tuple(Bands(Answer(mechanism, place), sure) for place in places)
        or (band_of(mechanism, sure),),
        tuple(tell for tell in told if tell is not None),
    )
