"""The better of two filters is not a filter: an exact counterexample from two of ours with one promise.

Both promise (epsilon, 1/20)-DP, e^epsilon = (3/2)^8. A keeps 98% of delta for the mechanisms' own; B keeps all of it
for the theorem. Whoever may use the one that admits composes randomized responses with odds 3/2. Where the answers
agree, there is much to win and B lets it go on; where they do not, A lets it reveal the secret with probability
.98/20. Exact, in fractions, against every adaptive adversary: 1.05 times what is promised.

(Pure DP is no part of it: what the pure filter admits adds nothing to delta at its epsilon, so its union with B is as
good as B. It takes two filters that fail in different places.)
"""

import dataclasses
from fractions import Fraction
from functools import cache

import pytest
from oracles.filtered import Counts, Filtered, SecretBit, below_log, least_epsilon

from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.filters.squares import TightApproximateFilter
from stream_dp.accounting.ledger import Entry, Ledger
from stream_dp.core.guarantee import ApproxDP, Measure, PureDP
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.randomized_response import RandomizedResponse

DELTA, OWN = Fraction(1, 20), Fraction(49, 1000)
ODDS = Fraction(3, 2)
RATIO = ODDS**8
A = TightApproximateFilter.of(below_log(RATIO), DELTA - OWN, OWN)
B = TightApproximateFilter.of(below_log(RATIO), DELTA, Fraction(0))
C = PureFilter.of(below_log(RATIO))
MEASURES: tuple[Measure, ...] = (PureDP(least_epsilon(ODDS)), ApproxDP(Fraction(0), OWN))
RESPONSES = (RandomizedResponse(ODDS), RandomizedResponse(Fraction(1), OWN))


def admits(filter_: Filter, counts: Counts) -> bool:
    """Whether a ledger under this filter takes so many of each."""
    ledger = Ledger.under(filter_)
    for measure, number in zip(MEASURES, counts, strict=True):
        for _ in range(number):
            try:
                ledger = ledger.charge(ledger.ask("m", measure, "r"))
            except BudgetRefused:
                return False
    return True


def best_adversary(*filters: Filter) -> Fraction:
    """The exact delta of whatever any of these filters admits."""

    @cache
    def rule(counts: Counts) -> bool:
        return any(admits(filter_, counts) for filter_ in filters)

    return exact_delta(Filtered(RESPONSES, rule), SecretBit(2), RATIO, 12)


def test_each_filter_keeps_its_promise_and_the_better_of_the_two_does_not() -> None:
    assert A.promise == B.promise == ApproxDP(below_log(RATIO), DELTA)
    alone = best_adversary(A), best_adversary(B)
    assert max(alone) <= DELTA
    assert min(alone) > DELTA / 5  # neither is idle
    assert best_adversary(A, B) > DELTA * Fraction(105, 100)
    assert best_adversary(B, C) == best_adversary(B)


def test_ours_has_one_filter_and_keeps_it() -> None:
    with pytest.raises(NotDerivable, match="one filter"):
        Ledger.under(A, B)
    ledger = Ledger.under(B).charge(Entry("m", 10**11, 0, "r"))
    with pytest.raises(BudgetRefused, match="the better of two filters is not a filter"):
        dataclasses.replace(ledger, loads=dataclasses.replace(ledger.loads, filter=A))
    assert (ledger.filter, ledger.count) == (B, 1)
