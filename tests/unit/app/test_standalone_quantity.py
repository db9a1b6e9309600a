"""A budget's quantity of one's own: right functions run, wrong ones leave budget and randomness as they were."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp import Budget
from stream_dp.app.standalone import blocks
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.errors import BudgetRefused, UsageError
from stream_dp.mechanisms import registered_quantity as registry

KEYS = ["DE", "FR", "IT"]


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for each test."""
    monkeypatch.setattr(registry, "_KNOWN", {})


def median(counts: IntArray) -> int:
    """Right."""
    return int(sorted(counts.tolist())[1])


def test_a_function_of_ones_own_is_released() -> None:
    budget = Budget(epsilon=4)
    one = budget.quantity(epsilon=2, keys=KEYS, function=median, horizon=20)
    one.add("DE", 5_000)
    one.add("FR", 3_000)
    one.add("IT", 1_000)
    release = one.release()
    assert abs(release.value - 3_000) <= 3 * max(release.band, 1)
    assert budget.spent == 2
    assert "evidence, no proof" in str(one.derivation)
    again = budget.quantity(epsilon=1, keys=KEYS, function=median)  # the same function, once more
    assert again.guarantee.measure.epsilon == 1  # type: ignore[union-attr]
    other = budget.quantity(epsilon=1, keys=KEYS[:2], function=lambda counts: int(counts.max()))
    assert other.keys == ("DE", "FR")


CALLS = itertools.count()


def remembers(counts: IntArray) -> int:
    """Broken: a state."""
    return int(counts.max()) + next(CALLS) // 9


@pytest.mark.parametrize(
    ("function", "more", "why"),
    [
        (remembers, {}, "reads a count from outside"),
        (lambda counts: 2 * int(counts.max()), {}, "one event changes it by 2"),
        (lambda counts: int(counts.sum()), {}, "not 1-Lipschitz"),
        (lambda counts: 9 - min(9, int(counts.max())), {}, "not monotone"),
        (median, {"lipschitz": 0}, "lipschitz"),
        ("median", {}, "must be a plain function"),
    ],
)
def test_a_wrong_function_leaves_everything_as_it_was(
    function: Callable[[IntArray], int],
    more: dict[str, Any],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, drawn = Budget(epsilon=4), 0
    budget.counter(epsilon=1)
    before = (budget.spent, budget.left, repr(budget))
    fresh = blocks.new_noise

    def counted() -> Noise:
        nonlocal drawn
        drawn += 1
        return fresh()

    monkeypatch.setattr(blocks, "new_noise", counted)
    with pytest.raises(UsageError, match=why):
        budget.quantity(epsilon=1, keys=KEYS, function=function, **more)
    assert (budget.spent, budget.left, repr(budget)) == before
    assert drawn == 0
    assert registry._KNOWN == {}
    budget.quantity(epsilon=3, keys=KEYS, function=median)  # all that was left is there
    assert drawn > 0


def test_what_does_not_fit_is_refused_after_its_test() -> None:
    budget = Budget(epsilon=1)
    with pytest.raises(BudgetRefused):
        budget.quantity(epsilon=2, keys=KEYS, function=median)
    assert budget.left == 1
