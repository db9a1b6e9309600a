"""All rules of `accounting.derive`, each with its instances or with the reason why there is none.

Rules: entries are found by the rule's name, so a changed rule is judged on the same instances; a rule without an
entry is listed as not certified, never left out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from stream_dp.accounting.derive import RULES
from stream_dp.accounting.rules.best_fixed import optimal
from stream_dp.accounting.rules.composite import composite
from stream_dp.accounting.rules.filtered import filtered
from stream_dp.accounting.rules.first_arrivals import first_arrivals
from stream_dp.accounting.rules.first_pair import first_pair, first_pair_renyi, first_pair_zcdp
from stream_dp.accounting.rules.fixed import concurrent
from stream_dp.accounting.rules.gaussian import gaussian, gaussian_first_pair
from stream_dp.accounting.rules.group import group
from stream_dp.accounting.rules.local import local
from stream_dp.accounting.rules.moved import moved
from stream_dp.accounting.rules.of_users import of_users
from stream_dp.accounting.rules.renyi import renyi, truncated, zcdp
from stream_dp.accounting.rules.sparse_delta import sparse_delta
from stream_dp.accounting.rules.sparse_pure import sparse_pure
from stream_dp.accounting.rules.ticks import ticks
from stream_dp.core.guarantee import Measure
from stream_dp.verify.exact_checks import (
    alive,
    arrived,
    composites,
    filters,
    fixed_parts,
    grouped,
    parallel,
    protocols,
)
from stream_dp.verify.exact_checks.instance import Instance
from stream_dp.verify.exact_checks.verdict import Comparison, Verdict, compare

Instances = Callable[[], tuple[Instance, ...]]

INSTANCES: Mapping[str, Instances] = {
    concurrent.name: fixed_parts.summed,
    optimal.name: fixed_parts.best,
    zcdp.name: fixed_parts.summed_zcdp,
    renyi.name: fixed_parts.summed_renyi,
    gaussian.name: fixed_parts.summed_gaussian,
    truncated.name: fixed_parts.summed_truncated,
    sparse_pure.name: lambda: (*parallel.touched_pure(), protocols.coordinates()),
    sparse_delta.name: parallel.touched_deltas,
    first_pair.name: parallel.first_pair,
    first_pair_zcdp.name: parallel.first_pair_concentrated,
    first_pair_renyi.name: parallel.first_pair_renyi,
    gaussian_first_pair.name: parallel.first_pair_gaussian,
    composite.name: composites.hss,
    local.name: protocols.local,
    filtered.name: filters.admitted,
    group.name: grouped.events,
    moved.name: alive.moved_events,
    of_users.name: grouped.users,
    first_arrivals.name: arrived.arrived,
    ticks.name: alive.ticks,
}

NO_INSTANCE = "no instance that is small enough has been written"
GAPS: Mapping[str, str] = {
    "zCDP and GDP as a whole": (
        "zCDP is compared at the orders 2, 3 and 5 (tCDP: those below omega), GDP at four epsilons: no oracle here "
        "covers all of them at once"
    ),
    "zCDP, RDP or GDP to (epsilon, delta)": (
        "a statement on numbers with no adversary in it; the tests of the accounting compare it with other computations"
    ),
    "proven mechanisms": (
        "the leaves of a derivation, no composition: stream-dp audit PIPELINE.yaml attacks those of a pipeline"
    ),
}


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One instance of a rule with its derived amount and the comparison; or `why` there is no instance."""

    rule: str
    source: str
    words: str = ""
    booked: Measure | None = None
    compared: Comparison | None = None
    why: str = ""

    @property
    def violated(self) -> bool:
        """Whether the exact worst case is above the amount that the rule derives."""
        return self.compared is not None and self.compared.verdict is Verdict.VIOLATED


def findings() -> Iterator[RuleFinding]:
    """Yield every rule of `RULES` on its instances, one after the other; then the rules without instances.

    Raises:
        NotDerivable: a rule refuses its own instance.
    """
    for rules in RULES.values():
        for rule in rules:
            found = INSTANCES.get(rule.name)
            if found is None:
                yield RuleFinding(rule.name, rule.source, why=NO_INSTANCE)
                continue
            for instance in found():
                booked = rule(instance.premises, instance.situation).guarantee.measure
                compared = compare(booked, instance)
                yield RuleFinding(rule.name, rule.source, instance.words, booked, compared)
    yield from (RuleFinding(name, "", why=why) for name, why in GAPS.items())
