"""What a statistic chooses its mechanism from, and what it chose.

Rules: a choice depends on the specification alone, before any data is touched. This file knows no statistic.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.neighbors import Neighbors, Users, UserShape
from stream_dp.core.wording import how_many
from stream_dp.engine.series import Meaning
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.serving import Bands, ServingMechanism, Word
from stream_dp.records.amount_units import plain_number

# How the events of a histogram may fall, for which typical errors are predicted: by public numbers alone.

Floats = NDArray[np.float64]

ExpectedShape: TypeAlias = Literal["even", "zipf", "bursts"]
SUPPOSED: tuple[ExpectedShape, ...] = ("zipf", "even")  # all of them, where no shape is declared
BURSTS = 8  # ticks that the events of a bursty stream are taken to come in
SAMPLED = 64  # ranks of categories that stand for all
HALVINGS = 80


@dataclass(frozen=True, slots=True)
class Profile:
    """Final counts of some ranks of categories, how many categories each stands for, and the number of events.

    `bursts`: in how many ticks all events come; None: steadily.
    """

    ranks: Floats
    counts: Floats
    weights: Floats
    events: int
    bursts: int | None = None

    @staticmethod
    @lru_cache(maxsize=256)
    def of(width: int, events: int, shape: ExpectedShape = "zipf", ones: int = 1) -> "Profile":
        """The categories of so many events, each of which sets up to `ones` entries: half of these, on average.

        `even`: all alike; else the i-th has 1/i of the events of the first, but none more than there are. Series of one
        width share a profile, so nobody writes to its arrays.
        """
        edges = np.array(sorted({*np.geomspace(1, width + 1, SAMPLED).astype(np.int64).tolist()}))
        edges = np.append(edges[edges <= width], width + 1)
        weights = np.diff(edges).astype(np.float64)
        ranks = np.sqrt(edges[:-1] * (edges[1:] - 1).astype(np.float64))
        chances = np.ones_like(ranks) if shape == "even" else 1 / ranks
        entries = events * (min(ones, width) + 1) / 2
        counts = np.minimum(events, _factor(chances, weights, entries, events) * chances)
        for array in (ranks, counts, weights):
            array.setflags(write=False)
        return Profile(ranks, counts, weights, events, BURSTS if shape == "bursts" else None)


def _factor(chances: Floats, weights: Floats, entries: float, most: int) -> float:
    """Return what to multiply chances by, so that counts of `most` at most add up to `entries`; by bisection."""
    low, high = 0.0, 2 * most / float(chances.min())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(np.minimum(most, middle * chances) @ weights) < entries:
            low = middle
        else:
            high = middle
    return high


TOLERATED = 0.05  # the largest chance of a false alarm per key and day that needs no confirmation


@dataclass(frozen=True, slots=True)
class Compared:
    """How an alarm compares: its `threshold`, from which a count is told apart only beyond `band`.

    A count that is `distance` away from the threshold has a false alarm with a chance that is tolerated. All are in
    numbers that people read; a unit of counts is `grain` of them. `follows`: the usual count is that of the threshold,
    and not given.
    """

    threshold: int
    band: float
    distance: int
    below: bool = False
    follows: bool = True
    grain: Fraction = Fraction(1)

    @property
    def blurred(self) -> bool:
        return self.threshold != 0 and self.band >= abs(self.threshold)

    def enough(self, usual: int) -> int | None:
        """Return a threshold that would do, in two digits where it can be; None where the usual count leaves none."""
        needed, least, step = self.distance, math.floor(self.band) + 1, self.grain.numerator
        if self.below and not self.follows:
            level = (usual - needed) // step * step
            told_apart = abs(level) >= least and (level > 0 or self.threshold <= 0)
            return level if told_apart else None
        halfway = needed if self.below and self.threshold > 0 else 2 * needed
        size = halfway if self.follows else usual + needed
        level = _stepped(max(size, least), step)
        return -level if self.below and self.threshold <= 0 else level

    def dearer(self, usual: int) -> float:
        """Return by what factor more epsilon would do; a unit, and a twentieth, are for what is whole in noise."""
        unit = float(self.grain)
        apart = max(abs(self.threshold - usual) - unit, unit / 2)
        blur = (self.band + unit) / abs(self.threshold) if self.threshold else 0
        return max(1.05 * self.distance / apart, blur, 1.0)


# of an alarm that another process has told: its words alone are wanted
NOT_COMPARED = Compared(0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """The chance, at most, that one key of `name` fires on a day while its count stays at `usual`.

    Or its one count, where it is not `keyed`; or its sum, `of` a field.
    """

    name: str
    usual: int
    chance: float
    keyed: bool = True
    of: str | None = None
    compared: Compared = field(default=NOT_COMPARED, compare=False)

    def json(self) -> dict[str, Any]:
        """Return it as plain values; `of` only of a sum."""
        plain = {key: getattr(self, key) for key in ("name", "usual", "chance", "keyed")}
        return plain if self.of is None else {**plain, "of": self.of}

    @property
    def _per(self) -> str:
        return "per key and day" if self.keyed else "per day"

    @property
    def words(self) -> str:
        what = "count" if self.of is None else f"sum of {self.of}"
        return (
            f"{self.name}: while its {what} stays at {self.usual:,}, the chance of a false alarm {self._per} is "
            f"at most {self.chance:.2g}"
        )

    @property
    def noisy(self) -> bool:
        return self.compared.blurred or self.chance > TOLERATED

    @property
    def badness(self) -> tuple[float, float]:
        """What is the larger, the more of what it fires is noise: the chance, and the band over the threshold."""
        return self.chance, self.compared.band / max(1, abs(self.compared.threshold))

    def noise(self, epsilon: Fraction | None = None) -> str:
        """Return why it fires mostly by noise, and what would do; it repeats no number that was written.

        `epsilon`: what it has, where it may have more.
        """
        percent, compared = 100 * self.chance, self.compared
        shown = f"{percent:.0f}" if percent >= 1 else f"{percent:.1g}"
        reason = f"mostly noise: a false alarm {self._per} has a chance of at most {shown} %"
        if compared.blurred:
            reason += f", and the band of ± {compared.band:,.6g} is not less than the threshold"
        threshold, enough = compared.enough(self.usual), []
        if threshold is not None:
            enough.append(f"a threshold of {threshold:,}")
        if epsilon is not None:
            dearer = float(epsilon) * compared.dearer(self.usual)
            enough.append(f"epsilon {two_digits(dearer):.12g}")
        return f"{reason}. {' or '.join(enough).capitalize()} is enough" if enough else reason


def noise_of(alarms: Sequence[FalseAlarm], epsilon: Fraction | None = None) -> str:
    """Return why alarms are mostly noise: of several, of the one that is likeliest to be false; empty where none is."""
    noisy = [(*alarm.badness, -place) for place, alarm in enumerate(alarms) if alarm.noisy]
    if not noisy:
        return ""
    place = -max(noisy)[-1]
    which = f"watch[{place}]: " if len(alarms) > 1 else ""
    return f"{which}{alarms[place].noise(epsilon)}"


def _stepped(number: int, step: int) -> int:
    """Return the least multiple of a step that is not less, in two digits unless the step has more."""
    return -(-math.ceil(two_digits(number)) // step) * step


def two_digits(number: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / unit - 1e-9) * unit:.12g}")


ENDLESS = 10_000  # ticks: how far errors are predicted where there is no horizon


@dataclass(frozen=True, slots=True)
class Setting:
    """What the pipeline gives a series: rows of `width` entries, at most `horizon` ticks (None: endless).

    `delta` is what a series that is not pure is stated at, 0 where the filter grants none; `gdp`: its filter adds up
    Gaussian DP; `by_rho`: it adds up what Gaussian noise costs, by whatever measure, and charges no delta for it.
    `steps`: how many steps of `neighbors` make one of the pipeline's relation. One event sets at most `ones` entries of
    a row, and adds at most `weight` to each, or where rows are `signed` takes as much off. `parts`: how many entries
    each part has of a series that counts several things. `step`: the length of a tick, in ms.
    `users`: who is protected, where rows count them, each once: then `steps` is 1. `shape`: how all `steps` events of a
    user may lie, where Gaussian noise goes by it; None: they may all lie in one entry of one tick. `values`: rows count
    identifiers, of which the events of one of these `users` have at most so many; None: they count the users.
    `entries`: in how many entries of a row these events lie at most, where each counts once. `total`: how many units a
    user may add to all series that share a total, of the amount `total_of` where there are several. `advise`: the
    reason of a choice names what another method would have. `records`: how many the series counts in a tick, by a
    public guess that only such advice follows. `meaning`: a former one where a journal began with it.
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
    shape: UserShape | None = None
    values: int | None = None
    entries: int = 1
    total: int = 0
    total_of: str = ""
    advise: bool = False
    records: Fraction | None = None
    meaning: Meaning = Meaning.NOW

    @property
    def last(self) -> int:
        """The last tick, or the farthest for which an error is predicted."""
        return (self.horizon or ENDLESS) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Why the band of what lags behind holds, and the ends beside it (None: there are none), for one release.

    No error of the releases up to `tick` exceeds `at_once` with probability `confidence`, while at most `intervals`
    intervals close; `theorem` says for which data and why.
    """

    band: Word
    ends: Word | None
    at_once: int
    tick: int
    intervals: int
    confidence: float
    theorem: str

    @property
    def words(self) -> str:
        beside = f", low and high {self.ends}" if self.ends else ""
        return f"band {self.band}{beside}"

    @property
    def proof(self) -> str:
        closing = how_many(self.intervals, "interval")
        return (
            f"with probability {self.confidence:g}, no release up to tick {self.tick:,} has an error above "
            f"{self.at_once:,}, as long as at most {closing} close (the expected number); {self.theorem}"
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """A mechanism, why this one, and the half-width to expect at a tick; of `windows` each has its own, by name.

    Half-widths are numbers that people read. Where there are windows, `expected` is that of the first one, the single
    tick. `alarms`: how likely each alarm is a false one; nothing where there are none. `supposing`: what half-widths
    are for, or in, where that is not plain, such as "for 1,000 records". `bounds`: of what lags behind. `advice`: the
    part of the reason that may be one to change the file.
    """

    mechanism: ServingMechanism[Any]
    why: str
    expected: Callable[[int], float]
    windows: Mapping[str, Callable[[int], float]] = field(default_factory=dict)
    alarms: tuple[FalseAlarm, ...] = ()
    supposing: str = ""
    bounds: Callable[[], Bounds] | None = None
    advice: str = ""

    def saying(self, more: str) -> "Choice":
        return replace(self, why=f"{self.why}; {more}")

    def in_steps(self, step: Fraction) -> "Choice":
        """Return the choice with half-widths in numbers that people read, where they are in units of `step`."""

        def shown(error: Callable[[int], float]) -> Callable[[int], float]:
            return lambda tick: plain_number(Fraction(error(tick)) * step)

        windows = {name: shown(error) for name, error in self.windows.items()}
        return replace(self, expected=shown(self.expected), windows=windows)


def steady(mechanism: ServingMechanism[Any], why: str, setting: Setting) -> Choice:
    """Choose a mechanism whose band depends on the tick alone: that band is the error to expect."""
    bands = Bands.of(mechanism, setting.confidence)
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
    return steady(tree_counter(setting, epsilon), why, setting)


def gaussian_counter(
    setting: Setting, epsilon: Fraction, method: str = "gaussian"
) -> GaussianCounter:
    """Return the Gaussian counter that alone, in the pipeline's relation, is (steps * epsilon, delta)-DP."""
    if setting.gdp:
        alone = _alone(setting, epsilon, f"method {method}")
        rho = gaussian_budget(alone) ** 2 / 2 / setting.steps**2
    else:
        rho = rho_of_unit(setting, epsilon, f"method {method}")
    return GaussianCounter(
        setting.width,
        rho,
        setting.neighbors,
        setting.horizon,
        setting.ones,
        gdp=setting.gdp,
        shape=setting.shape,
    )


