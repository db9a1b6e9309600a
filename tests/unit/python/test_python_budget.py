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

import stream_dp as sdp
from stream_dp import (
    ZCDP,
    ApproxDP,
    Budget,
    BudgetRefused,
    Derivation,
    FailClosed,
    GaussianDP,
    Guarantee,
    Neighbors,
    NotDerivable,
    PureDP,
    UsageError,
)
from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.core.mechanism import Noise
from stream_dp.core.neighbors import Users
from stream_dp.python import series
from stream_dp.python.series import ContinualSeries, Prepared
from stream_dp.testing.noise import SeededNoise, ZeroNoise

KEYS = ("DE", "FR", "PL")
AMOUNT = {"amount": {"type": "number"}}
MILLIONTH = Fraction(1, 10**6)
MEAN = {"of": "amount", "clamp": (0, 240)}
CREATE: dict[str, Callable[..., Any]] = {
    "series": lambda b, **more: b.series(sdp.Mean(**MEAN), schema=AMOUNT, **more),
    "counter": lambda b, **more: b.counter(**more),
    "histogram": lambda b, **more: b.histogram(keys=KEYS, windows=[3], horizon=50, **more),
    "sum": lambda b, **more: b.sum(clamp=(0, 240), step="0.01", windows=[24, "ever"], **more),
    "sums": lambda b, **more: b.sum(clamp=(-5, 240), keys=KEYS, **more),
    "top": lambda b, **more: b.top(keys=KEYS, k=2, horizon=50, **more),
    "maximum": lambda b, **more: b.maximum(keys=KEYS, expected_events=9, **more),
    "alerts": lambda b, **more: b.alerts(keys=KEYS, threshold=5, **more),
}
every = pytest.mark.parametrize("create", CREATE.values(), ids=CREATE)


def everything(budget: Budget) -> tuple[Any, ...]:
    return budget.ledger, budget.ledger.entries, dict(budget._derivations), set(budget._names)


def granted(filter_: Any = "zcdp", epsilon: Any = 1, **more: Any) -> Budget:
    return Budget(epsilon=epsilon, delta=MILLIONTH, filter=filter_, **more)


@every
@pytest.mark.parametrize("amount", ["1/3", Decimal("0.25")])
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


def test_charges_add_up_and_are_never_given_back() -> None:
    budget = Budget(epsilon="0.3")
    for _ in range(3):
        budget.counter(epsilon="0.1", horizon=1).release()
    assert (budget.spent, budget.left) == (Fraction(3, 10), Fraction(0))
    assert "parallel composition over ticks" not in str(budget.derivation)
    with pytest.raises(BudgetRefused):
        budget.counter(epsilon="0.000001")


@every
def test_a_refusal_changes_nothing(create: Callable[..., Any], opened: list[SeededNoise]) -> None:
    budget = Budget(epsilon=1)
    first = budget.counter(epsilon="0.7", horizon=10, name="first")
    first.add(3)
    release, before, streams = first.release(), everything(budget), len(opened)
    with pytest.raises(BudgetRefused, match=r"second does not fit: 0.7 of 1 epsilon spent. .* 0.3"):
        create(budget, epsilon="0.4", name="second")
    assert everything(budget) == before
    assert (len(opened), first.last) == (streams, release)
    assert create(budget, epsilon="0.3", name="second").name == "second"
    assert budget.left == 0


BAD: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 0.5}, r'epsilon: 0.5 is a float, .*write "0.5" or Fraction\(1, 2\)'),
    ({"epsilon": np.float64(0.5)}, "epsilon: 0.5 is a float"),
    ({"epsilon": float("nan")}, "epsilon: nan is a float, .*write an exact number"),
    ({"epsilon": 0}, "epsilon: must be greater than 0"),
    ({"epsilon": True}, "epsilon: must be a decimal"),
    ({"epsilon": "0.0000001"}, "epsilon: must lie between"),
    ({"confidence": 1}, "confidence: must lie strictly between 0 and 1"),
    ({"name": 3}, "name: must be text"),
    (
        {"name": "first", "epsilon": 0.5},
        r"(?s)(?=.*name: a series 'first' is already there)(?=.*epsilon: 0.5 is a float)",
    ),
]


