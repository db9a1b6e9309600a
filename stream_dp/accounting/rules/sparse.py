"""Shared code of the k-sparse parallel rules: which parts may be touched, and at what price ([HSV] Def 5.1).

[HSV] fix the k parameters before; here they are the k worst of all that may be created, and each part, when it is
first touched, takes the smallest free parameter that covers it. RR_e follows from RR_e' for e' >= e, and the order
of the requests does not matter: a smaller parameter never covers a part that a larger one does not.
"""

from fractions import Fraction

from stream_dp.accounting.rules.rule import Premises, all_finite
from stream_dp.accounting.situations import Parallel
from stream_dp.core.derivation import Condition


def sparse(premises: Premises, situation: Parallel) -> Condition:
    """Check that k >= 1, that k is for the parts' relation, and that every kind has a number of creations."""
    touched = situation.touched
    name = f"{touched.k}-sparse"
    relations = {p.guarantee.neighbors for p in premises}
    if touched.k < 1:
        return Condition(name, False, f"k must be at least 1 ({touched.why})")
    if len(situation.creations) != len(premises):
        return Condition(
            name,
            False,
            f"{len(premises)} kind(s), but {len(situation.creations)} creation count(s)",
        )
    if any(n is not None and n < 1 for n in situation.creations):
        return Condition(name, False, "a kind is created less than once")
    if relations != {touched.neighbors}:
        found = ", ".join(sorted(map(str, relations)))
        return Condition(
            name, False, f"counted for {touched.neighbors}, but the parts protect under {found}"
        )
    if any(p.guarantee.unit for p in premises):
        return Condition(
            name, False, "counted for one event, but the parts protect groups or users"
        )
    return Condition(name, True, touched.why)


def counted_finite(premises: Premises, situation: Parallel) -> bool:
    """Say whether communication is finite: each part's is, and so is the number of parts of each kind."""
    return all_finite(premises, situation) and None not in situation.creations


def worst(amounts: list[Fraction], situation: Parallel) -> list[Fraction]:
    """Return the k largest amounts of all that may be created; in order, they dominate any k touched ones."""
    pairs = zip(amounts, situation.counts, strict=True)
    every = sorted((amount for amount, n in pairs for _ in range(n)), reverse=True)
    return every[: situation.touched.k]


def first_pair_consistent(situation: Parallel, broken_by: str) -> Condition:
    """Check that a part's first pair decides whether its pairs differ at all ([HSV] Def 5.12)."""
    why = situation.first_pair
    return Condition(
        "first-pair consistent",
        bool(why),
        why or f"the parts take updates that may differ later on, and {broken_by} breaks the rule",
    )
