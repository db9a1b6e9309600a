"""Messages in two forms, the package's and the oracle's, and the comparison of a relation with a predicate."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from oracles.relations import Pairs, Plain

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.relation import Relation

Symbol: TypeAlias = tuple[Any, Plain]
Pair: TypeAlias = tuple[Symbol, Symbol]


def row(*entries: int) -> Symbol:
    return np.array(entries, dtype=np.int64), entries


def update(*entries: int) -> Symbol:
    return Update(row(*entries)[0]), ("update", entries)


def query(threshold: int | None = None) -> Symbol:
    return Query(threshold), ("query", threshold)


def create(name: str, message: Create) -> Symbol:
    return message, ("create", name)


def ask(index: int, message: Symbol) -> Symbol:
    return Ask(index, message[0]), ("ask", index, message[1])


def halt(index: int) -> Symbol:
    return Halt(index), ("halt", index)


JUNK: Symbol = ("junk", ("junk",))


def twice(*symbols: Symbol) -> list[Pair]:
    """Pairs of identical messages, made twice so that nothing is found equal by identity alone."""
    return [(symbol, (deepcopy(symbol[0]), symbol[1])) for symbol in symbols]


@dataclass
class Search:
    """What an exhaustive comparison found."""

    disagreement: list[tuple[Plain, Plain]] | None = None
    accepted: int = 0
    refused: int = 0
    inadmissible: list[tuple[Plain, Plain]] = field(default_factory=list)


def compare(
    relation: Relation,
    predicate: Callable[[Pairs], bool],
    alphabet: Sequence[Pair],
    depth: int,
    *,
    sides: bool = True,
) -> Search:
    """Compare on every sequence over the alphabet, up to its first pair that both refuse; stop where they disagree.

    With `sides`, both sides of every accepted pair must pass the relation on the diagonal.
    """
    result = Search()
    stack: list[tuple[Any, Any, Any, list[tuple[Plain, Plain]]]] = [(relation,) * 3 + ([],)]
    while stack:
        now, first, second, pairs = stack.pop()
        for left, right in alphabet:
            longer = [*pairs, (left[1], right[1])]
            after = now.accept(left[0], right[0])
            if (after is not None) != predicate(longer):
                result.disagreement = longer
                return result
            if after is None:
                result.refused += 1
                continue
            result.accepted += 1
            one = first.accept(left[0], left[0]) if sides else None
            two = second.accept(right[0], right[0]) if sides else None
            if sides and (one is None or two is None):
                result.inadmissible = longer
                return result
            if len(longer) < depth:
                stack.append((after, one, two, longer))
    return result
