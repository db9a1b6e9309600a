"""A budget in a program: charged exactly, before the first noise, and a refusal changes nothing."""

import copy
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp import (
    ApproxDP,
    Budget,
    BudgetRefused,
    ContinualCounter,
    Derivation,
    FailClosed,
    Guarantee,
    Neighbors,
    NotDerivable,
    PureDP,
    UsageError,
)
from stream_dp.core.mechanism import Noise
from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.continual import Charged
from stream_dp.testing.noise import SeededNoise, ZeroNoise

KEYS = ("DE", "FR", "PL")
CREATE: dict[str, Callable[..., Any]] = {
    "counter": lambda budget, **more: budget.counter(**more),
    "horizon": lambda budget, **more: budget.counter(horizon=100, **more),
    "histogram": lambda budget, **more: budget.histogram(keys=KEYS, **more),
    "hss": lambda budget, **more: budget.histogram(
        keys=KEYS, method="hss", expected_events=9, horizon=50, **more
    ),
    "maximum": lambda budget, **more: budget.maximum(keys=KEYS, expected_events=9, **more),
    "alerts": lambda budget, **more: budget.alerts(keys=KEYS, threshold=5, **more),
    "windows": lambda budget, **more: budget.counter(windows=[24, "ever"], **more),
    "by key over windows": lambda budget, **more: budget.histogram(
        keys=KEYS, windows=[3], horizon=50, **more
    ),
    "sum": lambda budget, **more: budget.sum(clamp=(0, 240), step="0.01", **more),
    "sums": lambda budget, **more: budget.sum(
        clamp=(-5, 240), keys=KEYS, windows=[24, 168], horizon=500, **more
    ),
    "top": lambda budget, **more: budget.top(keys=KEYS, k=2, horizon=50, **more),
}


def everything(budget: Budget) -> tuple[Any, ...]:
    """All that a refusal must leave as it was."""
    return budget.ledger, budget.ledger.entries, budget.spent, budget.left, dict(budget._parts)


@pytest.mark.parametrize("create", CREATE.values(), ids=CREATE)
@pytest.mark.parametrize("amount", [1, "0.1", "1/3", Fraction(1, 7), Decimal("0.25")])
def test_each_statistic_is_charged_what_it_costs(
    create: Callable[..., Any], amount: Any, opened: list[SeededNoise]
) -> None:
    budget = Budget(epsilon=2)
    made = create(budget, epsilon=amount)
    units = -(-Fraction(amount) * 10**12 // 1)
    assert budget.spent == Fraction(units, 10**12)
    assert budget.spent + budget.left == 2
    (entry,) = budget.ledger.entries
    assert (entry.name, entry.epsilon, entry.delta) == (made.name, units, 0)
    assert made.guarantee == Guarantee(PureDP(Fraction(amount)), Neighbors.ADD_REMOVE)
    assert len(opened) == 1


def test_a_name_is_used_once_and_numbers_give_way() -> None:
    budget = Budget(epsilon=1)
    budget.counter(epsilon="0.1", name="counter 2")
    names = [budget.counter(epsilon="0.1").name for _ in range(2)]
    assert names == ["counter 3", "counter 4"]


def test_charges_add_up_and_are_never_given_back() -> None:
    budget = Budget(epsilon="0.3")
    for _ in range(3):
        budget.counter(epsilon="0.1")
    assert (budget.spent, budget.left) == (Fraction(3, 10), Fraction(0))
    with pytest.raises(BudgetRefused):
        budget.counter(epsilon="0.000001")


@pytest.mark.parametrize("create", CREATE.values(), ids=CREATE)
def test_a_refusal_changes_nothing(create: Callable[..., Any], opened: list[SeededNoise]) -> None:
    budget = Budget(epsilon=1)
    first = budget.counter(epsilon="0.7", horizon=10, name="first")
    first.add(3)
    release, before, streams = first.release(), everything(budget), len(opened)
    with pytest.raises(BudgetRefused, match=r"second does not fit: 0.7 of 1 epsilon spent; .* 0.3"):
        create(budget, epsilon="0.4", name="second")
    assert everything(budget) == before
    assert (len(opened), first.last) == (streams, release)
    assert create(budget, epsilon="0.3", name="second").name == "second"
    assert budget.left == 0


BAD: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 0.5}, r'epsilon: 0.5 is a float; .*epsilon="0.5" or epsilon=Fraction\(1, 2\)'),
    ({"epsilon": np.float64(0.5)}, 'epsilon: 0.5 is a float; .*epsilon="0.5"'),
    ({"epsilon": float("nan")}, "epsilon: nan is a float; write an exact number"),
    ({"epsilon": 0}, "epsilon: must be greater than 0"),
    ({"epsilon": -1}, "epsilon: must be greater than 0"),
    ({"epsilon": True}, "epsilon: must be a decimal"),
    ({"epsilon": "a lot"}, "epsilon: must be a decimal"),
    ({"epsilon": "0.0000001"}, "epsilon: must lie between"),
    ({"epsilon": Decimal("nan")}, "epsilon: must be a decimal"),
    ({"confidence": 1}, "confidence: must lie strictly between 0 and 1"),
    ({"confidence": 1 - 1e-12}, "confidence: must be at most"),
    ({"name": ""}, "name: must be a text"),
    ({"name": 3}, "name: must be a text"),
    ({"name": "first"}, "name: .* no mechanism may have it already"),
]


