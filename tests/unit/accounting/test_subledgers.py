"""Ledgers over time and sub-ledgers, against a naive sum for every tick."""

from fractions import Fraction
from random import Random

import pytest

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.filters.filter import Entry
from stream_dp.accounting.filters.linear import PureFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.core.guarantee import PureDP
from stream_dp.errors import BudgetRefused, UnknownMechanism, UsageError

ONE = PureFilter.of(Fraction(1))


def entry(name: str, epsilon: int) -> Entry:
    return Entry(name, epsilon, 0, "a rule")


def naive_load(alive: list[tuple[int, int | None, int]], tick: int) -> int:
    """The sum of what is alive at a tick: (start, end, epsilon)."""
    return sum(e for start, end, e in alive if start <= tick and (end is None or tick < end))


def test_ten_thousand_dashboards_one_after_the_other_fit_one_budget() -> None:
    subledgers = Subledgers.open(ONE)
    for number in range(10_000):
        subledgers.charge(entry(f"dashboard {number}", UNITS), start=number)
        subledgers.halt(f"dashboard {number}", number + 1)
    assert subledgers.main.peak.amount == UNITS
    assert subledgers.main.spent == 0
    assert subledgers.main.count == 10_000


def test_no_tick_is_ever_overloaded_and_what_fits_is_admitted() -> None:
    """Random creations and halts: the load of every tick, counted anew, is what the ledger says of the last one."""
    random = Random(7)
    refused = 0
    for _ in range(200):
        subledgers, alive, now = Subledgers.open(ONE), dict[str, tuple[int, int | None, int]](), 0
        for number in range(30):
            now += random.randint(0, 2)
            running = [n for n, (_, end, _) in alive.items() if end is None]
            if running and random.random() < 0.4:
                name = random.choice(running)
                subledgers.halt(name, now)
                start, _, epsilon = alive[name]
                alive[name] = (start, now, epsilon)
                continue
            epsilon = random.randint(1, UNITS)
            fits = naive_load(list(alive.values()), now) + epsilon <= UNITS
            try:
                subledgers.charge(entry(f"m{number}", epsilon), start=now)
            except BudgetRefused:
                assert not fits
                refused += 1
            else:
                assert fits
                alive[f"m{number}"] = (now, None, epsilon)
        loads = [naive_load(list(alive.values()), tick) for tick in range(now + 1)]
        assert max(loads) <= min(subledgers.main.peak.amount, UNITS)
        assert loads[-1] == subledgers.main.spent
    assert refused > 500


def backfilling(ledger: Ledger, first: Entry, second: Entry) -> Ledger:
    """The broken twin: a halt that frees past ticks, so that a second mechanism reads them too."""
    halted = ledger.charge(first, start=0).halt(first, end=10)
    return halted.charge(second, start=0)


def test_a_halt_frees_no_past_tick() -> None:
    whole = entry("whole", UNITS)
    with pytest.raises(BudgetRefused, match="freed the privacy loss only from tick"):
        backfilling(Ledger.under(ONE), whole, entry("again", UNITS))
    with pytest.raises(BudgetRefused, match="freed the privacy loss only from tick"):
        Ledger.under(ONE).charge(whole).halt(whole, 10).charge(entry("again", UNITS), start=9)
    after = Ledger.under(ONE).charge(whole).halt(whole, 10).charge(entry("again", UNITS), start=10)
    assert after.spent == UNITS


def test_halts_in_any_order_free_no_past_tick() -> None:
    """The later end counts: at tick 7 the first mechanism still ran, and with it the whole would be one and a half."""
    first, second = entry("first", UNITS // 2), entry("second", UNITS // 2)
    ledger = Ledger.under(ONE).charge(first).charge(second).halt(first, 10).halt(second, 5)
    with pytest.raises(BudgetRefused, match="only from tick 10 on"):
        ledger.charge(entry("whole", UNITS), start=7)
    assert ledger.charge(entry("whole", UNITS), start=10).spent == UNITS


def test_a_name_is_halted_once_and_charged_while_it_does_not_run() -> None:
    subledgers = Subledgers.open(ONE)
    subledgers.charge(entry("a", UNITS))
    with pytest.raises(UsageError, match="runs already"):
        subledgers.charge(entry("a", 1))
    subledgers.halt("a", 1)
    with pytest.raises(UnknownMechanism):
        subledgers.halt("a", 1)
    assert subledgers.main.spent == 0


def test_a_refused_charge_changes_nothing() -> None:
    subledgers = Subledgers.open(ONE, {"ann": PureFilter.of(Fraction(1, 2))})
    subledgers.charge(entry("a", UNITS // 4), "ann")
    before = (dict(subledgers.ledgers), dict(subledgers.running))
    for analyst, error in (("ann", BudgetRefused), ("", BudgetRefused), ("eve", UsageError)):
        with pytest.raises(error):
            subledgers.charge(entry("b", 2 * UNITS // 3), analyst)
        with pytest.raises(error) if analyst == "eve" else pytest.raises(BudgetRefused):
            subledgers.charge(entry("b", 2 * UNITS), analyst)
    assert before == (subledgers.ledgers, subledgers.running)
    assert subledgers.preview(entry("b", 2 * UNITS), "ann").largest.epsilon == UNITS // 4
    assert before == (subledgers.ledgers, subledgers.running)
    subledgers.charge(entry("b", UNITS // 4), "ann")


def test_a_sub_ledger_is_paid_for_in_full_before_it_is_used() -> None:
    subledgers = Subledgers.open(ONE, {"ann": PureFilter.of(Fraction(3, 4))})
    assert subledgers.main.left == UNITS // 4
    subledgers.charge(entry("a", 3 * UNITS // 4), "ann")
    assert subledgers.main.left == UNITS // 4
    with pytest.raises(BudgetRefused):
        Subledgers.open(
            ONE, {"ann": PureFilter.of(Fraction(3, 4)), "ben": PureFilter.of(Fraction(1, 2))}
        )


def test_what_all_analysts_can_spend_together_is_in_the_main_promise() -> None:
    """Whatever fits: the load of every ledger's own entries, and of the analysts' promises, stays in the budget."""
    subledgers = Subledgers.open(
        ONE, {"ann": PureFilter.of(Fraction(1, 3)), "ben": PureFilter.of(Fraction(1, 3))}
    )
    total = 0
    for name in ("ann", "ben", ""):
        largest = subledgers.preview(entry("x", 2 * UNITS), name).largest
        subledgers.charge(Entry(f"of {name}", largest.epsilon, 0, "a rule"), name)
        total += largest.epsilon
    assert UNITS - 3 <= total <= UNITS
    assert subledgers.main.filter.promise == PureDP(Fraction(1))
