"""Choosing a method and its parameters from the specification alone, before any data is touched.

Predictions are for `expected_events` events spread evenly over the horizon, all in one column: the worst case
for the number of intervals. This file knows no journal and no data.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss import HSS, Statistic
from stream_dp.pipeline.bands import hss_band
from stream_dp.pipeline.schema import HistogramSeries, MaximumSeries
from stream_dp.pipeline.spec import PipelineSpec

KAPPAS = tuple(Fraction(k, 100) for k in (2, 5, 10, 20, 40, 100))
COUNTER_SHARES = tuple(Fraction(k, 10) for k in (5, 6, 7, 8, 9))
ENDLESS = 10_000


@dataclass(frozen=True, slots=True)
class Demand:
    """What an HSS series asks for: everything its parameters are chosen from."""

    width: int
    statistic: Statistic
    epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    expected_events: int
    confidence: float

    @classmethod
    def of(
        cls, spec: PipelineSpec, series: HistogramSeries | MaximumSeries, width: int
    ) -> "Demand":
        """What a histogram or maximum series of this specification asks for."""
        return cls(
            width,
            Statistic.MAXIMUM if isinstance(series, MaximumSeries) else Statistic.HISTOGRAM,
            series.epsilon,
            spec.relation,
            spec.clock.horizon,
            series.expected_events or 1,
            float(spec.confidence),
        )


@lru_cache(maxsize=64)
def best_hss(demand: Demand) -> HSS:
    """The HSS with the smallest predicted error at the end of the horizon."""
    candidates = [_hss(demand, share, kappa) for share in COUNTER_SHARES for kappa in KAPPAS]
    last = (demand.horizon or ENDLESS) - 1
    return min(candidates, key=lambda m: predicted_hss_error(m, demand, last))


def predicted_hss_error(mechanism: HSS, demand: Demand, tick: int) -> int:
    """The band expected at `tick`."""
    intervals = predicted_intervals(mechanism, demand, tick)
    return hss_band(mechanism, tick + 1, intervals, demand.confidence)


def predicted_intervals(mechanism: HSS, demand: Demand, tick: int) -> int:
    """How many intervals will have closed: one each time `gamma` events have come, at most one a tick.

    gamma grows with the intervals, so the largest gamma gives few of them, and the gamma of few gives many.
    """
    events = demand.expected_events * (tick + 1) // (demand.horizon or ENDLESS)
    few = min(tick + 1, events // max(1, mechanism.gamma(tick + 1, tick + 1)))
    return min(tick + 1, events // max(1, mechanism.gamma(tick + 1, few)))


def _hss(demand: Demand, counter_share: Fraction, kappa: Fraction) -> HSS:
    """Split the rest 1 : s^(2/3) between threshold and queries (Lyu, Su, Li 2017, section 4)."""
    rest = demand.epsilon * (1 - counter_share)
    monotone = demand.neighbors.monotone(demand.width)
    threshold = rest * (Fraction(1, 2) if monotone else Fraction(5, 13))
    return HSS(
        demand.width,
        demand.statistic,
        threshold,
        rest - threshold,
        demand.epsilon * counter_share,
        demand.neighbors,
        demand.horizon,
        kappa,
    )
