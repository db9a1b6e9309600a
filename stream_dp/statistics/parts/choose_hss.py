"""Choosing an HSS, and which, or a tree instead, from the specification alone, before any data is touched.

Its counter is one of trees, or Gaussian where `counter: gaussian` asks for it and a delta is granted; that form is
weighed too, and a Gaussian counter, where the filter adds up what they cost.

Thresholds are self-tuned, so no parameter depends on the volume: `expected_events` and `expected_shape` move what is
predicted, and with it which form `method: auto` or `typical` takes: that with the narrower band, or with the smaller
error. Where nothing is guessed, predictions are for one event a tick; where no shape is declared, the form is taken
whose regret (its band or error over the smallest) is least for the worst of the steady shapes. This file knows no
journal and no data.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from math import isqrt
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.accounting.amounts import cost_units, exact
from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.core.guarantee import PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wording import how_many
from stream_dp.engine.series import Meaning
from stream_dp.errors import UsageError
from stream_dp.mechanisms.hss.hss import FAILURE, HSS, GaussianHSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.hss.sparse_vector import Quantity
from stream_dp.mechanisms.papers import GaussianPaperHSS, PaperHSS
from stream_dp.mechanisms.serving import Lags
from stream_dp.records.scalars import problem
from stream_dp.statistics.parts.choice import (
    ENDLESS,
    SUPPOSED,
    Bounds,
    Choice,
    ExpectedShape,
    Profile,
    Setting,
    by_gaussian,
    by_tree,
    gaussian_counter,
    largest_rho,
    tree_counter,
)
from stream_dp.statistics.parts.predicted_errors import (
    GAUSSIAN,
    GAUSSIAN_HSS,
    TREE,
    counter_error,
    gaussian_fits,
    hss_error,
    least_regret,
    price_words,
    regrets,
    shown,
)

COUNTER_SHARE = Fraction(17, 20)  # of epsilon, for the joint form's counter
QUANTITY_SHARE = Fraction(4, 5)  # the same where one quantity of all columns is released
BIN_SHARE = Fraction(7, 10)  # the same for the counters bin by bin
SHARES = tuple(Fraction(tenths, 10) for tenths in range(8, 2, -1))  # weighed where the band decides
GAUSSIAN_SHARE = Fraction(2, 3)  # of rho, for a Gaussian counter
GAUSSIAN_QUANTITY_SHARE = Fraction(1, 2)  # the same where one quantity is released
FINE = 10**6  # a pure epsilon beside it is rounded down to a multiple of 1 / FINE
FEW = 2  # entries an event reaches, up to which the form bin by bin is mostly the better one
JOINT, BINS = "hss joint", "hss bin by bin"
HSS_FORMS = (JOINT, BINS, GAUSSIAN_HSS)
CHEAP = (GAUSSIAN, GAUSSIAN_HSS)  # which cost the filter less
MOST_EVENTS = 1 << 50
ALGORITHM_4 = "for rows in {0, 1}^d, by the bound of [HSV] Alg. 4: 4 a_S + 5 alpha + L + 1"
RELATIVE = (
    "the bound holds for all data, also for data chosen by somebody who sees the releases. A sparse vector "
    "misses at most gamma events plus the noise of its threshold, and the bound adds up the tails of this noise "
    "and of the counter's noise"
)
NEAR = 1.1  # what a declared shape may cost where the events have another one

ExpectedEvents: TypeAlias = Annotated[int, Field(ge=1, le=10**15)] | None
CounterKind: TypeAlias = Literal["tree", "gaussian"]
Split: TypeAlias = Literal["error", "band"]
"""By what epsilon is split between watching and counting: the typical error, or the band at the end."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What an HSS series asks for: all it is chosen from.

    `expected_events` or `shape` None: nobody guessed. `counter`: what counts inside.
    """

    setting: Setting
    quantity: Quantity | None
    epsilon: Fraction
    expected_events: int | None = None
    shape: ExpectedShape | None = None
    counter: CounterKind = "tree"
    split: Split = "error"

    @property
    def events(self) -> int:
        """How many events predictions are for: the guess, or one a tick."""
        if self.expected_events is None:
            return self.setting.horizon or ENDLESS
        return self.expected_events

    @property
    def supposing(self) -> str:
        return f"for {how_many(self.events, 'event')}"

    @property
    def words(self) -> str:
        guess = self.expected_events is not None
        whose = "expected" if guess else "by default, one a tick: declare expected_events"
        if self.quantity is None:
            shapes = self.shape or f"{' / '.join(SUPPOSED)} by default: declare expected_shape"
            whose = f"{whose}; {shapes}"
        return f"{how_many(self.events, 'event')} ({whose})"

    def why(self, method: str) -> str:
        counter = "" if self.counter == "tree" else f", counter: {self.counter}"
        split = "" if self.split == "error" else ", split: band"
        return f"method: {method}{counter}{split}; the predicted errors are for {self.words}"

    @property
    def profiles(self) -> tuple[Profile, ...]:
        shapes = SUPPOSED if self.shape is None else (self.shape,)
        setting = self.setting
        return tuple(
            Profile.of(setting.width, self.events, shape, setting.ones) for shape in shapes
        )


def hss_choice(demand: Demand) -> Choice:
    return _choice(hss_for(demand), demand, demand.why("hss"))


RankMethod: TypeAlias = Literal["auto", "tree", "gaussian", "hss", "paper_hss"]


def rank_choice(demand: Demand, method: RankMethod) -> Choice:
    """Choose what the count of a rank is read off: a counter of all columns, or an HSS of the rank alone.

    `auto` takes the narrowest band at the end (`narrowest`).
    """
    if method == "paper_hss":
        return paper_hss_choice(demand)
    if method == "hss":
        return hss_choice(demand)
    setting = demand.setting
    counted = replace(setting, confidence=rank_confidence(setting.confidence, setting.width))
    if method == "gaussian":
        return by_gaussian(counted, demand.epsilon)
    choices = {TREE: by_tree(counted, demand.epsilon, "method: tree")}
    if method == "tree":
        return choices[TREE]
    if gaussian_fits(setting):
        choices[GAUSSIAN] = by_gaussian(counted, demand.epsilon)
    return narrowest(demand, choices, {"hss": hss_for(demand)})


def narrowest(
    demand: Demand, counters: Mapping[str, Choice], hss: Mapping[str, HSS | PerBinHSS]
) -> Choice:
    """Choose the counter or the HSS whose band at the end is the narrowest, whatever the shape of the events.

    A declared shape decides between those whose regret, their band over the narrowest one, is at most NEAR of the least
    one in the worst shape: so a wrong guess costs little. What is cheaper may be TOLERANCE wider.
    """
    bands = _bands(demand, counters, hss)
    form, weighed = _by_band(demand, bands)
    shapes_alike = {form: own[:1] if len({*own}) == 1 else own for form, own in bands.items()}
    listed = ", ".join(
        f"{name} {' / '.join(f'{band:,.0f}' for band in own)}" for name, own in shapes_alike.items()
    )
    why = f"method: auto chooses {form}, because of the bands at the end: {listed} (hss for {demand.words})"
    if demand.expected_events is None:

        def takes_hss(events: int) -> bool:
            other = replace(demand, expected_events=events)
            return _by_band(other, _bands(other, counters, hss))[0] in hss

        most = _most_events(takes_hss)
        if 0 < most < MOST_EVENTS:
            why = f"{why}; hss is chosen up to about {how_many(most, 'event')}"
    if any(form in CHEAP for form in bands):
        best = regrets(weighed)[form] == 1
        why = f"{why}{price_words(demand.setting, demand.epsilon, form, best)}"
    if form in counters:
        return replace(counters[form], why=why)
    return _choice(hss[form], demand, why)


Bandwidths: TypeAlias = Mapping[str, tuple[float, ...]]


def _bands(
    demand: Demand, counters: Mapping[str, Choice], hss: Mapping[str, HSS | PerBinHSS]
) -> Bandwidths:
    """Return the bands at the end by form, in each supposed shape."""
    last, shapes = demand.setting.last, SUPPOSED if demand.quantity is None else (None,)
    bands = {form: (max(1.0, of.expected(last)),) * len(shapes) for form, of in counters.items()}
    for form, mechanism in hss.items():
        likely = [_lag(mechanism, replace(demand, shape=shape), last) for shape in shapes]
        bands[form] = tuple(max(1.0, float(lag)) for lag in likely)
    return bands


def _by_band(demand: Demand, bands: Bandwidths) -> tuple[str, Bandwidths]:
    """Return the form that is taken, and the bands between which it was."""
    weighed = bands
    if demand.shape is not None:
        at = SUPPOSED.index("even" if demand.shape == "even" else "zipf")
        least = regrets(bands)
        near = [form for form in bands if least[form] <= NEAR * min(least.values())]
        weighed = {form: bands[form][at : at + 1] for form in near}
    return least_regret(weighed, [form for form in CHEAP if form in weighed]), weighed


def rank_confidence(confidence: float, width: int) -> float:
    """Return the confidence of one column's band with which it holds for the count of one rank, read off all columns.

    Of rank k, width - k + 1 columns truly have no more: the count is too high by more than the band only where the
    noise of one of these is. And k columns truly have as much: it is too low by more only where the noise of one of
    these is. That is one tail of a symmetric noise for each, width + 1 in all.
    """
    return 1 - 2 * (1 - confidence) / (width + 1)


def counts_columns(mechanism: Any) -> bool:
    """Whether its answers hold the counts of all columns: else an HSS decides, and answers its quantity."""
    return mechanism.noise(1) is not None


def narrowest_choice(demand: Demand) -> Choice:
    """Choose a form of HSS, a tree or a Gaussian counter for a histogram: by the band at the end."""
    forms = all_forms(demand)
    counters = {form: _counter(form, demand) for form in forms if form not in HSS_FORMS}
    return narrowest(
        demand, counters, {form: hss_of(form, demand) for form in forms if form in HSS_FORMS}
    )


def typical_choice(demand: Demand) -> Choice:
    """Choose a form of HSS, a tree or a Gaussian counter for a histogram: by the typical error (RMSE) over the horizon.

    Of empty categories an HSS releases 0, and so errs far less than its band says.
    """
    forms = all_forms(demand)
    errors = form_errors(demand, forms)
    form, most = taken(errors), break_even(demand)
    bounded = f"up to about {how_many(most, 'event')}"
    until = bounded if most < MOST_EVENTS else "for any number of events"
    why = f"method: typical, typical error (RMSE) for {demand.words}: {shown(errors)}; hss is chosen {until}"
    if GAUSSIAN in errors:
        best = errors[form] == min(errors.values())
        why = f"{why}{price_words(demand.setting, demand.epsilon, form, best)}"
    if form in HSS_FORMS:
        return _choice(hss_of(form, demand), demand, why)
    return replace(_counter(form, demand), why=why)


def _counter(form: str, demand: Demand) -> Choice:
    if form == GAUSSIAN:
        return by_gaussian(demand.setting, demand.epsilon)
    return by_tree(demand.setting, demand.epsilon, "method: tree")


def taken(errors: Mapping[str, tuple[float, ...]]) -> str:
    return least_regret(errors, [form for form in CHEAP if form in errors])


def all_forms(demand: Demand) -> tuple[str, ...]:
    forms = (TREE, *hss_forms(demand))
    if not gaussian_fits(demand.setting):
        return forms
    return (*forms, GAUSSIAN) if demand.setting.gdp else (*forms, GAUSSIAN, GAUSSIAN_HSS)


def split_problems(split: Split, method: str, counter: CounterKind) -> list[InitErrorDetails]:
    if split == "error" or (method == "hss" and counter == "tree"):
        return []
    return [problem(("split",), "band is for method hss with counter tree")]


def _choice(hss: HSS | PerBinHSS, demand: Demand, why: str) -> Choice:
    last = demand.setting.last
    bounds = _bounds(hss, last, partial(predicted_intervals, hss, demand, last), RELATIVE)
    expected = partial(_lag, hss, demand)
    return Choice(hss, why, expected, supposing=demand.supposing, bounds=bounds)


def _bounds(
    mechanism: Lags, tick: int, intervals: Callable[[], int], theorem: str
) -> Callable[[], Bounds] | None:
    if mechanism.words[1] is None:
        return None

    def bounds() -> Bounds:
        closed = intervals()
        error = mechanism.at_once(tick + 1, closed)
        return Bounds(*mechanism.words, error, tick, closed, 1 - FAILURE, theorem)

    return bounds


def _lag(hss: HSS | PerBinHSS, demand: Demand, tick: int) -> int:
    intervals = predicted_intervals(hss, demand, tick)
    return hss.lag(tick + 1, intervals, demand.setting.confidence)


def hss_for(demand: Demand) -> HSS | PerBinHSS:
    """The HSS of `method: hss`, by the relation alone: bin by bin for a histogram whose events reach few entries."""
    if demand.split == "band":
        return _least_banded(demand)
    return hss_of(GAUSSIAN_HSS if demand.counter == "gaussian" else hss_forms(demand)[0], demand)


@lru_cache(maxsize=64)
def _least_banded(demand: Demand) -> HSS | PerBinHSS:
    """Return the form and share of the counter whose band at the end is the narrowest, in the worst supposed shape."""
    shapes = SUPPOSED if demand.quantity is None and demand.shape is None else (demand.shape,)
    weighed = [
        bins_hss(demand, share) if form == BINS else joint_hss(demand, share)
        for form in hss_forms(demand)
        for share in SHARES
    ]

    def band(hss: HSS | PerBinHSS) -> int:
        last = demand.setting.last
        return max(_lag(hss, replace(demand, shape=shape), last) for shape in shapes)

    return min(weighed, key=band)


def hss_forms(demand: Demand) -> tuple[str, ...]:
    setting = demand.setting
    if demand.quantity is not None or setting.neighbors.l0(setting.width, setting.ones) > FEW:
        return (JOINT,)
    return BINS, JOINT


def form_errors(demand: Demand, forms: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    return {
        form: tuple(_error(form, demand, profile) for profile in demand.profiles) for form in forms
    }


def _error(form: str, demand: Demand, profile: Profile) -> float:
    setting, epsilon = demand.setting, demand.epsilon
    if form in HSS_FORMS:
        return hss_error(hss_of(form, demand), setting, profile)
    counter = tree_counter if form == TREE else gaussian_counter
    return counter_error(counter(setting, epsilon), setting, profile)


@lru_cache(maxsize=64)
def hss_of(form: str, demand: Demand) -> HSS | PerBinHSS:
    if form == GAUSSIAN_HSS:
        return with_gaussian_counter(demand)
    return bins_hss(demand) if form == BINS else joint_hss(demand)


@lru_cache(maxsize=64)
def break_even(demand: Demand) -> int:
    """Return up to about how many events an HSS is taken, by bisection: a power of two up to MOST_EVENTS, or 0."""
    forms = all_forms(demand)
    return _most_events(
        lambda events: (
            taken(form_errors(replace(demand, expected_events=events), forms)) in HSS_FORMS
        )
    )


def _most_events(holds: Callable[[int], bool]) -> int:
    low, high = -1, MOST_EVENTS.bit_length()
    while high - low > 1:
        middle = (low + high) // 2
        if holds(1 << middle):
            low = middle
        else:
            high = middle
    return 1 << low if low >= 0 else 0


def bins_hss(demand: Demand, share: Fraction = BIN_SHARE) -> PerBinHSS:
    setting, counter = demand.setting, demand.epsilon * share
    shares = demand.epsilon - counter, counter
    return PerBinHSS(setting.width, *shares, setting.neighbors, setting.horizon, setting.ones)


def joint_hss(demand: Demand, share: Fraction | None = None) -> HSS:
    """The joint form; the rest is split 1 : s^(2/3) between threshold and queries (Lyu, Su, Li 2017, section 4)."""
    if share is None:
        share = COUNTER_SHARE if demand.quantity is None else QUANTITY_SHARE
    setting, counter = demand.setting, demand.epsilon * share
    shares = (*_watching(setting, demand.epsilon - counter), counter)
    bounds = setting.neighbors, setting.horizon
    return HSS(setting.width, demand.quantity, *shares, *bounds, kappa=None, ones=setting.ones)


def with_gaussian_counter(demand: Demand) -> GaussianHSS:
    """The joint form with a Gaussian counter, which alone is (epsilon, delta)-DP in the pipeline's relation."""
    setting = demand.setting
    rho = largest_rho(setting, demand.epsilon, "counter gaussian")
    share = GAUSSIAN_SHARE if demand.quantity is None else GAUSSIAN_QUANTITY_SHARE
    watch, paid = pure_part(rho * (1 - share))
    rho -= paid
    shares, bounds = _watching(setting, watch), (setting.neighbors, setting.horizon)
    return GaussianHSS(
        setting.width, demand.quantity, *shares, *bounds, kappa=None, ones=setting.ones, rho=rho
    )


