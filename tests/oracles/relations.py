"""The verification functions of [HSV] as predicates on whole sequences of pairs, written from the definitions' text.

Nothing here is incremental and nothing comes from the package: messages are nested tuples, `("update", row)`,
`("query", threshold)`, `("create", name)`, `("ask", index, message)`, `("halt", index)`, or any hashable value for data
sets. Indices count from 0. What the paper knows of a creation query is looked up in a table of `Facts`.
"""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any, TypeAlias

Plain: TypeAlias = Any
Pairs: TypeAlias = Sequence[tuple[Plain, Plain]]
Predicate: TypeAlias = Callable[[Pairs], bool]
Row: TypeAlias = tuple[int, ...]


# --- rows and streams


def identical(pairs: Pairs) -> bool:
    """All pairs are of identical messages."""
    return all(a == b for a, b in pairs)


@cache
def fewest_events(gap: Row, relation: str) -> int:
    """The least number of changed events that gives this difference of two rows of one tick, by breadth-first search.

    An event is a unit vector or, as filtered content, the zero row; add_remove adds or removes one, replace puts one
    in the place of another.
    """
    zero = (0,) * len(gap)
    units = [tuple(int(i == j) for j in range(len(gap))) for i in range(len(gap))]
    contents = [zero, *units]
    if relation == "add_remove":
        moves = [u for unit in units for u in (unit, tuple(-x for x in unit))]
    else:
        moves = [
            tuple(x - y for x, y in zip(a, b, strict=True))
            for a, b in itertools.permutations(contents, 2)
        ]
    reached, edge, steps = {zero}, {zero}, 0
    while gap not in reached:
        steps += 1
        edge = {tuple(x + y for x, y in zip(g, m, strict=True)) for g in edge for m in moves}
        reached |= edge
    return steps


def user(
    pairs: Pairs, relation: str, k: int, window: int | None, windows: int | None, most: int = 1000
) -> bool:
    """Two streams of rows of counts in which at most k events differ in a window, and in at most so many windows."""
    if not all(_counts(a, 0, most) and _counts(b, 0, most) and len(a) == len(b) for a, b in pairs):
        return False
    spent: dict[int, int] = {}
    for tick, (a, b) in enumerate(pairs):
        gap = tuple(x - y for x, y in zip(a, b, strict=True))
        if any(gap):
            place = 0 if window is None else tick // window
            spent[place] = spent.get(place, 0) + fewest_events(gap, relation)
    return all(n <= k for n in spent.values()) and (windows is None or len(spent) <= windows)


def moved(pairs: Pairs, k: int, most: int = 1000) -> bool:
    """Two streams of rows of counts in which at most k events differ, in content or tick or both.

    By breadth-first search of k steps over the whole stream, laid end to end: a content is one place of it, or none.
    """
    if not all(_counts(a, 0, most) and _counts(b, 0, most) and len(a) == len(b) for a, b in pairs):
        return False
    gap = tuple(x - y for a, b in pairs for x, y in zip(a, b, strict=True) if x != y)
    return len(gap) <= 2 * k and gap in _within(len(gap), k)


@cache
def _within(places: int, steps: int) -> frozenset[Row]:
    """All differences that so many replacements of one content by another can make."""
    zero = (0,) * places
    units = [tuple(int(i == j) for j in range(places)) for i in range(places)]
    moves = list(itertools.permutations([zero, *units], 2))
    reached = {zero}
    for _ in range(steps):
        reached |= {
            tuple(g + x - y for g, x, y in zip(gap, a, b, strict=True))
            for gap in reached
            for a, b in moves
        }
    return frozenset(reached)


def _counts(row: Plain, lowest: int, highest: int) -> bool:
    return isinstance(row, tuple) and all(lowest <= x <= highest for x in row)


def stream(pairs: Pairs, rows: Predicate) -> bool:
    """Updates and queries: identical queries, and rows that `rows` accepts."""
    kinds = all(a[0] == b[0] and a[0] in ("update", "query") for a, b in pairs)
    if not kinds or any(a != b for a, b in pairs if a[0] == "query"):
        return False
    return rows([(a[1], b[1]) for a, b in pairs if a[0] == "update"])


def static(
    pairs: Pairs, relates: Callable[[Plain, Plain], bool], queries: Predicate = identical
) -> bool:
    """5.3 and Def 8.5: the first message is a neighbouring pair, all later ones are identical, `queries` holds."""
    return not pairs or (relates(*pairs[0]) and identical(pairs[1:]) and queries(pairs[1:]))


# --- compositions


@dataclass(frozen=True)
class Facts:
    """What is known of a creation query: parameters, verification function, query space, and whether it is true."""

    epsilon: Fraction
    delta: Fraction
    valid: Predicate
    space: Callable[[Plain], bool]
    true: bool = True
    first_pair_consistent: bool = False
    alpha: Fraction | None = None
    finite: bool = False
    randomized_response: bool = False


Table: TypeAlias = Mapping[str, Facts]


def created(pairs: Pairs) -> list[str]:
    """The names in the creation-query pairs, in order."""
    return [a[1] for a, b in pairs if a[0] == b[0] == "create"]


def touched(pairs: Pairs) -> set[int]:
    """J: the indices j of messages ((q_0, j), (q_1, j)) with q_0 != q_1."""
    return {a[1] for a, b in pairs if a[0] == b[0] == "ask" and a[2] != b[2]}


def suitable(pairs: Pairs, table: Table) -> bool:
    """Def 4.5, and: a pair of equal halts, of a mechanism that exists, after which it gets no message."""
    return (
        all(_formed(a, b) for a, b in pairs)
        and all(_exists(pairs, j) for j in range(len(pairs)))
        and all(table[name].true for name in created(pairs))
        and all(_own_queries(pairs, i, table[name]) for i, name in enumerate(created(pairs)))
    )


