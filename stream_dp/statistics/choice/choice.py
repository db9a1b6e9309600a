"""What a statistic chooses its mechanism from, and what it chose.

Rules: a choice depends on the specification alone, before any data is touched. This file knows no statistic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.users import Users
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.serving import Bands, ServingMechanism
from stream_dp.statistics.parts.false_alarm import FalseAlarm

ENDLESS = 10_000  # ticks: how far errors are predicted where there is no horizon


@dataclass(frozen=True, slots=True)
class Setting:
    """What the pipeline gives a series: rows of `width` entries, at most `horizon` ticks (None: endless).

    `delta` is what a series that is not pure is stated at, 0 where the filter grants none; `gdp`: its filter adds up
    Gaussian DP; `by_rho`: it adds up what Gaussian noise costs, by whatever measure, and charges no delta for it.
    `steps`: how many steps of `neighbors` make one of the pipeline's relation. One event sets at most `ones` entries of
    a row, and adds at most `weight` to each, or where rows are `signed` takes as much off. `parts`: how many entries
    each part has of a series that counts several things. `step`: the length of a tick, in ms.
    `users`: who is protected, where rows count them, each once: then `steps` is 1.
    """

    width: int
    neighbors: Neighbors
    horizon: int | None
    confidence: float
    delta: Fraction = Fraction(0)
    gdp: bool = False
    by_rho: bool = False
    steps: int = 1
    ones: int = 1
    parts: tuple[int, ...] = ()
    step: int = 1
    weight: int = 1
    signed: bool = False
    users: Users | None = None

    @property
    def last(self) -> int:
        """The last tick, or the farthest for which an error is predicted."""
        return (self.horizon or ENDLESS) - 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A mechanism, why this one, and the half-width to expect at a tick; of `windows` each has its own, by name.

    Half-widths are numbers that people read. Where there are windows, `expected` is that of the first one, the single
    tick. `alarms`: how likely each alarm is a false one; nothing where there are none. `supposing`: what half-widths
    are for, or in, where that is not plain, such as "for 1,000 records".
    """

    mechanism: ServingMechanism[Any]
    why: str
    expected: Callable[[int], float]
    windows: Mapping[str, Callable[[int], float]] = field(default_factory=dict)
    alarms: tuple[FalseAlarm, ...] = ()
    supposing: str = ""

    def saying(self, more: str) -> "Choice":
        """Return the same, with more to say of it."""
        return replace(self, why=f"{self.why}; {more}")


def steady(mechanism: ServingMechanism[Any], why: str, setting: Setting) -> Choice:
    """Choose a mechanism whose band depends on the tick alone: that band is the error to expect."""
    bands = Bands(mechanism, setting.confidence)
    return Choice(mechanism, why, lambda tick: bands(tick, None))


def tree_counter(setting: Setting, epsilon: Fraction) -> Counter | HybridCounter:
    """Return the counter for this setting: made for its horizon, or for any number of ticks.

    Without a horizon another one (`HandOverCounter`) is better up to some hundred ticks, and far worse in the end;
    it would be taken if it were the better one at every tick.
    """
    if setting.horizon is None:
        return HybridCounter(setting.width, epsilon, setting.neighbors, setting.ones)
    return Counter(setting.width, epsilon, setting.neighbors, setting.horizon, setting.ones)


def by_tree(setting: Setting, epsilon: Fraction, why: str) -> Choice:
    """Choose the tree counter."""
    return steady(tree_counter(setting, epsilon), why, setting)


def gaussian_counter(setting: Setting, epsilon: Fraction) -> GaussianCounter:
    """Return the Gaussian counter that alone, in the pipeline's relation, is (steps * epsilon, delta)-DP.

    `epsilon` is what one step of the setting's neighbours may cost.

    Raises:
        NotDerivable: no delta is granted.
    """
    if setting.gdp:
        alone = _alone(setting, epsilon, "method")
        rho = gaussian_budget(alone) ** 2 / 2 / setting.steps**2
    else:
        rho = largest_rho(setting, epsilon, "method")
    return GaussianCounter(
        setting.width,
        rho,
        setting.neighbors,
        setting.horizon,
        setting.ones,
        gdp=setting.gdp,
    )


def largest_rho(setting: Setting, epsilon: Fraction, key: str) -> Fraction:
    """Return the largest rho of one step with which a series alone is (steps * epsilon, delta)-DP.

    It is rounded down to a unit of the ledger. `key` of the series asks for it.

    Raises:
        NotDerivable: no delta is granted.
    """
    return exact(budget_units(zcdp_budget(_alone(setting, epsilon, key)))) / setting.steps**2


def _alone(setting: Setting, epsilon: Fraction, key: str) -> ApproxDP:
    """What such a series is to be, alone, in the pipeline's relation."""
    if not setting.delta:
        raise NotDerivable(f"{key} gaussian needs a delta, and this pipeline's filter grants none")
    return ApproxDP(epsilon * setting.steps, setting.delta)


def by_gaussian(setting: Setting, epsilon: Fraction) -> Choice:
    """Choose the Gaussian counter."""
    return steady(gaussian_counter(setting, epsilon), "method: gaussian", setting)
