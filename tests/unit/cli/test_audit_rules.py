"""`stream-dp audit --rules`: all rules and counterexamples on the terminal and as JSON; broken rules are exit 4."""

import dataclasses
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting import ledger, loads
from stream_dp.accounting.derive import RULES
from stream_dp.accounting.filters.filter import Spend
from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import ZCDPFilter
from stream_dp.accounting.optimal import least_epsilon
from stream_dp.accounting.rules.fixed import concurrent, filtered
from stream_dp.accounting.rules.groups import group, moved
from stream_dp.accounting.rules.parallel import sparse_delta
from stream_dp.accounting.rules.rule import Rule, dp, epsilon_of
from stream_dp.accounting.rules.time import ticks
from stream_dp.accounting.situations import Filtered
from stream_dp.core.guarantee import ApproxDP, Measure, PureDP
from stream_dp.operate.audit import rules_table as command
from stream_dp.verify.counterexamples import books
from stream_dp.verify.exact_checks import compositions, live, table
from stream_dp.verify.exact_checks.table import RuleFinding
from stream_dp.verify.untrue_entries import untrue_entries

Twin = Callable[[Any, Any], Measure]


def only(monkeypatch: pytest.MonkeyPatch, rule: Rule[Any], measure: Twin | None = None) -> None:
    """Leave one rule, with another measure, and no counterexample."""
    for name in ("books", "untrue_entries"):
        monkeypatch.setattr(command, name, lambda: ())
    for kind, rules in RULES.items():
        mine = tuple(one for one in rules if one.name == rule.name)
        if measure is not None:
            mine = tuple(dataclasses.replace(one, measure=measure) for one in mine)
        monkeypatch.setitem(RULES, kind, mine)


def test_the_whole_table_is_printed_and_parsed(
    say: Any, monkeypatch: pytest.MonkeyPatch, certified: tuple[RuleFinding, ...]
) -> None:
    monkeypatch.setattr(command, "findings", lambda: certified)
    said = say("audit", "--rules", "--json")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert found["violated"] is False
    assert {rule.name for kind in RULES.values() for rule in kind} <= {
        one["rule"] for one in found["rules"]
    }
    for one in found["rules"]:
        if one["certified"]:
            compared = one["compared"]
            assert one["instance"]
            assert compared["verdict"] in ("equal", "within", "within the cut")
            assert compared["exact"] <= compared["booked"] * (1 + 1e-9) + 1e-5
        else:
            assert one["why"]
    assert [one["source"] for one in found["counterexamples"][:4]] == [
        "[HSV] Thm 5.2", "[HSV] Thm 13.5", "[WRRW] App. F", "Kairouz, Oh, Viswanath",
    ]  # fmt: skip
    assert [one["books"] for one in found["counterexamples"][4:]] == [
        entry.title for entry in untrue_entries()
    ]
    assert all(one["exact"] > one["promised"] and one["ours"] for one in found["counterexamples"])


