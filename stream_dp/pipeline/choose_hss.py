"""Choosing an HSS, or a tree instead, from the specification alone, before any data is touched.

Thresholds are self-tuned, so no parameter depends on the volume: `expected_events` moves what is predicted, and with
it what `method: auto` chooses. Where nothing is guessed, predictions are for one event a tick. This file knows no
journal and no data.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, TypeAlias

from pydantic import Field

from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.quantities import Quantity
from stream_dp.pipeline.choice import ENDLESS, Choice, Setting
from stream_dp.pipeline.predicted_errors import Profile, break_even, hss_error, tree_error

COUNTER_SHARE = Fraction(17, 20)  # of epsilon, for the joint form's counter
QUANTITY_SHARE = Fraction(4, 5)  # the same where one quantity of all columns is released
BIN_SHARE = Fraction(7, 10)  # the same for the counters bin by bin
FEW = 2  # entries an event reaches, up to which the form bin by bin is the better one

ExpectedEvents: TypeAlias = Annotated[int, Field(ge=1, le=10**15)] | None


@dataclass(frozen=True, slots=True)
class Demand:
    """What an HSS series asks for: everything it is chosen from; `expected_events` None: nobody guessed."""

    setting: Setting
    quantity: Quantity | None
    epsilon: Fraction
    expected_events: int | None = None

    @property
    def events(self) -> int:
        """How many events predictions are for: the guess, or one a tick."""
        if self.expected_events is None:
            return self.setting.horizon or ENDLESS
        return self.expected_events

    @property
    def volume(self) -> str:
        """For what number of events a prediction is, in a few words."""
        whose = "expected" if self.expected_events is not None else "taken, one a tick"
        return f"{self.events} events ({whose})"


def hss_choice(demand: Demand, why: str) -> Choice:
    """Choose the HSS; the error to expect is predicted from the expected events."""
    hss = hss_for(demand)
    return Choice(hss, why, lambda tick: predicted_hss_error(hss, demand, tick))


def better_choice(demand: Demand, tree: Choice) -> Choice:
    """Choose HSS or the given tree: the one with the smaller typical error (RMSE) over the horizon."""
    hss = hss_for(demand)
    by_tree = tree_error(demand.setting, demand.epsilon)
    by_hss = hss_error(hss, demand.setting, demand.events)
    most = break_even(hss, demand.setting, by_tree)
    why = (
        f"method: auto, typical error (RMSE) for {demand.volume}: tree {by_tree:.1f}, hss {by_hss:.1f}; "
        f"hss is better up to about {most} events"
    )
    if by_hss < by_tree:
        return hss_choice(demand, why)
    return Choice(tree.mechanism, why, tree.expected)


@lru_cache(maxsize=64)
def hss_for(demand: Demand) -> HSS | PerBinHSS:
    """The form of HSS with the smaller error: bin by bin for a histogram whose events reach few entries."""
    setting = demand.setting
    if demand.quantity is not None or setting.neighbors.l0(setting.width) > FEW:
        return joint_hss(demand)
    counter = demand.epsilon * BIN_SHARE
    watch = demand.epsilon - counter
    return PerBinHSS(setting.width, watch, counter, setting.neighbors, setting.horizon)


def joint_hss(demand: Demand) -> HSS:
    """The joint form; the rest is split 1 : s^(2/3) between threshold and queries (Lyu, Su, Li 2017, section 4)."""
    share = COUNTER_SHARE if demand.quantity is None else QUANTITY_SHARE
    counter = demand.epsilon * share
    rest = demand.epsilon - counter
    setting = demand.setting
    monotone = setting.neighbors.monotone(setting.width)
    threshold = rest * (Fraction(1, 2) if monotone else Fraction(5, 13))
    return HSS(
        setting.width,
        demand.quantity,
        threshold,
        rest - threshold,
        counter,
        setting.neighbors,
        setting.horizon,
        kappa=None,
    )


def predicted_hss_error(mechanism: HSS | PerBinHSS, demand: Demand, tick: int) -> int:
    """The band expected at `tick`; bin by bin that of the largest category."""
    confidence = demand.setting.confidence
    intervals = predicted_intervals(mechanism, demand, tick)
    if isinstance(mechanism, PerBinHSS):
        query = demand.setting.horizon or 1 << (tick + 1).bit_length()
        return mechanism.band((query, frozenset({intervals})), confidence)
    return mechanism.lag(tick + 1, intervals, confidence)


def predicted_intervals(mechanism: HSS | PerBinHSS, demand: Demand, tick: int) -> int:
    """How many intervals of the largest category will have closed: one for each `growth`, at most one a tick.

    growth rises with the intervals, so the largest growth gives few of them, and the growth of few gives many.
    """
    largest = demand.events
    if demand.quantity is None:
        largest = round(float(Profile.of(demand.setting.width, demand.events).counts[0]))
    events = largest * (tick + 1) // (demand.setting.horizon or ENDLESS)
    growth = mechanism.tuned.growth
    few = min(tick + 1, events // growth(tick + 1))
    return min(tick + 1, events // growth(few))
