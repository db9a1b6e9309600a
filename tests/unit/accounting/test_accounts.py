"""Ledgers over time and sub-ledgers, against a naive account of every tick."""

from fractions import Fraction
from random import Random

import pytest

from stream_dp.accounting.accounts import Accounts
from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.entry import Entry
from stream_dp.accounting.filters.approximate import TightApproximateFilter
from stream_dp.accounting.filters.pure import PureFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.guarantee import PureDP
from stream_dp.errors import BudgetRefused, UnknownMechanism, UsageError

ONE = PureFilter.of(Fraction(1))


def entry(name: str, epsilon: int) -> Entry:
    return Entry(name, epsilon, 0, "a rule")


def naive_load(alive: list[tuple[int, int | None, int]], tick: int) -> int:
    """The sum of what is alive at a tick: (start, end, epsilon)."""
    return sum(e for start, end, e in alive if start <= tick and (end is None or tick < end))


def test_ten_thousand_dashboards_one_after_the_other_fit_one_budget() -> None:
    accounts = Accounts.open(ONE)
    for number in range(10_000):
        accounts.charge(entry(f"dashboard {number}", UNITS), start=number)
        accounts.halt(f"dashboard {number}", number + 1)
    assert accounts.main.peak.amount == UNITS
    assert accounts.main.spent == 0
    assert accounts.main.count == 10_000


def test_no_tick_is_ever_overloaded_and_what_fits_is_admitted() -> None:
    """Random creations and halts: the load of every tick, counted anew, is what the ledger says of the last one."""
    random = Random(7)
    refused = 0
    for _ in range(200):
        accounts, alive, now = Accounts.open(ONE), dict[str, tuple[int, int | None, int]](), 0
        for number in range(30):
            now += random.randint(0, 2)
            running = [n for n, (_, end, _) in alive.items() if end is None]
            if running and random.random() < 0.4:
                name = random.choice(running)
                accounts.halt(name, now)
                start, _, epsilon = alive[name]
                alive[name] = (start, now, epsilon)
                continue
            epsilon = random.randint(1, UNITS)
            fits = naive_load(list(alive.values()), now) + epsilon <= UNITS
            try:
                accounts.charge(entry(f"m{number}", epsilon), start=now)
            except BudgetRefused:
                assert not fits
                refused += 1
            else:
                assert fits
                alive[f"m{number}"] = (now, None, epsilon)
        loads = [naive_load(list(alive.values()), tick) for tick in range(now + 1)]
        assert max(loads) <= min(accounts.main.peak.amount, UNITS)
        assert loads[-1] == accounts.main.spent
    assert refused > 500


def backfilling(ledger: Ledger, first: Entry, second: Entry) -> Ledger:
    """The broken twin: a halt that frees past ticks, so that a second mechanism reads them too."""
    halted = ledger.charge(first, start=0).halt(first, end=10)
    return halted.charge(second, start=0)


def test_a_halt_frees_no_past_tick() -> None:
    whole = entry("whole", UNITS)
    with pytest.raises(BudgetRefused, match="a halt frees no past tick"):
        backfilling(Ledger.under(ONE), whole, entry("again", UNITS))
    with pytest.raises(BudgetRefused, match="a halt frees no past tick"):
        Ledger.under(ONE).charge(whole).halt(whole, 10).charge(entry("again", UNITS), start=9)
    after = Ledger.under(ONE).charge(whole).halt(whole, 10).charge(entry("again", UNITS), start=10)
    assert after.spent == UNITS


def test_under_another_filter_a_halt_frees_nothing() -> None:
    filter_ = TightApproximateFilter.of(Fraction(1), Fraction(1, 10**6), Fraction(0))
    accounts = Accounts.open(filter_)
    accounts.charge(entry("a", UNITS // 10))
    before = accounts.main.used
    accounts.halt("a", 3)
    assert accounts.main.used == before
    assert accounts.main.freed == 0


def test_a_name_is_halted_once_and_charged_while_it_does_not_run() -> None:
    accounts = Accounts.open(ONE)
    accounts.charge(entry("a", UNITS))
    with pytest.raises(UsageError, match="runs already"):
        accounts.charge(entry("a", 1))
    accounts.halt("a", 1)
    with pytest.raises(UnknownMechanism):
        accounts.halt("a", 1)
    assert accounts.main.spent == 0


def test_a_refused_charge_changes_nothing() -> None:
    accounts = Accounts.open(ONE, {"ann": PureFilter.of(Fraction(1, 2))})
    accounts.charge(entry("a", UNITS // 4), "ann")
    before = (dict(accounts.ledgers), dict(accounts.running))
    for analyst, error in (("ann", BudgetRefused), ("", BudgetRefused), ("eve", UsageError)):
        with pytest.raises(error):
            accounts.charge(entry("b", 2 * UNITS // 3), analyst)
        with pytest.raises(error) if analyst == "eve" else pytest.raises(BudgetRefused):
            accounts.charge(entry("b", 2 * UNITS), analyst)
    assert before == (accounts.ledgers, accounts.running)
    assert accounts.preview(entry("b", 2 * UNITS), "ann").largest.epsilon == UNITS // 4
    assert before == (accounts.ledgers, accounts.running)
    accounts.charge(entry("b", UNITS // 4), "ann")


def test_a_sub_ledger_is_paid_for_in_full_before_it_is_used() -> None:
    accounts = Accounts.open(ONE, {"ann": PureFilter.of(Fraction(3, 4))})
    assert accounts.main.left == UNITS // 4
    accounts.charge(entry("a", 3 * UNITS // 4), "ann")
    assert accounts.main.left == UNITS // 4
    with pytest.raises(BudgetRefused):
        Accounts.open(
            ONE, {"ann": PureFilter.of(Fraction(3, 4)), "ben": PureFilter.of(Fraction(1, 2))}
        )


def test_what_all_analysts_can_spend_together_is_in_the_main_promise() -> None:
    """Whatever fits: the load of every ledger's own entries, and of the analysts' promises, stays in the budget."""
    accounts = Accounts.open(
        ONE, {"ann": PureFilter.of(Fraction(1, 3)), "ben": PureFilter.of(Fraction(1, 3))}
    )
    total = 0
    for name in ("ann", "ben", ""):
        largest = accounts.preview(entry("x", 2 * UNITS), name).largest
        accounts.charge(Entry(f"of {name}", largest.epsilon, 0, "a rule"), name)
        total += largest.epsilon
    assert UNITS - 3 <= total <= UNITS
    assert accounts.main.filter.promise == PureDP(Fraction(1))