@pytest.mark.parametrize("create", CREATE.values(), ids=CREATE)
@pytest.mark.parametrize(("bad", "said"), BAD, ids=[str(bad) for bad, _ in BAD])
def test_what_is_no_argument_changes_nothing(
    create: Callable[..., Any], bad: dict[str, Any], said: str, opened: list[SeededNoise]
) -> None:
    budget = Budget(epsilon=1)
    budget.counter(epsilon="0.5", name="first")
    before = everything(budget)
    with pytest.raises(UsageError, match=said):
        create(budget, **{"epsilon": "0.1", **bad})
    assert everything(budget) == before
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("create", "said"),
    [
        (lambda b: b.counter(epsilon="0.1", horizon=0), "horizon: must be a whole number"),
        (lambda b: b.counter(epsilon="0.1", horizon=2.0), "horizon: must be a whole number"),
        (lambda b: b.histogram(epsilon="0.1", keys=[]), "keys: 1 to 1000000"),
        (lambda b: b.histogram(epsilon="0.1", keys="DE"), "keys: a list of texts"),
        (lambda b: b.histogram(epsilon="0.1", keys=["a", "a"]), "keys: a key is listed twice"),
        (lambda b: b.histogram(epsilon="0.1", keys=[1, True]), "keys: every key must be a text"),
        (lambda b: b.histogram(epsilon="0.1", keys=["ab"], method="x"), "method: must be"),
        (
            lambda b: b.histogram(epsilon="0.1", keys=["ab"], expected_shape="flat"),
            "expected_shape: must be even, zipf or bursts",
        ),
        (
            lambda b: b.histogram(epsilon="0.1", keys=["a"], expected_events=0),
            "expected_events: must",
        ),
        (
            lambda b: b.maximum(epsilon="0.1", keys=["a"], expected_events=0),
            "expected_events: must",
        ),
        (lambda b: b.alerts(epsilon="0.1", keys=["a"], threshold=0), "threshold: must be a whole"),
        (lambda b: b.alerts(epsilon="0.1", keys=["a"], threshold=10**16), "threshold: must be"),
    ],
)
def test_arguments_of_one_statistic_are_checked_before_the_charge(
    create: Callable[[Budget], Any], said: str, opened: list[SeededNoise]
) -> None:
    budget = Budget(epsilon=1)
    with pytest.raises(UsageError, match=said):
        create(budget)
    assert budget.spent == 0
    assert not budget.ledger.entries
    assert not opened


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": 0.5}, r'write epsilon="0.5"'),
        ({"epsilon": 1, "delta": 1e-9}, r'write delta="1e-09" or delta=Fraction\(1, 1000000000\)'),
        ({"epsilon": 1, "delta": "1e-9"}, "delta: a pure filter has no delta"),
        ({"epsilon": 1, "filter": "zcdp"}, "delta: filter zcdp needs a delta"),
        ({"epsilon": 1, "filter": "best"}, "filter: must be 'pure', 'basic', 'tight_approximate'"),
        ({"epsilon": 1, "filter": "approximate"}, "filter: .*use tight_approximate"),
        ({"epsilon": 1, "order": 3}, "order: filter pure has no order"),
        ({"epsilon": 1, "unit": "user"}, "unit: 'user' is for pipeline files"),
        ({"epsilon": 1, "neighbors": "friends"}, "neighbors: must be"),
    ],
)
def test_a_budget_is_exact_and_has_one_filter(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Budget(**given)


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "epsilon"),
    ({"filter": "gdp", "delta": "1e-9"}, "mu squared"),
    ({"filter": "tight_approximate", "delta": "1e-9"}, "rho"),
    ({"filter": "zcdp", "delta": "1e-9"}, "rho"),
    ({"filter": "renyi", "delta": "1e-9", "order": 30}, "epsilon"),
]


