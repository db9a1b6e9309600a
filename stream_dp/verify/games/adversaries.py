"""The adversary of `stream-dp audit`: rows that are equal except for one event per mechanism, where it shows most.

Where a claim is for users, the difference is all counted events of one user, in one tick.

The best place follows from public structure, and each mechanism states it (`opening`): noise protects a decision
least where it is nearly taken, so counts that decide are filled up to their threshold first. Rules: the adversary
is deterministic; the verifier decides whether its pairs are neighbours. This file knows no statistics and no data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from stream_dp.core.composition import Ask, Create
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim, Relation
from stream_dp.core.row_law import RowLaw
from stream_dp.core.row_relations import AmountRows, EventRows, HalvedRows, MovedRows, Stream
from stream_dp.mechanisms.serving import ServingMechanism
from stream_dp.verify.games.transcript import HALT, View

RowPair: TypeAlias = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class OneEventAdversary:
    """Creates `mechanisms` in a composition; at each tick it sends every mechanism its pair of rows, then asks
    every mechanism.

    `pairs[tick][i]` is what mechanism i gets, `claims[i]` is the claim in its creation query (None: its own
    guarantee).
    """

    mechanisms: tuple[ServingMechanism[Any], ...]
    pairs: tuple[tuple[RowPair, ...], ...]
    claims: tuple[Claim | None, ...]

    @classmethod
    def against(
        cls,
        mechanisms: Sequence[ServingMechanism[Any]],
        ticks: int,
        claims: Sequence[Claim | None] | None = None,
    ) -> "OneEventAdversary":
        """Return the adversary with the event in the first of `ticks` ticks; the later rows are empty.

        Where the claim lets a replacement move to another tick, the other stream has the event in the second tick.

        Every second mechanism gets its pair with sides exchanged: noise that two mechanisms share cancels in the
        difference of their answers, where an equal change in both would cancel too.
        """
        said = tuple(claims or [None] * len(mechanisms))
        each = list(zip(mechanisms, said, strict=True))
        begun = _turned(
            [worst_pair(mechanism, events_of(mechanism, claim)) for mechanism, claim in each]
        )
        quiet = tuple((np.zeros_like(left),) * 2 for left, _ in begun)
        moved = _turned([_second_pair(mechanism, claim) for mechanism, claim in each])
        later = (moved, *[quiet] * (ticks - 2)) if ticks > 1 else ()
        return cls(tuple(mechanisms), (begun, *later), said)

    @property
    def rounds(self) -> int:
        """Number of messages that it sends, HALT included."""
        return len(self.mechanisms) * (1 + 2 * len(self.pairs)) + 1

    def init(self, noise: Noise) -> int:
        """Return the first state: nothing sent."""
        return 0

    def step(self, sent: int, message: Any, noise: Noise) -> tuple[int, Any]:
        """Create all mechanisms, then send an update and a query to each at every tick, then HALT."""
        number = len(self.mechanisms)
        if sent < number:
            return sent + 1, (Create(self.mechanisms[sent], self.claims[sent]),) * 2
        tick, place = divmod(sent - number, 2 * number)
        if tick == len(self.pairs):
            return sent, HALT
        if place >= number:
            return sent + 1, (Ask(place - number, Query()),) * 2
        left, right = self.pairs[tick][place]
        return sent + 1, (Ask(place, Update(left)), Ask(place, Update(right)))


def answers(view: View) -> list[IntArray]:
    """Return all answers of a view, in their order."""
    return [m for m in view.transcript.messages if isinstance(m, np.ndarray)]


def mechanism_l0(mechanism: ServingMechanism[Any]) -> int:
    """Return how many columns of the mechanism's rows one event can change."""
    law = mechanism.rows
    return mechanism.guarantee.neighbors.l0(law.width, law.ones)


def moves(claim: Claim | None) -> bool:
    """Say whether the claim is for replacements that may lie in another tick."""
    rows = _rows(claim)
    return isinstance(rows, MovedRows) or (isinstance(rows, AmountRows) and rows.moves)


def events_of(mechanism: ServingMechanism[Any], claim: Claim | None) -> int:
    """Return how many events of one user the claim is for; 1 for claims about events.

    For rows that count identifiers at their first tick: the units by which neighbours differ.
    """
    rows = _rows(claim) or mechanism.rows.relation(mechanism.guarantee.neighbors)
    if isinstance(rows, EventRows) or (isinstance(rows, AmountRows) and not rows.moves):
        return rows.most
    return 1


def _rows(claim: Claim | None) -> Relation | None:
    rows = claim.relation.rows if claim and isinstance(claim.relation, Stream) else None
    return rows.first if isinstance(rows, HalvedRows) else rows


def _turned(pairs: Sequence[RowPair]) -> tuple[RowPair, ...]:
    """Return the pairs with every second one exchanged."""
    return tuple(pair[::-1] if place % 2 else pair for place, pair in enumerate(pairs))


def _second_pair(mechanism: ServingMechanism[Any], claim: Claim | None) -> RowPair:
    """Return the rows of the second tick: the left row has the event if it may have moved; otherwise both are empty."""
    left, right = np.zeros((2, mechanism.width), dtype=np.int64)
    left[: mechanism.rows.ones] = int(moves(claim)) * mechanism.rows.contents[1]
    return left, right


def worst_pair(mechanism: ServingMechanism[Any], events: int = 1) -> RowPair:
    """Return the rows of the tick with the event, each of shape (width,).

    The right row has the event in the first columns, as many as one event may set. The left row has it in the next
    columns where the relation allows that, otherwise not at all. All `events` of a user are equal.
    """
    halves = [_worst_half(mechanism, law, events) for law in mechanism.rows.halves]
    left, right = (np.concatenate(sides) for sides in zip(*halves, strict=True))
    return left, right


def _worst_half(mechanism: ServingMechanism[Any], law: RowLaw, events: int) -> RowPair:
    """Return the part of these rows that this law is for."""
    left = np.zeros(law.width, dtype=np.int64)
    neighbors = mechanism.guarantee.neighbors
    set_, touched = min(law.ones, law.width), neighbors.l0(law.width, law.ones)
    here, beside = mechanism.opening()
    left[:set_] = here
    left[set_ : max(touched, set_ + 1)] = beside
    right = left.copy()
    other, one = law.contents
    right[:set_] += one * events
    if touched > set_:
        left[set_:touched] += one * events
    elif neighbors is Neighbors.REPLACE:
        left[:set_] += other * events
    return left, right