def test_the_table_fits_a_hundred_columns(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, untrue = books(), untrue_entries()
    only(monkeypatch, concurrent)
    monkeypatch.setattr(command, "books", lambda: kept)
    monkeypatch.setattr(command, "untrue_entries", lambda: untrue)
    monkeypatch.setenv("COLUMNS", "100")
    said = say("audit", "--rules")
    assert said.code == 0
    assert "under a minute" in said.err
    assert max(map(len, said.out.splitlines())) <= 100
    for text in (
        "concurrent composition, [HSV] Thm 4.10", "RR(ln 3), RR(ln 2) at once", "epsilon 1.7918", "equal",
        "Rules that are not checked here", "Wrong bookings, and the adversary that exceeds each",
        "the booking promises", "Thm 13.5 shows",
        "boxes that overlap, booked as disjoint", "freed the privacy loss only from tick",
    ):  # fmt: skip
        assert text in " ".join(said.out.split())


def max_delta(premises: Any, _: Any) -> Measure:
    """The touched part's delta, once."""
    (part,) = (p.guarantee.measure for p in premises)
    return ApproxDP(part.epsilon, part.delta)


def responses(premises: Any, situation: Any) -> Measure:
    """k events booked as k randomized responses, by Kairouz, Oh and Viswanath."""
    measure, delta = premises[0].guarantee.measure, Fraction(1, 20)
    if not isinstance(measure, PureDP):
        return group.measure(premises, situation)
    each = epsilon_of(measure)
    return ApproxDP(least_epsilon([each] * situation.size, delta), delta)


def half(premises: Any, situation: Any) -> Measure:
    return dp(epsilon_of(concurrent.measure(premises, situation)) / 2, Fraction(1, 20))


def last_load(premises: Any, situation: Any) -> Measure:
    """A halt frees past ticks: what is alive in the end."""
    living = [
        epsilon_of(p.guarantee.measure)
        for p, alive in zip(premises, situation.alive, strict=True)
        if alive.last is None
    ]
    return PureDP(sum(living, Fraction(0)))


def one_tick(premises: Any, _: Any) -> Measure:
    """An event that moves charged like one that does not."""
    measure: Measure = premises[0].guarantee.measure
    return measure


@pytest.mark.parametrize(
    ("rule", "twin"),
    [
        (sparse_delta, max_delta),
        (group, responses),
        (concurrent, half),
        (ticks, last_load),
        (moved, one_tick),
    ],
    ids=["max delta", "k RR for k events", "half", "a halt frees the past", "one tick of two"],
)
def test_a_broken_rule_is_exit_four(
    say: Any, monkeypatch: pytest.MonkeyPatch, rule: Rule[Any], twin: Twin
) -> None:
    only(monkeypatch, rule, twin)
    said = say("audit", "--rules")
    assert said.code == 4
    assert "VIOLATED" in said.out
    assert (
        f"exceeds the guarantee that the ledger charges by the rule {rule.name} ({rule.source})"
        in said.err
    )


@pytest.mark.parametrize("kind", [PureFilter, RenyiFilter, ZCDPFilter])
def test_too_weak_a_filter_is_exit_four(
    say: Any, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """At 7/10 of the cost the ledger takes one part too many; there must be room to show it.

    Only this filter's instance is played: the others do not see what it costs. Whoever breaks it at 7/10 breaks it at
    less, for less takes whatever 7/10 takes.
    """
    cost = kind.cost
    monkeypatch.setattr(kind, "cost", lambda self, entry: Spend(cost(self, entry).amount * 7 // 10))
    only(monkeypatch, filtered)
    mine = [
        one
        for one in compositions.admitted()
        if isinstance(one.situation, Filtered) and type(one.situation.filter) is kind
    ]
    assert len(mine) == 1
    monkeypatch.setattr(table, "INSTANCES", {filtered.name: lambda: tuple(mine)})
    said = say("audit", "--rules")
    assert said.code == 4
    assert f"exceeds the guarantee that the ledger charges by the rule {filtered.name}" in said.err


def test_a_ledger_that_frees_too_much_is_exit_four(
    say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A halt frees what is not fresh."""
    for module in (loads, ledger):
        monkeypatch.setattr(module, "local_part", lambda filter_, entry, _: filter_.cost(entry))
    only(monkeypatch, filtered)
    monkeypatch.setattr(table, "INSTANCES", {filtered.name: live.halts})
    said = say("audit", "--rules")
    assert said.code == 4
    assert said.out.count("VIOLATED") == 3  # two instances and the legend
    assert f"exceeds the guarantee that the ledger charges by the rule {filtered.name}" in said.err


@pytest.mark.parametrize("arguments", [(), ("--json",), ("pipeline.yaml", "--rules")])
def test_a_pipeline_or_the_rules(say: Any, arguments: tuple[str, ...]) -> None:
    said = say("audit", *arguments)
    assert said.code == 2
    assert "PIPELINE.yaml" in said.err
    assert "--rules" in said.err
