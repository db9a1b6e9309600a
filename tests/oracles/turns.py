"""What an adversary of one event may send to a mechanism that is asked after each update: an oracle's list of moves."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.relation import Relation
from stream_dp.mechanisms.serving import ServingMechanism
from stream_dp.verify.exact.enumeration import Enumerated, Plain
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

BASE = Fraction(1, 64)


@dataclass(frozen=True)
class Turns:
    """Update, query, update, query, ...: rows from `rows`, once a pair from `moved`, queries at `levels`."""

    rows: tuple[Plain, ...]
    moved: tuple[tuple[Plain, Plain], ...]
    levels: tuple[Plain, ...] = (None,)
    query: bool = False

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Turns"]]:
        """The pairs allowed next."""
        after = replace(self, query=not self.query)
        if self.query:
            yield from (((level, level), after) for level in self.levels)
        else:
            yield from (((row, row), after) for row in self.rows)
            yield from ((pair, replace(after, moved=())) for pair in self.moved)


@dataclass(frozen=True)
class Accepted:
    """Update, query, update, query, ...: the pairs of rows that the product's `relation` accepts, query None."""

    pairs: tuple[tuple[Plain, Plain], ...]
    relation: Relation
    query: bool = False

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Accepted"]]:
        if self.query:
            yield (None, None), replace(self, query=False)
            return
        for left, right in self.pairs:
            after = self.relation.accept(np.array(left), np.array(right))
            if after is not None:
                yield (left, right), replace(self, relation=after, query=True)


def lost(mechanism: ServingMechanism[Any], pairs: Accepted, units: int, radius: int) -> Bracket:
    """The bracket of delta at a claim of `units` of epsilon, -ln(BASE) each, over two ticks."""
    return delta_bracket(Enumerated(mechanism, BASE, radius), pairs, BASE**-units, 4)
