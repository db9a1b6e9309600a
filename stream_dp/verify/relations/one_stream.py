"""One stream for all mechanisms: the relation of an engine's guarantee, on messages to a composition.

All series of an engine receive the same ticks, so one event changes rows in the same tick for all of them, also
where no single series sees it twice. Rules: every mechanism gets one update per tick from its creation on. This is
a condition beside `Suitable`, which judges each mechanism's own pairs. This file knows no engine.
"""

from dataclasses import dataclass, replace
from typing import Any

from pyrsistent import PVector, pvector

from stream_dp.core.composition import Ask, Create
from stream_dp.core.messages import Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import All, same
from stream_dp.core.users import Users
from stream_dp.verify.relations.creation import Truth, law_of, own
from stream_dp.verify.relations.pair_conditions import PairCondition
from stream_dp.verify.relations.suitable import Suitable


@dataclass(frozen=True, slots=True)
class OneStream(PairCondition):
    """Updates differ in at most `most` ticks, equal for all mechanisms and inside one public window of `window`
    ticks.

    Rows that count identifiers at their first tick may differ at other ticks too, where an identifier comes back;
    their own relation decides where (`wandering`). `next_tick[i]` is the tick of mechanism i's next update, `begun`
    the number of ticks that at least one mechanism has received.
    """

    most: int = 1
    begun: int = 0
    next_tick: PVector[int] = pvector()  # noqa: RUF009  an immutable value
    differing: frozenset[int] = frozenset()
    window: int | None = None
    wandering: frozenset[int] = frozenset()

    def creation(self, query: Create) -> "OneStream | None":
        """Expect updates of the new mechanism from the next tick on."""
        wandering = self.wandering
        law = law_of(query.mechanism)
        if law is not None and law.changes > 1:
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
        begun = max(self.begun, tick + 1)
        differing = self.differing
        if left.index not in self.wandering and not same(left.message, right.message):
            differing |= {tick}
            if len(differing) > self.most or not self._together(differing):
                return None
        return OneStream(self.most, begun, heard, differing, self.window, self.wandering)

    def _together(self, ticks: frozenset[int]) -> bool:
        return self.window is None or len({tick // self.window for tick in ticks}) <= 1


def engine_relation(neighbors: Neighbors, truth: Truth = own, users: Users | None = None) -> All:
    """Return the relation of streams that differ in one event, for all mechanisms; a moved replacement lies in two
    ticks.

    With `users` the streams differ in all events of one user, in as many ticks of one window. The ledger decides
    which mechanisms may be created: creations are equal in both streams.
    """
    ticks = 2 if neighbors is Neighbors.REPLACE_ANY_TICK else 1
    one = OneStream(ticks) if users is None else OneStream(users.cap, window=users.window)
    parts: tuple[Any, ...] = (Suitable(truth), one)
    return All(parts)
