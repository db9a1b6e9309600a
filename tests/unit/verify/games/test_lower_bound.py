"""The audit's lower bound: its statistics against exact tails, right mechanisms not flagged, broken twins flagged.

All noise is seeded, so a run is the same every time; the probabilities stated are those over the seeds. A right
mechanism is flagged with probability at most 1e-6.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.accounting.conversions import zcdp_epsilon
from stream_dp.accounting.rules.rule import price
from stream_dp.core.guarantee import ZCDP, GaussianDP, Measure, RenyiCurve, RenyiDP, TruncatedZCDP
from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import EventRows, Stream, event
from stream_dp.errors import FailClosed, UsageError
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.sparse_vector import LEAD, MAXIMUM, Quantity
from stream_dp.mechanisms.linear.counter import Counter, HandOverCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.serving import ServingMechanism
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.testing.noise import SeededNoise
from stream_dp.verify.lower_bound import (
    STATED_AT,
    Event,
    OneEventAdversary,
    Score,
    audit_mechanism,
    choose_event,
    epsilon_bound,
    evidence,
    statistics,
    worst_pair,
)

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, FAILURE = Fraction(1), 1e-6


def tail(k: int, n: int, p: float) -> float:
    """P[Binomial(n, p) >= k], summed up."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize(("likely", "rare", "plays"), [(30, 10, 50), (50, 0, 50), (1, 49, 50)])
def test_the_bound_inverts_exact_binomial_tails(likely: int, rare: int, plays: int) -> None:
    """Clopper-Pearson by its definition: at its ends the observation has probability failure / 2."""
    failure = 0.02
    result = epsilon_bound(np.array([likely]), np.array([rare]), plays, 0.0, failure)[0]
    q = math.exp(-epsilon_bound(np.array([plays]), np.array([rare]), plays, 0.0, failure)[0])
    p_if_all = (failure / 2) ** (1 / plays)  # tail(n, n, p) = p^n
    q *= p_if_all
    p = math.exp(result) * q
    assert tail(likely, plays, p) == pytest.approx(failure / 2, rel=1e-6)
    assert 1 - tail(rare + 1, plays, q) == pytest.approx(failure / 2, rel=1e-6)


def test_corners_of_the_bound() -> None:
    def bound(likely: int, rare: int, delta: float = 0.0) -> float:
        return float(epsilon_bound(np.array([likely]), np.array([rare]), 100, delta, 0.01)[0])

    assert bound(0, 0) == -math.inf
    assert bound(100, 100) < 0
    assert bound(90, 10) > bound(90, 10, delta=0.1) > 0
    assert bound(10, 0, delta=0.5) == -math.inf


def null_plays(seed: int) -> tuple[IntArray, IntArray]:
    """Statistics that say nothing: 200 plays a side of 40 values of one law."""
    left, right = np.random.default_rng(seed).integers(-9, 9, (2, 200, 40))
    return left, right


def wrongly(seed: int, judged: slice) -> bool:
    """Whether an event chosen on the first half proves an epsilon above 0 on the `judged` plays, at .05."""
    left, right = null_plays(seed)
    event = choose_event(left[:100], right[:100], 0.0)
    counts = [np.array([event.count(side[judged])]) for side in (right, left)]
    likely, rare = counts[::-1] if event.swapped else counts
    return bool(epsilon_bound(likely, rare, 100, 0.0, 0.05)[0] > 0)


def test_choosing_and_judging_on_other_plays_is_honest() -> None:
    """At .05 each: more than 9 of 40 with probability below 1e-4. The twin judges where it has chosen."""
    honest = sum(wrongly(seed, slice(100, None)) for seed in range(40))
    twin = sum(wrongly(seed, slice(0, 100)) for seed in range(40))
    assert honest <= 9 < twin


def test_statistics_are_the_touched_columns_and_their_difference() -> None:
    answers = np.array([[[5, 3, 9], [7, 1, 9]]])
    assert statistics(answers, 1).tolist() == [[5, 7]]
    assert statistics(answers, 2).tolist() == [[5, 3, 2, 7, 1, 6]]
    assert Event(1, 7, above=True, swapped=False).count(statistics(answers, 1)) == 1
    assert Event(1, 7, above=False, swapped=False).count(statistics(answers, 1)) == 0