@every
def test_what_is_no_argument_changes_nothing(
    create: Callable[..., Any], opened: list[SeededNoise]
) -> None:
    budget = Budget(epsilon=1)
    budget.counter(epsilon="0.5", name="first")
    before = everything(budget)
    for bad, said in BAD:
        with pytest.raises(UsageError, match=said):
            create(budget, **{"epsilon": "0.1", **bad})
    assert everything(budget) == before
    assert len(opened) == 1


WRONG: list[tuple[Callable[[Budget], Any], str]] = [
    (lambda b: b.histogram(epsilon=1, keys=[]), "keys: must be 1 to 1000000"),
    (lambda b: b.histogram(epsilon=1, keys="DE"), "keys: must be a list of texts"),
    (lambda b: b.histogram(epsilon=1, keys=[1, True]), "keys: every key must be a text"),  # type: ignore[list-item]
    (lambda b: b.histogram(epsilon=1, keys=["ab"], method="x"), "method: must be"),  # type: ignore[arg-type]
    (lambda b: b.histogram(epsilon=1, keys=["a"], expected_shape="x"), "expected_shape: must be even"),  # type: ignore[arg-type]
    (lambda b: b.histogram(epsilon=1, keys=KEYS, windows=[3], method="hss"), "leave method out"),
    (lambda b: b.alerts(epsilon=1, keys=["a"], threshold=0), "threshold: must"),
    (lambda b: b.top(epsilon=1, keys=KEYS, k=4), "k: .*3"),
    (lambda b: b.counter(epsilon=1, horizon=20, windows=[30]), "30 ticks are more than the horizon of 20"),
    (lambda b: b.counter(epsilon=1, windows=3), "a list of numbers of ticks"),  # type: ignore[arg-type]
    (lambda b: b.counter(epsilon=1, windows=[True, 2.0]), "a list of numbers of ticks"),  # type: ignore[list-item]
    (lambda b: b.counter(epsilon=1, windows=[3, "ever", 3]), "windows"),
    (lambda b: b.sum(epsilon=1, clamp=(0, 2.5)), r'clamp\[1\]: 2.5 is a float, .*"2.5" or Fraction\(5, 2\)'),  # type: ignore[arg-type]
    (lambda b: b.sum(epsilon=1, clamp=("0.5", 10)), r"clamp.*'0.5' must be a multiple of the step 1"),
    (lambda b: b.sum(epsilon=1, clamp=(0, 10), step="1/3"), "step: must be a decimal from 0.000001"),
    (lambda b: b.series(sdp.Mean(of="amont", clamp=(0, 9)), epsilon=1, schema=AMOUNT), "did you mean amount"),
    (lambda b: b.series(sdp.Count(wnidows=["1h"]), epsilon=1), "did you mean windows"),
    (lambda b: b.series(sdp.Ratio(of="a", over="b")), "(?s)of: .*'a'.*over: .*'b'"),
]  # fmt: skip


@pytest.mark.parametrize(("create", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_a_statistic_does_not_take_is_refused_at_no_cost(
    create: Callable[[Budget], Any], said: str, opened: list[SeededNoise]
) -> None:
    budget = Budget(epsilon=1)
    with pytest.raises(UsageError, match=said):
        create(budget)
    assert budget.spent == len(budget.ledger.entries) == len(opened) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": 0.5, "filter": "best"}, "(?s)0.5 is a float.*filter: must be pure"),
        ({"epsilon": 1, "delta": 1e-9}, r'write "1e-09" or Fraction\(1, 1000000000\)'),
        ({"epsilon": 1, "filter": "zcdp"}, "delta: filter zcdp needs a delta"),
        ({"epsilon": 1, "neighbors": "friends"}, "neighbors: must be"),
        ({"epsilon": 1, "tick": "1x"}, "tick: must be a whole number with a unit"),
        ({"epsilon": 1, "schema": {"a": {"type": "numbr"}}}, "schema.a.type: .*did you mean number"),
        ({"epsilon": 1, "unit": "user", "user": "who", "overall": 2}, "user: 'who' is not in the schema"),
    ],
)  # fmt: skip
def test_a_budget_is_exact_and_has_one_filter(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Budget(**given)


def test_what_is_no_parameter_is_a_type_error() -> None:
    budget = Budget(epsilon=1)
    for wrong in (
        lambda: Budget(epsilon=1, analysts=[]),  # type: ignore[call-arg]
        lambda: budget.counter(epsilon=1, most=2),  # type: ignore[call-arg]
        lambda: budget.histogram(epsilon=1, keys=KEYS, where=[]),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="unexpected"):
            wrong()
    assert budget.spent == 0


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "epsilon"),
    ({"filter": "gdp", "delta": "1e-9"}, "mu squared"),
    ({"filter": "tight_approximate", "delta": "1e-9"}, "rho"),
    ({"filter": "zcdp", "delta": "1e-9"}, "rho"),
    ({"filter": "renyi", "delta": "1e-9", "order": 30}, "epsilon"),
]


