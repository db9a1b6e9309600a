"""Relations between streams: static data sets, and one stream for all of an engine's mechanisms.

This file knows no mechanism and no engine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from pyrsistent import PVector, pvector

from stream_dp.core.composition import Ask, Create
from stream_dp.core.mechanism import Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.relation import All, Identical, Nothing, Relation, same
from stream_dp.verify.relations.creation import Truth, law_of, own
from stream_dp.verify.relations.pair_conditions import PairCondition, Suitable

DataNeighbors: TypeAlias = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class StaticDataSet:
    """First two data sets that `relates` relates, then identical queries that `queries` accepts ([HSV] Def 5.12).

    f_~ of [HSV] 5.3 for an interactive mechanism, and f_(~_i, prop_i) of Def 8.5 with `queries` = prop_i. `relates`
    must be reflexive, because each side of an accepted pair must be admissible.
    """

    first_pair_consistent: ClassVar[bool] = True
    relates: DataNeighbors
    queries: Relation = field(default_factory=Identical)
    begun: bool = False

    def accept(self, left: Any, right: Any) -> "StaticDataSet | None":
        if not self.begun:
            related = self.relates(left, right)
            return StaticDataSet(self.relates, self.queries, begun=True) if related else None
        after = self.queries.accept(left, right) if same(left, right) else None
        if after is None or after is self.queries:
            return None if after is None else self
        return StaticDataSet(self.relates, after, begun=True)


def single_pair(relates: DataNeighbors) -> StaticDataSet:
    """Return the relation for non-interactive mechanisms: one pair of related messages, and no message after it."""
    return StaticDataSet(relates, Nothing())


@dataclass(frozen=True, slots=True)
class OneStream(PairCondition):
    """Updates differ in at most `most` ticks, the same for all mechanisms, in one public window of `window` ticks.

    All series of an engine receive the same ticks: every mechanism gets one update per tick from its creation on, so
    one event changes the rows of one tick in all of them. `Suitable` judges each mechanism's own pairs beside this.
    `wandering`: mechanisms whose rows count identifiers at their first tick. Their rows may differ at other ticks
    too, where an identifier comes back; their own relation decides where. `next_tick[i]` is the tick of mechanism i's
    next update, `begun` the number of ticks that at least one mechanism has received.
    """

    most: int = 1
    begun: int = 0
    next_tick: PVector[int] = pvector()  # noqa: RUF009  an immutable value
    differing: frozenset[int] = frozenset()
    window: int | None = None
    wandering: frozenset[int] = frozenset()

    def creation(self, query: Create) -> "OneStream | None":
        law, wandering = law_of(query.mechanism), self.wandering
        if law is not None and law.wanders:
            wandering |= {len(self.next_tick)}
        return replace(self, next_tick=self.next_tick.append(self.begun), wandering=wandering)

    def query(self, left: Ask, right: Ask) -> "OneStream | None":
        """Record an update of one mechanism, and its tick where the two rows differ."""
        if not isinstance(left.message, Update):
            return self
        if not 0 <= left.index < len(self.next_tick):
            return None
        tick = self.next_tick[left.index]
        heard = self.next_tick.set(left.index, tick + 1)
        begun, differing = max(self.begun, tick + 1), self.differing
        if left.index not in self.wandering and not same(left.message, right.message):
            differing |= {tick}
            windows = {0 if self.window is None else tick // self.window for tick in differing}
            if len(differing) > self.most or len(windows) > 1:
                return None
        return OneStream(self.most, begun, heard, differing, self.window, self.wandering)


def engine_relation(neighbors: Neighbors, truth: Truth = own, users: Users | None = None) -> All:
    """Return the relation of an engine's guarantee: streams that differ in one event, for all mechanisms.

    A replacement that may move lies in two ticks. With `users` the streams differ in all events of one user, in up to
    `users.cap` ticks of one window. Creations are equal in both streams; the ledger decides which are possible.
    """
    ticks = 2 if neighbors is Neighbors.REPLACE_ANY_TICK else 1
    one = OneStream(ticks) if users is None else OneStream(users.cap, window=users.window)
    parts: tuple[Any, ...] = (Suitable(truth), one)
    return All(parts)