def rho_of_unit(setting: Setting, epsilon: Fraction, what: str) -> Fraction:
    """Return the rho of a Gaussian mechanism that is made for one step, or where there is a `shape` for its users."""
    rho = largest_rho(setting, epsilon, what)
    return rho if setting.shape is None else rho * setting.steps**2


def largest_rho(setting: Setting, epsilon: Fraction, what: str) -> Fraction:
    """Return the largest rho of one step with which a series alone is (steps * epsilon, delta)-DP.

    It is rounded down to a unit of the ledger. Raises NotDerivable, which names `what` needs it, where no delta is
    granted.
    """
    return exact(budget_units(zcdp_budget(_alone(setting, epsilon, what)))) / setting.steps**2


def _alone(setting: Setting, epsilon: Fraction, what: str) -> ApproxDP:
    if not setting.delta:
        raise NotDerivable(f"{what} needs a delta, but this pipeline's filter grants none")
    return ApproxDP(epsilon * setting.steps, setting.delta)


def by_gaussian(setting: Setting, epsilon: Fraction) -> Choice:
    return steady(
        gaussian_counter(setting, epsilon), f"method: gaussian{shape_words(setting)}", setting
    )


def shape_words(setting: Setting) -> str:
    """Return what is said of the shape that noise goes by; empty where it goes by the number of events."""
    if setting.shape is None:
        return ""
    return f"; its noise is computed from the squares of what {setting.shape} change together"