def _formed(a: Plain, b: Plain) -> bool:
    """(i), and the form of a halt."""
    if a[0] != b[0] or a[0] not in ("create", "ask", "halt"):
        return False
    return bool(a == b if a[0] != "ask" else a[1] == b[1])


def _exists(pairs: Pairs, j: int) -> bool:
    """(ii): enough creation-query pairs before the j-th message; and no halt of the same mechanism."""
    kind, index = pairs[j][0][:2]
    if kind == "create":
        return True
    before = pairs[:j]
    halted = any(a[0] == "halt" and a[1] == index for a, _ in before)
    return 0 <= index < len(created(before)) and not halted


def _own_queries(pairs: Pairs, index: int, facts: Facts) -> bool:
    """(iii) and (v) for one mechanism."""
    own = [(a[2], b[2]) for a, b in pairs if a[0] == "ask" and a[1] == index]
    return all(facts.space(q) for pair in own for q in pair) and facts.valid(own)


def sub_multiset(items: Sequence[Hashable], of: Sequence[Hashable]) -> bool:
    """Whether every item occurs in `of` at least as often."""
    return all(list(items).count(item) <= list(of).count(item) for item in items)


def fixed_mechanisms(pairs: Pairs, table: Table, alphas: Sequence[str]) -> bool:
    """Def 4.9: suitable, the first k messages create alpha_1..alpha_k; then only queries (and halts)."""
    first = [(("create", name), ("create", name)) for name in alphas]
    k = min(len(pairs), len(first))
    return suitable(pairs, table) and list(pairs[:k]) == first[:k] and not created(pairs[k:])


def approximate(facts: Facts) -> Hashable:
    """(epsilon, delta)."""
    return facts.epsilon, facts.delta


def fixed_parameters(
    pairs: Pairs, table: Table, allowed: Sequence[Hashable], of: Callable[[Facts], Hashable]
) -> bool:
    return suitable(pairs, table) and sub_multiset(
        [of(table[name]) for name in created(pairs)], allowed
    )


def k_sparse(
    pairs: Pairs, table: Table, allowed: Sequence[Hashable], of: Callable[[Facts], Hashable]
) -> bool:
    """Def 5.1: the parameters of the mechanisms in J are a sub-multiset."""
    if not suitable(pairs, table):
        return False
    names = created(pairs)
    return sub_multiset([of(table[names[j]]) for j in touched(pairs)], allowed)


def within_delta(pairs: Pairs, table: Table, budget: Fraction) -> bool:
    """1 - prod(1 - delta_j) <= budget, over all created mechanisms."""
    return 1 - prod((1 - table[name].delta for name in created(pairs)), start=Fraction(1)) <= budget


def k_sparse_with_delta_budget(
    pairs: Pairs, table: Table, epsilons: Sequence[Fraction], budget: Fraction
) -> bool:
    """Def 5.3."""
    return k_sparse(pairs, table, epsilons, lambda f: f.epsilon) and within_delta(
        pairs, table, budget
    )


def randomized_response_only(pairs: Pairs, table: Table, budget: Fraction) -> bool:
    """Def 5.8."""
    rr = all(table[name].randomized_response and not table[name].epsilon for name in created(pairs))
    return suitable(pairs, table) and rr and within_delta(pairs, table, budget)


def k_sparse_first_pair(
    pairs: Pairs, table: Table, allowed: Sequence[Hashable], of: Callable[[Facts], Hashable]
) -> bool:
    """Def 5.13, over 5.1."""
    fpc = all(table[name].first_pair_consistent for name in created(pairs))
    return fpc and k_sparse(pairs, table, allowed, of)


def filtered(
    pairs: Pairs, table: Table, admits: Callable[[Sequence[Any]], bool], of: Callable[[Facts], Any]
) -> bool:
    """Def 12.2: the filter admits the sequence of the parameters of all creations."""
    return suitable(pairs, table) and admits([of(table[name]) for name in created(pairs)])


def of_order(pairs: Pairs, table: Table, alpha: Fraction) -> bool:
    """Section 13: every created mechanism is (alpha, .)-RDP."""
    return all(table[name].alpha == alpha for name in created(pairs))


def finite(pairs: Pairs, table: Table) -> bool:
    """Section 14: every created mechanism has finite communication."""
    return all(table[name].finite for name in created(pairs))


def local_protocol(
    pairs: Pairs,
    table: Table,
    users: Sequence[str],
    related: Callable[[tuple[Plain, ...], tuple[Plain, ...]], bool],
    domain: Sequence[Plain],
    auxiliary: Sequence[str] = (),
) -> bool:
    """Def 8.5: suitable, and a prefix of: creations; data sets x_i, x'_i with x ~ x'; identical queries.

    Whether what is there is such a prefix is found by trying all ways to complete the data sets over `domain`.
    """
    if not suitable(pairs, table):
        return False
    names, n = [*users, *auxiliary], len(users)
    first = [(("create", name), ("create", name)) for name in names]
    if list(pairs[: len(first)]) != first[: len(pairs)]:
        return False
    given, later = pairs[len(first) : len(first) + n], pairs[len(first) + n :]
    if any(a[0] != "ask" or a[1] != i for i, (a, _) in enumerate(given)):
        return False
    if any(a[0] != "ask" or a != b for a, b in later):
        return False
    x, y = tuple(a[2] for a, _ in given), tuple(b[2] for _, b in given)
    rest = list(itertools.product(domain, repeat=n - len(given)))
    return any(related(x + p, y + q) for p in rest for q in rest)