def pure_part(rho: Fraction) -> tuple[Fraction, Fraction]:
    """A pure epsilon that costs at most this rho: about sqrt(2 rho), rounded down; and what it costs, rounded up.

    e tanh(e/2) is at most e^2 / 2.

    >>> epsilon, paid = pure_part(Fraction(1, 50))
    >>> float(epsilon), round(float(paid), 6)
    (0.2, 0.019934)
    """
    epsilon = Fraction(isqrt(int(2 * rho * FINE**2)), FINE)
    return epsilon, exact(cost_units(pure_to_zcdp(PureDP(epsilon)).rho))


def _watching(setting: Setting, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    monotone = setting.neighbors.monotone(setting.width)
    threshold = epsilon * (Fraction(1, 2) if monotone else Fraction(5, 13))
    return threshold, epsilon - threshold


def predicted_intervals(mechanism: HSS | PerBinHSS, demand: Demand, tick: int) -> int:
    """How many intervals of the largest category will have closed: one for each gamma, at most one a tick.

    gamma changes with the intervals; that after half of them stands for all. Former versions took `growth` for gamma.
    """
    largest = demand.events
    if demand.quantity is None:
        largest = max(round(float(profile.counts[0])) for profile in demand.profiles)
    events = largest * (tick + 1) // (demand.setting.horizon or ENDLESS)
    if demand.setting.meaning < Meaning.BY_GROWTH:
        possible = range(1, tick + 2)
        return bisect_right(possible, events, key=lambda k: k * mechanism.gamma(tick + 1, k // 2))
    growth = mechanism.tuned.growth
    few = min(tick + 1, events // growth(tick + 1))
    return min(tick + 1, events // growth(few))


def paper_hss_choice(demand: Demand) -> Choice:
    """Choose Alg. 4; the error to expect is predicted for the expected events, or else for one a tick."""
    setting = demand.setting
    if demand.quantity is None:
        raise UsageError("method paper_hss: [HSV] Alg. 4 releases one quantity, not a histogram")
    if setting.neighbors is not Neighbors.REPLACE:
        raise UsageError(
            "method paper_hss: [HSV] Alg. 4 is made for the relation ~_H, in which a row is "
            f"replaced, but this pipeline has {setting.neighbors}. Declare `neighbors: replace` "
            "with `moves: within_tick`, or use method hss"
        )
    mechanism = _paper_hss(demand, demand.quantity)
    predicted, last = _paper_error(mechanism, setting, demand.events), setting.last
    intervals = partial(_paper_intervals, mechanism, setting, demand.events, last)
    bounds = _bounds(mechanism, last, intervals, ALGORITHM_4)
    why = demand.why("paper_hss")
    return Choice(mechanism, why, predicted, supposing=demand.supposing, bounds=bounds)


def _paper_hss(demand: Demand, quantity: Quantity) -> PaperHSS:
    """Thirds of epsilon, or of rho where the counters are Gaussian."""
    setting = demand.setting
    if demand.counter == "tree":
        return PaperHSS(setting.width, quantity, demand.epsilon, setting.horizon)
    rho = largest_rho(setting, demand.epsilon, "counter gaussian")
    third, paid = pure_part(rho / 3)
    return GaussianPaperHSS(setting.width, quantity, 3 * third, setting.horizon, rho=rho - 2 * paid)


def _paper_error(mechanism: PaperHSS, setting: Setting, events: int) -> Callable[[int], int]:
    """The band expected at a tick, halfway to the next crossing: all events in one column, evenly over the horizon."""

    @lru_cache(maxsize=256)
    def expected(tick: int) -> int:
        now, closed = tick + 1, _paper_intervals(mechanism, setting, events, tick)
        behind = mechanism.gamma(now, closed + 1) // 2
        return mechanism.band((setting.horizon or now, closed, behind), setting.confidence)

    return expected


def _paper_intervals(mechanism: PaperHSS, setting: Setting, events: int, tick: int) -> int:
    so_far = events * (tick + 1) // (setting.horizon or ENDLESS)
    now, closed = tick + 1, 0
    reach = mechanism.gamma(now, 1)
    while so_far > reach and closed < now:
        closed += 1
        reach += mechanism.gamma(now, closed + 1)
    return closed
