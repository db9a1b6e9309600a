"""Choosing the parameters of an HSS from the specification alone, before any data is touched.

Predictions are for `expected_events` events spread evenly over the horizon, all in one column: the worst case
for the number of intervals. This file knows no journal and no data.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.quantities import Quantity
from stream_dp.pipeline.choice import ENDLESS, Choice, Setting
from stream_dp.pipeline.scalars import problem

KAPPAS = tuple(Fraction(k, 100) for k in (2, 5, 10, 20, 40, 100))
COUNTER_SHARES = tuple(Fraction(k, 10) for k in (5, 6, 7, 8, 9))
PREDICTED = ("hss", "auto")  # the methods that need a guess

ExpectedEvents: TypeAlias = Annotated[int, Field(ge=1, le=10**15)] | None


@dataclass(frozen=True, slots=True)
class Demand:
    """What an HSS series asks for: everything its parameters are chosen from."""

    setting: Setting
    quantity: Quantity | None
    epsilon: Fraction
    expected_events: int

    @classmethod
    def of(
        cls, setting: Setting, quantity: Quantity | None, epsilon: Fraction, expected: int | None
    ) -> "Demand":
        """Return the demand of a series; without a guess a single event is expected."""
        return cls(setting, quantity, epsilon, expected or 1)


def without_guess(at: tuple[str | int, ...], series: Any) -> list[InitErrorDetails]:
    """Return that a series, or a sketch of it, has a method that needs `expected_events` and does not give it."""
    method = getattr(series, "method", None)
    if method not in PREDICTED or series.expected_events is not None:
        return []
    message = f"method {method} needs expected_events, a public guess"
    return [problem((*at, "expected_events"), message)]


def hss_choice(demand: Demand, why: str) -> Choice:
    """Choose the best HSS; the error to expect is predicted from the expected events."""
    hss = best_hss(demand)
    return Choice(hss, why, lambda tick: predicted_hss_error(hss, demand, tick))


@lru_cache(maxsize=64)
def best_hss(demand: Demand) -> HSS:
    """The HSS with the smallest predicted error at the end of the horizon."""
    candidates = [_hss(demand, share, kappa) for share in COUNTER_SHARES for kappa in KAPPAS]
    last = demand.setting.last
    return min(candidates, key=lambda m: predicted_hss_error(m, demand, last))


def predicted_hss_error(mechanism: HSS, demand: Demand, tick: int) -> int:
    """The band expected at `tick`."""
    intervals = predicted_intervals(mechanism, demand, tick)
    return mechanism.lag(tick + 1, intervals, demand.setting.confidence)


def predicted_intervals(mechanism: HSS, demand: Demand, tick: int) -> int:
    """How many intervals will have closed: one each time `gamma` events have come, at most one a tick.

    gamma grows with the intervals, so the largest gamma gives few of them, and the gamma of few gives many.
    """
    events = demand.expected_events * (tick + 1) // (demand.setting.horizon or ENDLESS)
    few = min(tick + 1, events // max(1, mechanism.gamma(tick + 1, tick + 1)))
    return min(tick + 1, events // max(1, mechanism.gamma(tick + 1, few)))


def _hss(demand: Demand, counter_share: Fraction, kappa: Fraction) -> HSS:
    """Split the rest 1 : s^(2/3) between threshold and queries (Lyu, Su, Li 2017, section 4)."""
    rest = demand.epsilon * (1 - counter_share)
    setting = demand.setting
    monotone = setting.neighbors.monotone(setting.width)
    threshold = rest * (Fraction(1, 2) if monotone else Fraction(5, 13))
    return HSS(
        setting.width,
        demand.quantity,
        threshold,
        rest - threshold,
        demand.epsilon * counter_share,
        setting.neighbors,
        setting.horizon,
        kappa,
        setting.ones,
    )
