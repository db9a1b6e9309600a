"""What mechanisms that run alone take from the pipeline: choices, derivations, error bands, noise.

Rules: one small function for each, so that nothing else in this folder knows where they live. Everything but
`fresh_noise` is a function of public parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream_dp.accounting.derive import derive as tightest
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.pure import PURE
from stream_dp.accounting.situations import Alive, Filtered
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.mechanism import Mechanism, Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hss import Statistic
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.pipeline.bands import Bands
from stream_dp.pipeline.choose_hss import ENDLESS, Demand, best_hss, predicted_hss_error
from stream_dp.pipeline.derivations import derive, whole

SUBJECT = "all that this budget ever pays for"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a mechanism is chosen for: rows of `width` entries, at most `horizon` ticks (None: endless)."""

    width: int
    neighbors: Neighbors
    horizon: int | None
    confidence: float


def fresh_noise() -> Noise:
    """Return a noise stream under a seed of its own, from the operating system."""
    return NoiseStream(fresh_seed(), 0)


def derivation_of(mechanism: Mechanism[Any], name: str) -> Derivation:
    """Return why `mechanism` guarantees what it claims.

    Raises
    ------
    NotDerivable
        No rule gives what it claims.
    """
    return derive(mechanism, name)


def band_of(mechanism: Mechanism[Any], confidence: float) -> Callable[[int, Any], int]:
    """Return `band(tick, state)`: the half-width after that tick, a function of public values only."""
    return Bands(mechanism, confidence)


def promise_of(filter_: Filter, parts: tuple[Derivation, ...], target: ApproxDP) -> Derivation:
    """Return what the filter promises for these parts, whatever their ticks, stated as (epsilon, delta).

    Raises
    ------
    NotDerivable
        There is no part, or one that the filter did not admit.
    """
    if filter_.name == PURE:  # no clock is shared, so nothing is derived from when a part was alive
        return tightest(parts, Filtered(SUBJECT, filter_))
    return whole("budget", filter_, [(part, Alive(0, None)) for part in parts], target)


def trees(setting: Setting, epsilon: Fraction) -> Counter | HybridCounter:
    """Return a tree counter for each entry, hybrid ones without a horizon."""
    if setting.horizon is None:
        return HybridCounter(setting.width, epsilon, setting.neighbors)
    return Counter(setting.width, epsilon, setting.neighbors, setting.horizon)


def histogram(setting: Setting, epsilon: Fraction, method: str, expected: int) -> Mechanism[Any]:
    """Return the HSS for this many events (`hss`), or what has the smaller error at the end (`auto`)."""
    demand = _demand(setting, Statistic.HISTOGRAM, epsilon, expected)
    sparse, last = best_hss(demand), (setting.horizon or ENDLESS) - 1
    if method == "hss":
        return sparse
    plain = trees(setting, epsilon)
    by_trees = band_of(plain, setting.confidence)(last, None)
    return plain if by_trees <= predicted_hss_error(sparse, demand, last) else sparse


def maximum(setting: Setting, epsilon: Fraction, expected: int) -> Mechanism[Any]:
    """Return the HSS on the largest column with the smallest error for this many events."""
    return best_hss(_demand(setting, Statistic.MAXIMUM, epsilon, expected))


def alerts(setting: Setting, epsilon: Fraction, threshold: int) -> Mechanism[Any]:
    """Return the re-armed sparse vectors of all keys."""
    return Alerts(setting.width, epsilon, setting.neighbors, threshold)


def _demand(setting: Setting, statistic: Statistic, epsilon: Fraction, expected: int) -> Demand:
    return Demand(
        setting.width, statistic, epsilon, setting.neighbors, setting.horizon, expected, setting.confidence
    )  # fmt: skip
