"""What mechanisms that run alone take from below: choices of the pipeline's statistics, derivations, bands, noise.

Rules: one small function for each, so that nothing else in this folder knows where they live. Everything but
`new_noise` is a function of public parameters.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.accounting.derive import derive as tightest
from stream_dp.accounting.filters.basic import by_ticks
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.situations import Alive, Filtered
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.errors import UsageError
from stream_dp.mechanisms.registered_quantity import register_quantity
from stream_dp.mechanisms.serving import Bands, ServingMechanism, clipped, derived, ones_of
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.pipeline.choice import Setting
from stream_dp.pipeline.choose_hss import Demand, hss_choice
from stream_dp.pipeline.derivations import whole
from stream_dp.pipeline.profiles import ExpectedShape
from stream_dp.pipeline.statistics.alerts import AlertsSeries
from stream_dp.pipeline.statistics.count import CountSeries
from stream_dp.pipeline.statistics.histogram import HistogramSeries
from stream_dp.pipeline.statistics.maximum import MaximumSeries, leading_name
from stream_dp.pipeline.statistics.series_spec import SeriesSpec

SUBJECT = "all that this budget ever pays for"

Mechanism: TypeAlias = ServingMechanism[Any]

__all__ = [
    "Mechanism",
    "Setting",
    "band_of",
    "choose_alerts",
    "choose_counter",
    "choose_histogram",
    "choose_maximum",
    "choose_quantity",
    "clipped",
    "derivation_of",
    "leading_name",
    "new_noise",
    "ones_of",
    "promise_of",
]


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


def choose_counter(setting: Setting, epsilon: Fraction, method: str) -> Mechanism:
    """Return a tree counter, a hybrid one without a horizon; or a Gaussian one, or the better one.

    Raises
    ------
    UsageError
        Gaussian noise, and the setting has no delta.
    """
    return _chosen(CountSeries, setting, epsilon, method=method)


def choose_histogram(
    setting: Setting,
    epsilon: Fraction,
    method: str,
    expected: int | None,
    shape: ExpectedShape | None,
) -> Mechanism:
    """Return trees, an HSS, what has the smaller typical error for so many events of this shape, or Gaussian noise.

    Raises
    ------
    UsageError
        Gaussian noise, and the setting has no delta.
    """
    guesses = {"expected_events": expected, "expected_shape": shape}
    return _chosen(HistogramSeries, setting, epsilon, by="key", method=method, **guesses)


def choose_maximum(setting: Setting, epsilon: Fraction, expected: int | None) -> Mechanism:
    """Return the HSS on the largest column."""
    return _chosen(MaximumSeries, setting, epsilon, by="key", expected_events=expected)


def choose_quantity(
    setting: Setting,
    epsilon: Fraction,
    function: Callable[[IntArray], int],
    lipschitz: int,
    expected: int | None,
) -> Mechanism:
    """Return the HSS on a function of the sums, which is tested first.

    Raises
    ------
    UsageError
        The function fails its test.
    """
    name = getattr(function, "__name__", "")
    quantity = register_quantity(
        name if name.isidentifier() else "nameless",
        function,
        width=setting.width,
        neighbors=setting.neighbors,
        ones=setting.ones,
        lipschitz=lipschitz,
        version=None,
    )
    return hss_choice(Demand(setting, quantity, epsilon, expected), "a quantity").mechanism


def choose_alerts(setting: Setting, epsilon: Fraction, threshold: int) -> Mechanism:
    """Return the re-armed sparse vectors of all keys."""
    return _chosen(AlertsSeries, setting, epsilon, by="key", threshold=threshold)


def _chosen(
    statistic: type[SeriesSpec], setting: Setting, epsilon: Fraction, **more: Any
) -> Mechanism:
    """What the pipeline would choose for such a series; the caller has checked the arguments."""
    if more.get("method") == "gaussian" and not setting.delta:
        raise UsageError(
            "method: gaussian needs a budget with a delta under filter zcdp, renyi or gdp, which add up Gaussian noise"
        )
    series = statistic.model_validate({"name": "alone", "epsilon": epsilon, **more})
    return series.choose(setting).mechanism