def test_the_score_puts_independent_signs_together() -> None:
    """Two signs of odds 3 each: together 9, which neither shows alone. Off by .2 in ln: below 1e-6 at 20,000 plays."""
    rng = np.random.default_rng(2)
    right, left = (rng.random((40_000, 2)) < p for p in (0.75, 0.25))
    plays = [side.astype(np.int64) for side in (left, right)]
    score = Score.fit(*(side[:20_000] for side in plays))
    left_, right_ = (score.extended(side) for side in plays)
    event = choose_event(left_[:20_000], right_[:20_000], 0.0)
    assert event.statistic == 2
    counts = [event.count(side[20_000:]) for side in (right_, left_)]
    assert abs(math.log(counts[0] / counts[1])) == pytest.approx(math.log(9), abs=0.2)


# --- mechanisms ---------------------------------------------------------------------------------


def hss(quantity: Quantity | None, relation: Neighbors) -> HSS:
    """Two columns, three shares of 1."""
    return HSS(2, quantity, Fraction(1, 10), Fraction(1, 10), Fraction(4, 5), relation, 10)


RIGHT: dict[str, ServingMechanism[Any]] = {
    "counter": Counter(1, ONE, ADD, 1),
    "deep counter": Counter(2, ONE, REPLACE, 40),
    "hand over": HandOverCounter(2, ONE, REPLACE),
    "alerts": Alerts(3, ONE, ADD, 5),
    "moved alerts": Alerts(2, ONE, REPLACE, 5),
    "histogram": hss(None, ADD),
    "moved histogram": hss(None, REPLACE),
    "maximum": hss(MAXIMUM, ADD),
}


STATED_AT_A_DELTA: list[Measure] = [
    ZCDP(2 * ONE),
    TruncatedZCDP(2 * ONE, Fraction(9)),
    RenyiDP(Fraction(8), 9 * ONE),
    RenyiCurve((RenyiDP(Fraction(2), 3 * ONE), RenyiDP(Fraction(8), 9 * ONE))),
    GaussianDP(2 * ONE),
]