@pytest.mark.parametrize(("given", "unit"), FILTERS, ids=[unit for _, unit in FILTERS])
def test_every_filter_admits_up_to_its_capacity_and_states_the_budget(
    given: dict[str, Any], unit: str
) -> None:
    budget = Budget(epsilon=2, neighbors="replace", **given)
    capacity, most = budget.left, budget.largest_epsilon
    with pytest.raises(BudgetRefused):
        budget.counter(epsilon=most + Fraction(1, 10**12))
    assert (budget.unit, budget.spent, budget.left) == (unit, Fraction(0), capacity)
    budget.counter(epsilon="0.1")
    assert budget.spent > 0
    assert budget.spent + budget.left == capacity
    budget.counter(epsilon=budget.largest_epsilon)
    with pytest.raises(BudgetRefused):
        budget.counter(epsilon=most)
    assert budget.largest_epsilon < Fraction(1, 1000)
    delta = Fraction(given.get("delta", 0))
    promised = ApproxDP(Fraction(2), delta) if delta else PureDP(Fraction(2))
    assert budget.promise == Guarantee(promised, Neighbors.REPLACE)
    assert budget.derivation.guarantee.neighbors is Neighbors.REPLACE
    assert (budget.derivation.guarantee.measure.epsilon, budget.promise.measure.delta) == (2, delta)  # type: ignore[union-attr]


def subjects(derivation: Derivation) -> list[str]:
    """All nodes by name."""
    return [derivation.subject, *(s for p in derivation.premises for s in subjects(p))]


def test_the_derivation_has_every_mechanism_and_prints() -> None:
    budget = Budget(epsilon=1)
    with pytest.raises(NotDerivable):
        _ = budget.derivation
    counter = budget.counter(epsilon="0.25", horizon=10)
    budget.alerts(epsilon="0.5", keys=["a"], threshold=3, name="loud")
    tree = budget.derivation
    assert [part.subject for part in tree.premises] == ["counter 1", "loud"]
    assert tree.premises[0] == counter.derivation
    assert "[HSV] Thm 12.4" in tree.source
    lines = str(tree).splitlines()
    assert lines[0].startswith("all that this budget ever pays for: DP epsilon 1, delta 0, ")
    assert sum(line.startswith("  loud: DP epsilon 0.5, delta 0") for line in lines) == 1
    assert len([line for line in lines if "holds:" not in line]) == len(subjects(tree))


