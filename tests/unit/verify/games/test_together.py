"""Several series in one game behind a filter: a right whole passes, a whole whose parts alone are right is refuted.

All noise is seeded, so a run is the same every time; the probabilities stated are those over the seeds. A right whole
is flagged with probability at most 1e-6.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest

from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.composition import Ask, ConcurrentComposition, Create
from stream_dp.core.guarantee import Measure, PureDP
from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import FailClosed
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.serving import ServingMechanism
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.testing.noise import SeededNoise, ZeroNoise
from stream_dp.verify.game import Game, LedgerFilter, Side
from stream_dp.verify.lower_bound import (
    Finding,
    OneEventAdversary,
    answers,
    audit_mechanism,
    audit_together,
    worst_pair,
)
from stream_dp.verify.relations import ParameterFilter, filtered

ADD, ONE, FAILURE = Neighbors.ADD_REMOVE, Fraction(1), 1e-6
BITS: tuple[Literal[0, 1], ...] = (0, 1)
COUNTER = Counter(1, ONE, ADD, 1)
PAIR: Mapping[str, ServingMechanism[Any]] = {"all": COUNTER, "some": Alerts(3, ONE, ADD, 5)}
COUNTERS: Mapping[str, ServingMechanism[Any]] = {"one": COUNTER, "other": Counter(1, ONE, ADD, 1)}


def within(epsilon: Fraction) -> LedgerFilter:
    """The filter of a pipeline with this budget."""
    return LedgerFilter(Ledger.under(PureFilter.of(epsilon)))


def seeded() -> Callable[[], Noise]:
    """Noise under the seeds 1, 2, 3, ..."""
    seeds = itertools.count(1)
    return lambda: SeededNoise(next(seeds))


def audit(
    mechanisms: Mapping[str, ServingMechanism[Any]],
    filter_: ParameterFilter,
    claim: Fraction,
    noise: Callable[[], Noise],
    *,
    runs: int,
    failure: float = FAILURE,
    ticks: int = 1,
) -> Finding:
    function = filtered(filter_)
    return audit_together(
        mechanisms, function, PureDP(claim), noise, runs=runs, ticks=ticks, failure=failure
    )


def test_a_right_whole_is_not_flagged() -> None:
    """Wrongly with probability at most 1e-6; and the bound is worth something, on these seeds."""
    result = audit(PAIR, within(2 * ONE), 2 * ONE, seeded(), runs=1000)
    assert not result.violated
    assert 0.4 < result.lower < result.strongest < result.claimed == 2


@dataclass(frozen=True)
class MaxFilter:
    """Broken: admits whatever does not exceed the budget alone, and promises the budget."""

    budget: Fraction

    def charge(self, measure: Measure) -> "MaxFilter | None":
        return self if isinstance(measure, PureDP) and measure.epsilon <= self.budget else None


def test_booking_the_maximum_for_the_sum_is_refuted() -> None:
    """Two of epsilon 1 show 2: .53 of 400 plays against .07; missed with probability below 1e-3."""
    result = audit(PAIR, MaxFilter(ONE), ONE, seeded(), runs=1600, failure=0.05)
    assert result.violated
    assert result.event.startswith("likelihood score")
    for mechanism in PAIR.values():
        alone = audit_mechanism(mechanism, seeded(), runs=400, ticks=1, failure=FAILURE)
        assert not alone.violated


@dataclass
class SharedNoise:
    """Broken between mechanisms: who asks for the same samples as one before gets the very same ones."""

    noise: Noise
    given: dict[tuple[str, Fraction, int], IntArray] = field(default_factory=dict)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._once("laplace", self.noise.laplace, scale, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self._once("geometric", self.noise.geometric, scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self._once("gaussian", self.noise.gaussian, variance, size)

    def _once(
        self, kind: str, draw: Callable[[Fraction, int], IntArray], scale: Fraction, size: int
    ) -> IntArray:
        if (kind, scale, size) not in self.given:
            self.given[kind, scale, size] = draw(scale, size)
        return self.given[kind, scale, size]


def test_noise_that_two_series_share_is_refuted_together_and_only_there() -> None:
    """The answers differ by the events alone: 1 + z >= 1 > z in .46 of 200 plays against 0; missed below 1e-5."""

    def sharing() -> Callable[[], Noise]:
        fresh = seeded()
        return lambda: SharedNoise(fresh())

    result = audit(COUNTERS, within(2 * ONE), 2 * ONE, sharing(), runs=800, failure=0.01)
    assert result.violated
    assert result.rates[1] == 0
    for mechanism in COUNTERS.values():  # alone each draws once, so it shares with nobody
        alone = audit_mechanism(mechanism, sharing(), runs=400, ticks=1, failure=FAILURE)
        assert not alone.violated
    assert not audit(COUNTERS, within(2 * ONE), 2 * ONE, seeded(), runs=400).violated


def test_a_creation_beyond_the_filter_halts_the_game() -> None:
    adversary = OneEventAdversary.against(tuple(PAIR.values()), 1)
    game = Game(ConcurrentComposition(), filtered(within(ONE)))
    for b in BITS:
        view = game.play(adversary, b, ZeroNoise(), adversary.rounds)
        assert view.halted is Side.RIGHT
        assert view.last == (Create(PAIR["some"]),) * 2
        assert answers(view) == []
    with pytest.raises(FailClosed, match="the filter refused a mechanism"):
        audit(PAIR, within(ONE), ONE, seeded(), runs=100)


def test_what_the_adversary_sends_and_when() -> None:
    """Creations, then per tick an update to each and a query to each; every second event the other way round."""
    parts = tuple(PAIR.values())
    adversary = OneEventAdversary.against(parts, 2)
    game = Game(ConcurrentComposition(), filtered(within(2 * ONE)))
    longer = OneEventAdversary.against((Counter(1, ONE, ADD, 2), parts[1]), 2)
    view = game.play(longer, 1, ZeroNoise(), longer.rounds)
    assert view.halted is Side.LEFT
    sent = [m[1] for m in view.messages if isinstance(m, tuple)]
    assert len(sent) == longer.rounds - 1 == 10
    assert [type(m) for m in sent[:2]] == [Create, Create]
    asked = [(m.index, type(m.message)) for m in sent[2:] if isinstance(m, Ask)]
    assert asked == [(0, Update), (1, Update), (0, Query), (1, Query)] * 2
    first, second = adversary.pairs[0]
    assert [row.tolist() for row in first] == [row.tolist() for row in worst_pair(parts[0])]
    assert [row.tolist() for row in second] == [row.tolist() for row in worst_pair(parts[1])[::-1]]
    assert [a.tolist() for a in answers(view)] == [[1], [0, 0, 0], [1], [0, 0, 0]]
    assert np.array_equal(adversary.pairs[1][1][0], np.zeros(3))