class LessNoise:
    """A broken sampler: the scale asked for, divided by `by`."""

    def __init__(self, noise: Noise, by: int) -> None:
        self._noise, self._by = noise, by

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._noise.laplace(scale / self._by, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self._noise.geometric(scale / self._by, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self._noise.gaussian(variance / self._by**2, size)


def seeded(*, less: int = 1) -> Callable[[], Noise]:
    """Noise under the seeds 1, 2, 3, ..., at the scale asked for divided by `less`."""
    seeds = itertools.count(1)

    def make() -> Noise:
        noise = SeededNoise(next(seeds))
        return noise if less == 1 else LessNoise(noise, less)

    return make


@pytest.mark.parametrize("name", RIGHT)
def test_right_mechanisms_are_not_flagged(name: str) -> None:
    """Each wrongly with probability at most 1e-6."""
    result = audit_mechanism(RIGHT[name], seeded(), runs=800, ticks=1, failure=FAILURE)
    assert not result.violated
    assert result.lower <= result.claimed == 1
    assert result.failure == FAILURE


@pytest.mark.parametrize("name", ["counter", "alerts"])
def test_the_bound_comes_near_the_claim_where_one_tick_shows_all(name: str) -> None:
    """A tree of one level and an alert one short of its threshold are RR of epsilon 1."""
    result = audit_mechanism(RIGHT[name], seeded(), runs=3000, ticks=1, failure=0.01)
    assert 0.65 < result.lower <= 1
    assert result.rates[0] / result.rates[1] == pytest.approx(math.e, rel=0.15)


@pytest.mark.parametrize(
    ("name", "less", "runs"),
    [("counter", 2, 3000), ("moved alerts", 2, 3000), ("histogram", 4, 6000)],
)
def test_too_little_noise_is_caught(name: str, less: int, runs: int) -> None:
    """The same code, the same claims, several times the epsilon: the bound exceeds the claim at failure .01.

    One statistic of one tick shows about half of what an HSS loses, so half of its noise is not found this way
    (`test_small_hss` adds up all of it); a quarter is.
    """
    result = audit_mechanism(RIGHT[name], seeded(less=less), runs=runs, ticks=1, failure=0.01)
    assert result.violated
    assert 1 < result.lower <= less


@pytest.mark.parametrize("name", RIGHT)
def test_the_adversarys_pair_is_one_event_apart(name: str) -> None:
    mechanism = RIGHT[name]
    left, right = worst_pair(mechanism)
    relation = mechanism.guarantee.neighbors
    accepted = event(relation).accept(left, right)
    assert isinstance(accepted, EventRows)
    assert accepted.spent > 0
    assert np.abs(left - right).sum() == relation.l0(mechanism.width)
    later = OneEventAdversary.against((mechanism,), 3).pairs[1:]
    assert [np.abs(a).sum() + np.abs(b).sum() for ((a, b),) in later] == [0, 0]


def test_the_event_lies_where_decisions_are_nearly_taken() -> None:
    assert worst_pair(RIGHT["alerts"])[0].tolist() == [4, 0, 0]
    assert worst_pair(RIGHT["moved alerts"])[1].tolist() == [5, 4]
    histogram = hss(None, ADD)
    assert worst_pair(histogram)[0].tolist() == [histogram.gamma(1, 0), 0]
    assert worst_pair(RIGHT["maximum"])[1].tolist() == [LEAD + 1, 0]
    assert worst_pair(RIGHT["counter"])[1].tolist() == [1]


def test_bad_settings_are_refused_before_anything_is_played() -> None:
    def never() -> Noise:
        raise AssertionError("noise was drawn")

    for bad in (
        {"runs": 99, "ticks": 1, "failure": 0.1},
        {"runs": 100, "ticks": 0, "failure": 0.1},
        {"runs": 100, "ticks": 1, "failure": 0.0},
        {"runs": 100, "ticks": 1, "failure": 1.0},
    ):
        with pytest.raises(UsageError, match="an audit needs at least 100 runs"):
            audit_mechanism(RIGHT["counter"], never, **bad)  # type: ignore[arg-type]


def test_a_game_that_is_halted_proves_nothing() -> None:
    with pytest.raises(FailClosed, match="the game stopped"):
        audit_mechanism(Counter(1, ONE, ADD, 1), seeded(), runs=100, ticks=2, failure=0.1)


def test_a_gaussian_claim_is_attacked_at_the_epsilon_that_it_implies() -> None:
    """A fiftieth of the deviation is refuted, the right one is not; one tick, a false alarm below 1e-6."""
    right = GaussianCounter(1, Fraction(1, 50), Neighbors.ADD_REMOVE, 4)
    wrong = GaussianCounter(1, Fraction(1, 50), Neighbors.ADD_REMOVE, 4)
    less = replace(wrong.lattice, variance=wrong.lattice.variance / 2500)
    wrong.__dict__["lattice"] = less
    for mechanism in (right, wrong):
        result = audit_mechanism(mechanism, seeded(), runs=800, ticks=1, failure=1e-6)
        assert float(result.claimed) == pytest.approx(
            float(zcdp_epsilon(ZCDP(Fraction(1, 50)), Fraction(1, 100)))
        )
        assert result.violated == (mechanism is wrong)


@pytest.mark.parametrize("measure", STATED_AT_A_DELTA, ids=str)
def test_every_claim_without_an_epsilon_is_attacked_at_one_delta(measure: Measure) -> None:
    """Of a counter that is far more private than that: nothing is refuted, with probability at least 1 - 1e-6."""
    claim = Claim(measure, Stream(event(ADD, 1)))
    result = audit_mechanism(
        RIGHT["counter"], seeded(), runs=100, ticks=1, failure=1e-6, claim=claim
    )
    assert (result.claimed, result.delta) == (price(measure, STATED_AT), STATED_AT)
    assert not result.violated


def test_plays_that_choose_an_event_do_not_judge_it() -> None:
    """The first half of the plays tells the worlds apart, the second does not: nothing is proven."""
    apart, alike = np.zeros((500, 1), np.int64), np.arange(500)[:, None] % 2
    left, right = np.concatenate([apart, alike]), np.concatenate([apart + 1, alike])
    assert evidence(left, right, 0.0, 0.01).lower == 0
    assert evidence(left[:500], right[:500], 0.0, 0.01).lower > 1
