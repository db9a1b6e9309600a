"""Suitable sequences of messages to a composition ([HSV] Def 4.5), also of compositions inside it.

Rules: the verification function of a mechanism's creation query judges the messages to that mechanism. It may be
that of a composition; the messages are then Ask(i, Ask(j, m)). Indices count creations from 0. Persistent vectors
hold the created mechanisms, because a game may go back to an earlier message. This file knows no budget.
"""

from dataclasses import dataclass
from typing import Any

from pyrsistent import PVector, pvector

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.relation import Relation, same
from stream_dp.verify.relations.creation import Truth, claim_of, own, takes


@dataclass(frozen=True, slots=True)
class LiveMechanism:
    """A mechanism, and its verification function after the pairs it has received."""

    mechanism: Any
    relation: Relation


@dataclass(frozen=True, slots=True)
class Suitable:
    """Conditions (i) to (v) of [HSV] Def 4.5; `created` holds None for a halted mechanism.

    (i) identical creation queries, or two queries with one index; (ii) of a mechanism that exists (and has not been
    halted); (iii) both in its query space; (iv) its claim is true; (v) f-valid for its own verification function. A
    pair of equal halts ends a mechanism.
    """

    truth: Truth = own
    created: PVector[LiveMechanism | None] = pvector()  # noqa: RUF009  an immutable value

    @property
    def first_pair_consistent(self) -> bool:
        """False: the first pair is a creation."""
        return False

    def accept(self, left: Any, right: Any) -> "Suitable | None":
        """Return the relation after the next pair of messages; None where it refuses the pair."""
        match left, right:
            case Ask(), Ask() if same(left.index, right.index):
                return self._ask(left.index, left.message, right.message)
            case Create(), Create() if same(left, right):
                return self._create(left)
            case Halt(), Halt() if same(left, right) and self._live(left.index):
                return Suitable(self.truth, self.created.set(left.index, None))
            case _:
                return None

    def _create(self, query: Create) -> "Suitable | None":
        claim = claim_of(query)
        if claim is None or not self.truth(query):
            return None
        child = LiveMechanism(query.mechanism, claim.relation)
        return Suitable(self.truth, self.created.append(child))

    def _ask(self, index: int, left: Any, right: Any) -> "Suitable | None":
        child = self._live(index)
        if child is None or not takes(child.mechanism, left):
            return None
        if right is not left and not takes(child.mechanism, right):
            return None
        after = child.relation.accept(left, right)
        if after is None or after is child.relation:
            return None if after is None else self
        moved = LiveMechanism(child.mechanism, after)
        return Suitable(self.truth, self.created.set(index, moved))

    def _live(self, index: Any) -> LiveMechanism | None:
        exists = type(index) is int and 0 <= index < len(self.created)
        return self.created[index] if exists else None