@pytest.mark.parametrize(("given", "unit"), FILTERS, ids=[unit for _, unit in FILTERS])
def test_a_filter_admits_up_to_its_capacity(given: dict[str, Any], unit: str) -> None:
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
    return [derivation.subject, *(s for p in derivation.premises for s in subjects(p))]


def test_the_derivation_has_every_series_and_prints() -> None:
    budget = Budget(epsilon=1)
    with pytest.raises(NotDerivable):
        _ = budget.derivation
    counter = budget.counter(epsilon="0.25", horizon=10)
    budget.alerts(epsilon="0.5", keys=["a"], threshold=3, name="loud")
    tree = budget.derivation
    assert [part.subject for part in tree.premises] == ["count-1", "loud"]
    assert tree.premises[0] == counter.derivation
    assert "[HSV] Thm 12.4" in tree.source
    lines = str(tree).splitlines()
    assert lines[0].startswith("all that this budget ever pays for: DP epsilon 1, delta 0, ")
    assert sum(line.startswith("  loud: DP epsilon 0.5, delta 0") for line in lines) == 1
    assert len([line for line in lines if "holds:" not in line]) == len(subjects(tree))


class Late(Budget):
    """A broken twin: it charges once the series is there, which then has drawn."""

    def counter(self, **given: Any) -> Any:
        request = self._request(sdp.Count(), given["epsilon"], {}, {})
        ledger = self._ledger
        prepared = self._paid(Prepared.of(request, request.checked()))
        paid, self._ledger = self._ledger, ledger
        made = ContinualSeries(prepared)
        self._ledger = paid
        return made


