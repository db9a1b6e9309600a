"""Gaussian noise and events at several keys in a program: what they cost, and what refuses them, with all as it was.

Oracles: the budgets' closed forms, and the mechanisms that a pipeline of the same privacy block chooses.
"""

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any

import pytest

from stream_dp import (
    ZCDP,
    ApproxDP,
    Budget,
    BudgetRefused,
    GaussianDP,
    Neighbors,
    NotDerivable,
    PureDP,
    RejectedMessage,
    UsageError,
)
from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.python.standalone.keyed import Keyed
from stream_dp.testing.noise import SeededNoise

MILLIONTH = Fraction(1, 10**6)
KEYS = ("DE", "FR", "PL")


def granted(filter_: str = "zcdp", epsilon: Any = 1, **more: Any) -> Budget:
    """A budget with a delta."""
    return Budget(epsilon=epsilon, delta=MILLIONTH, filter=filter_, **more)  # type: ignore[arg-type]


def test_it_costs_its_rho_alone_at_the_budgets_delta() -> None:
    budget = granted()
    counter = budget.counter(epsilon=1, horizon=100, method="gaussian")
    rho = exact(budget_units(zcdp_budget(ApproxDP(Fraction(1), MILLIONTH))))
    assert counter.guarantee.measure == ZCDP(rho)
    assert (budget.unit, budget.spent) == ("rho", rho)
    assert budget.promise.measure == ApproxDP(Fraction(1), MILLIONTH)
    assert "zCDP" in str(budget.derivation)
    counter.add(7)
    assert counter.release().band > 0


def test_windows_have_it_too_and_their_levels_share_its_rho() -> None:
    budget = granted()
    rate = budget.counter(epsilon=1, horizon=100, method="gaussian", windows=[24, "ever"])
    rho = exact(budget_units(zcdp_budget(ApproxDP(Fraction(1), MILLIONTH))))
    assert rate.guarantee.measure == ZCDP(rho)
    assert budget.spent == rho
    rate.add(7)
    assert list(rate.release().windows) == [1, 24, "ever"]
    with pytest.raises(NotDerivable, match="filter gdp does not add up"):
        granted("gdp", 2).counter(epsilon=1, method="gaussian", windows=[24])


def test_under_a_gdp_filter_it_claims_gdp_and_needs_a_horizon() -> None:
    budget = granted("gdp", 2)
    made = budget.histogram(epsilon=1, keys=KEYS, horizon=10, method="gaussian")
    assert made.guarantee.measure == GaussianDP(gaussian_budget(ApproxDP(Fraction(1), MILLIONTH)))
    before = budget.ledger
    with pytest.raises(BudgetRefused, match="needs finite communication"):
        budget.histogram(epsilon=1, keys=KEYS, method="gaussian")
    assert budget.ledger == before


def test_squares_add_up_and_what_does_not_fit_is_refused(opened: list[SeededNoise]) -> None:
    budget = granted()
    for _ in range(2):
        budget.counter(epsilon="0.68", method="gaussian")
    before, streams = (budget.ledger, budget.spent), len(opened)
    with pytest.raises(BudgetRefused, match="the most that one more pure mechanism may have"):
        budget.counter(epsilon="0.3", method="gaussian")
    assert (budget.ledger, budget.spent) == before
    assert len(opened) == streams


@pytest.mark.parametrize("filter_", ["pure", "basic", "tight_approximate"])
def test_a_filter_without_a_delta_for_it_refuses(filter_: Any, opened: list[SeededNoise]) -> None:
    budget = Budget(epsilon=1, delta=0 if filter_ == "pure" else MILLIONTH, filter=filter_)
    for create in (
        lambda: budget.counter(epsilon="0.1", method="gaussian"),
        lambda: budget.histogram(epsilon="0.1", keys=KEYS, method="gaussian"),
    ):
        with pytest.raises(UsageError, match="needs a budget with a delta under filter zcdp"):
            create()
    assert budget.spent == len(opened) == 0


# --- one event at several keys ------------------------------------------------------------------

LISTS: dict[str, Callable[..., Any]] = {
    "tree": lambda b, **more: b.histogram(epsilon=1, keys=KEYS, method="tree", horizon=9, **more),
    "hss": lambda b, **more: b.histogram(epsilon=1, keys=KEYS, method="hss", **more),
    "maximum": lambda b, **more: b.maximum(epsilon=1, keys=KEYS, **more),
    "alerts": lambda b, **more: b.alerts(epsilon=1, keys=KEYS, threshold=5, **more),
    "windows": lambda b, **more: b.histogram(epsilon=1, keys=KEYS, windows=[3, "ever"], **more),
    "top": lambda b, **more: b.top(epsilon=1, keys=KEYS, k=2, method="tree", **more),
}


@pytest.mark.parametrize("create", LISTS.values(), ids=LISTS)
def test_a_list_counts_once_at_each_key_and_costs_the_same(create: Callable[..., Any]) -> None:
    budget = Budget(epsilon=1)
    made: Keyed[Any] = create(budget, most=2)
    assert made.guarantee.measure == PureDP(Fraction(1))
    assert (made.most, made._charged.mechanism.ones) == (2, 2)  # type: ignore[attr-defined]
    made.add_list(["DE", "FR", "DE"])
    made.add_list([])
    made.add("FR", 3)
    assert made._now.row.tolist() == [1, 4, 0]
    row, budget_before = made._now.row.tolist(), budget.ledger
    for wrong in (KEYS, ["DE", "IT"], "DE", [["DE"]]):
        with pytest.raises(RejectedMessage, match=r"2 of the keys at most|declared|list of texts"):
            made.add_list(wrong)  # type: ignore[arg-type]
    assert (made._now.row.tolist(), budget.ledger) == (row, budget_before)
    assert made.release().tick == 0


def test_noise_grows_with_what_one_event_may_set() -> None:
    """A tree's scale by the number of keys, a Gaussian deviation by its root."""
    wide: dict[str, Any] = {"keys": [str(n) for n in range(9)], "horizon": 50, "epsilon": 1}
    makers: dict[Any, Callable[[], Budget]] = {
        "tree": lambda: Budget(epsilon=1),
        "gaussian": granted,
    }
    for (method, budget), factor in zip(makers.items(), (9, isqrt(9)), strict=True):
        one, all_ = (
            budget().histogram(method=method, most=most, **wide).release().band for most in (1, 9)
        )
        assert all_ == pytest.approx(factor * one, rel=0.1)


def test_an_event_of_one_key_is_no_list_of_two() -> None:
    single = Budget(epsilon=1).histogram(epsilon=1, keys=KEYS, method="tree")
    assert single.most == 1
    with pytest.raises(RejectedMessage, match="counts at 1 of the keys at most"):
        single.add_list(["DE", "FR"])
    assert Budget(epsilon=1).maximum(epsilon=1, keys=KEYS[:2], most=5).most == 2
    with pytest.raises(UsageError, match="most: must be a whole number"):
        Budget(epsilon=1).maximum(epsilon=1, keys=KEYS, most=0)
    assert Neighbors.REPLACE.l0(9, 3) == 6  # what the tree under replace pays for
