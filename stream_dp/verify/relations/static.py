"""Static data sets: the first pair may differ, all later pairs are identical ([HSV] Def 5.12 and its example).

Rules: `relates` says which first messages are neighbours; it must be reflexive (a data set is its own neighbour),
because each side of an accepted pair must be admissible. This file knows no mechanism.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stream_dp.core.relation import Identical, Nothing, Relation, same

DataNeighbors: TypeAlias = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class StaticDataSet:
    """First two data sets that `relates` relates, then identical queries that `queries` accepts as a sequence.

    f_~ of [HSV] 5.3 for an interactive mechanism, and f_(~_i, prop_i) of Def 8.5 with `queries` = prop_i.
    """

    relates: DataNeighbors
    queries: Relation = field(default_factory=Identical)
    begun: bool = False

    @property
    def first_pair_consistent(self) -> bool:
        """True: only the first pair may differ."""
        return True

    def accept(self, left: Any, right: Any) -> "StaticDataSet | None":
        """Return the relation after the next pair of messages; None where it refuses the pair."""
        if not self.begun:
            related = self.relates(left, right)
            return StaticDataSet(self.relates, self.queries, begun=True) if related else None
        after = self.queries.accept(left, right) if same(left, right) else None
        if after is None or after is self.queries:
            return None if after is None else self
        return StaticDataSet(self.relates, after, begun=True)


def single_pair(relates: DataNeighbors) -> StaticDataSet:
    """Return the relation of one pair of related messages and nothing after it, as for non-interactive mechanisms."""
    return StaticDataSet(relates, Nothing())