def spent_at_first_draw(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> Fraction:
    """What the budget had spent when the first noise was asked for."""
    seen: list[Fraction] = []

    def watching() -> Noise:
        seen.append(budget.spent)
        return ZeroNoise()

    monkeypatch.setattr(series, "new_noise", watching)
    budget.counter(epsilon="0.5")
    return seen[0]


def test_the_charge_comes_before_the_first_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent_at_first_draw(Budget(epsilon=1), monkeypatch) == Fraction(1, 2)
    assert spent_at_first_draw(Late(epsilon=1), monkeypatch) == 0


def test_noise_that_fails_leaves_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_randomness() -> Noise:
        raise OSError("no randomness")

    monkeypatch.setattr(series, "new_noise", no_randomness)
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
        with pytest.raises(FailClosed, match="cannot be copied or pickled"):
            double(budget)
    another_process()
    with pytest.raises(FailClosed, match="forked process"):
        budget.counter(epsilon="0.1")
    assert budget.spent == 0


def test_its_text_says_what_is_public() -> None:
    budget = Budget(epsilon=1, filter="zcdp", delta="1e-6")
    budget.counter(epsilon="0.1")
    assert re.fullmatch(r"<Budget \(zcdp\): 0.00\d+ of 0.0\d+ rho spent>", repr(budget))


@pytest.mark.parametrize("windows", [(), (24, "ever")])
def test_gaussian_noise_costs_its_rho_alone(windows: Any) -> None:
    budget = granted()
    counter = budget.counter(epsilon=1, horizon=100, method="gaussian", windows=windows)
    rho = exact(budget_units(zcdp_budget(ApproxDP(Fraction(1), MILLIONTH))))
    assert counter.guarantee.measure == ZCDP(rho)
    assert (budget.unit, budget.spent) == ("rho", rho)
    assert budget.promise.measure == ApproxDP(Fraction(1), MILLIONTH)
    assert "zCDP" in str(budget.derivation)


def test_under_a_gdp_filter_it_claims_gdp_and_needs_a_horizon() -> None:
    budget = granted("gdp", 2)
    made = budget.histogram(epsilon=1, keys=KEYS, horizon=10, method="gaussian")
    assert made.guarantee.measure == GaussianDP(gaussian_budget(ApproxDP(Fraction(1), MILLIONTH)))
    before = budget.ledger
    with pytest.raises(BudgetRefused, match="needs finite communication"):
        budget.histogram(epsilon=1, keys=KEYS, method="gaussian")
    assert budget.ledger == before


def test_who_is_protected_is_the_budgets_to_say() -> None:
    who = {"who": {"type": "text"}}
    budget = Budget(epsilon=1, unit="user", user="who", max_events=3, per="4s", schema=who)
    made = budget.series(sdp.Count(), epsilon="0.5")
    assert made.guarantee == Guarantee(
        PureDP(Fraction(1, 2)), Neighbors.ADD_REMOVE, users=Users(3, 4)
    )
    assert budget.promise.users == budget.derivation.guarantee.users == made.guarantee.users
    made.update({"who": "anna"} for _ in range(5))
    made.release()
    assert made._lane._guard.memories[0]._pending == {}  # what a tick took is not remembered twice
    with pytest.raises(UsageError, match="use `series`"):
        budget.counter(epsilon="0.1")


def test_caps_by_key_are_the_budgets_too() -> None:
    fields: dict[str, Any] = {
        "who": {"type": "text"},
        "shop": {"type": "text", "nullable": True},
    }
    budget = Budget(
        epsilon=1, unit="user", user="who", overall=9, key="shop", per_key=1, keys=2, schema=fields
    )
    assert budget._protection.users == Users(2)
    made = budget.series(sdp.Count(), epsilon=1)
    made.update({"who": "anna", "shop": shop} for shop in ("a", "a", "b", None))
    made.release()
    assert [len(memory._table) for memory in made._lane._guard.memories] == [1, 2, 1]
    with pytest.raises(UsageError, match="per_key and keys need a field"):
        Budget(epsilon=1, unit="user", user="who", overall=9, keys=2, schema=fields)


def test_windows_of_users_pay_for_one_series() -> None:
    """Another series counts its ticks from its own beginning: its windows lie across those of the first."""
    who = {"who": {"type": "text"}}
    budget = Budget(epsilon=1, unit="user", user="who", max_events=2, per="2s", schema=who)
    budget.series(sdp.Count(), epsilon="0.25")
    with pytest.raises(UsageError, match="per: a budget with windows can hold only one series"):
        budget.series(sdp.Count(), epsilon="0.25")
    assert budget.spent == Fraction(1, 4)
    whole = Budget(epsilon=1, unit="user", user="who", overall=2, schema=who)
    for _ in range(2):
        whole.series(sdp.Count(), epsilon="0.25")
    assert whole.spent == Fraction(1, 2)


def test_no_request_is_made_in_the_midst_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler would: the outer charge would replace the inner one."""
    budget, after = Budget(epsilon=1), Budget._after
    refused = list[FailClosed]()

    def interrupted(asked: Budget, derivation: Any) -> Any:
        ledger = after(asked, derivation)
        if not refused:
            with pytest.raises(FailClosed, match="during another request") as caught:
                asked.counter(epsilon="0.5", name="inner")
            refused.append(caught.value)
        return ledger

    monkeypatch.setattr(Budget, "_after", interrupted)
    budget.counter(epsilon="0.4", name="outer")
    assert [entry.name for entry in budget.ledger.entries] == ["outer"]
    budget.counter(epsilon="0.5", name="inner")
    assert budget.spent == Fraction(9, 10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda b: b.counter(0.1), 'counter: .* as in counter(epsilon="0.1"); missing: epsilon'),
        (lambda b: b.histogram(KEYS, epsilon="0.1"), "histogram: .* missing: keys"),
        (lambda b: b.top(epsilon="0.1", keys=KEYS), "top: .* k=10); missing: k"),
        (
            lambda b: b.sum("0.1", clamp=(0, 2)),
            'sum: .* as in sum(epsilon="0.1"); missing: epsilon',
        ),
        (lambda b: b.series(sdp.Count(), "0.1"), 'as in series(statistic, epsilon="0.1")$'),
    ],
)
def test_a_call_without_names_says_how_it_is_made(
    call: Callable[[Budget], Any], words: str
) -> None:
    budget = Budget(1)
    with pytest.raises(UsageError, match=words.replace("(", r"\(").replace(")", r"\)")):
        call(budget)
    assert budget.spent == 0


def test_notebooks_show_what_was_spent_and_released() -> None:
    budget = Budget(1)
    by_key = budget.series(
        sdp.Histogram(by="c"), epsilon="0.1", schema={"c": {"type": "category", "domain": ["<b>"]}}
    )
    assert "0 ticks released" in by_key._repr_html_()
    by_key.release()
    assert "<td>&lt;b&gt;</td>" in by_key._repr_html_()
    html = budget._repr_html_()
    assert "<td>histogram-1</td><td>0.1</td>" in html
    assert "One more series may cost epsilon 0.9." in html


SPENDERS: dict[str, Any] = {
    "unit": "user", "user": "customer", "overall": 5,
    "schema": {
        "customer": {"type": "text"}, "amount": {"type": "number"}, "pieces": {"type": "integer"},
    },
}  # fmt: skip
SPENT: dict[str, Any] = {"of": "amount", "clamp": (0, 240)}
SOLD: dict[str, Any] = {"of": "pieces", "clamp": (0, 9)}


def test_what_shares_a_total_adds_up_here_and_bounds_what_a_user_adds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each series of a program has a guard of its own, and perhaps other events: all prices add up."""
    totals = [{**SPENT, "at_most": 300}, {**SOLD, "at_most": 20}]
    budget = sdp.Budget(epsilon=100, totals=totals, **SPENDERS)
    kinds = [sdp.Sum(**SPENT, shared_total=True), sdp.Mean(**SPENT, shared_total=True)]
    kinds += [sdp.Sum(**SOLD, shared_total=True), sdp.Count()]
    monkeypatch.setattr(series, "new_noise", ZeroNoise)
    made = [budget.series(kind, epsilon=25, horizon=1) for kind in kinds]
    assert budget.spent == 100
    assert not budget.left
    whole, mean, sold, counted = made
    for each in made:
        each.update({"customer": "me", "amount": 240, "pieces": 9} for _ in range(9))
        each.update({"customer": "you", "amount": 10, "pieces": 1} for _ in range(2))
    assert (whole.release().value, sold.release().value, counted.release().value) == (320, 22, 7)
    assert mean.release().value == 86.67  # of me one record fits: (240 + 20) / 3
    currencies = [[part.currency for part in e.each] for e in budget.ledger.entries]
    assert currencies == [
        ["total of amount"],
        ["total of amount", ""],
        ["total of pieces"],
        [""],
    ]
    with pytest.raises(BudgetRefused, match="does not fit"):
        budget.series(sdp.Mean(**SPENT, shared_total=True), epsilon="0.1")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"total": {**SPENT, "at_most": 2_000}}, "total.at_most: is never reached"),
        ({"total": {**SPENT, "at_most": 2.5}}, "total.at_most: 2.5 is a float"),
        ({"totals": [{**SPENT, "at_most": 300}]}, "totals: has one total"),
        ({"totals": [{**SPENT, "at_most": 300}] * 2}, r"totals\[1\].of: amount has a total already"),
        ({"total": {"of": "amonut", "clamp": (0, 9), "at_most": 9}}, "did you mean amount"),
    ],
)  # fmt: skip
def test_totals_are_checked_as_in_a_file(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        sdp.Budget(epsilon=1, **SPENDERS, **wrong)


def test_a_total_is_of_users() -> None:
    with pytest.raises(UsageError, match="total: belongs to unit user"):
        sdp.Budget(epsilon=1, total={**SPENT, "at_most": 300}, schema=SPENDERS["schema"])
    people = sdp.Budget(epsilon=1, **SPENDERS)
    with pytest.raises(UsageError, match="shared_total: privacy has no total"):
        people.series(sdp.Mean(**SPENT, shared_total=True), epsilon=1)