def test_no_tick_is_free_of_what_was_released_before() -> None:
    """Without a common clock epsilons of all mechanisms add up, whatever their ticks."""
    budget = Budget(epsilon=1)
    for _ in range(2):
        budget.counter(epsilon="0.5", horizon=1).release()
    assert budget.left == 0
    assert "parallel composition over ticks" not in str(budget.derivation)


class Late(Budget):
    """A broken twin: it charges once the mechanism is there, which then has drawn."""

    def counter(self, **given: Any) -> ContinualCounter:
        """Create, then charge."""
        setting = self._setting(1, None, "0.95")
        alone = blocks.choose_counter(setting, Fraction(given["epsilon"]), "tree")
        derivation = blocks.derivation_of(alone.mechanism, "late")
        made = ContinualCounter(Charged("late", alone, derivation, 0.95, None, ()))
        self._paid("counter", "late", setting, lambda _: alone)
        return made


def spent_at_first_draw(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> Fraction:
    """What the budget had spent when the first noise was asked for."""
    seen: list[Fraction] = []

    def watching() -> Noise:
        seen.append(budget.spent)
        return ZeroNoise()

    monkeypatch.setattr(blocks, "new_noise", watching)
    budget.counter(epsilon="0.5")
    return seen[0]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "Counter"),
        ({"method": "tree", "horizon": None}, "HybridCounter"),
        ({"method": "tree", "expected_events": 9}, "Counter"),
        ({"method": "hss"}, "PerBinHSS"),
        ({"method": "hss", "expected_events": 9}, "PerBinHSS"),
        ({"method": "hss", "expected_shape": "bursts"}, "PerBinHSS"),
        ({"expected_events": 10}, "HSS"),
        ({"expected_events": 1000}, "PerBinHSS"),
        ({"expected_events": 10**12}, "Counter"),
        ({"expected_events": 4000, "expected_shape": "bursts"}, "HSS"),
        ({"expected_events": 400, "expected_shape": "even"}, "PerBinHSS"),
    ],
)
def test_a_histogram_is_made_by_the_method_or_the_smaller_error(
    given: dict[str, Any], kind: str
) -> None:
    histogram = Budget(epsilon=1).histogram(epsilon=1, keys=KEYS, **{"horizon": 10**4, **given})
    assert type(histogram._charged.mechanism).__name__ == kind


def test_the_charge_comes_before_the_first_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent_at_first_draw(Budget(epsilon=1), monkeypatch) == Fraction(1, 2)
    assert spent_at_first_draw(Late(epsilon=1), monkeypatch) == 0


def test_noise_that_fails_leaves_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_randomness() -> Noise:
        raise OSError("no randomness")

    monkeypatch.setattr(blocks, "new_noise", no_randomness)
    budget = Budget(epsilon=1)
    with pytest.raises(OSError, match="no randomness"):
        budget.counter(epsilon="0.5")
    assert budget.spent == Fraction(1, 2)


def test_threads_do_not_spend_the_same_budget() -> None:
    budget = Budget(epsilon=1)

    def one(_: int) -> bool:
        try:
            budget.counter(epsilon="0.1", horizon=5)
        except BudgetRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(40))) == 10
    assert budget.left == 0
    assert len(budget.ledger.entries) == 10


def test_there_is_one_of_it(another_process: Callable[[], None]) -> None:
    budget = Budget(epsilon=1)
    for double in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(FailClosed, match="neither copied nor pickled"):
            double(budget)
    another_process()
    with pytest.raises(FailClosed, match="forked process"):
        budget.counter(epsilon="0.1")
    assert budget.spent == 0


def test_its_text_says_what_is_public() -> None:
    budget = Budget(epsilon=1, filter="zcdp", delta="1e-6")
    budget.counter(epsilon="0.1")
    assert re.fullmatch(r"<Budget \(zcdp\): 0.00\d+ of 0.0\d+ rho spent>", repr(budget))
