"""The adversary of `stream-dp audit`: equal rows but for one event per mechanism, placed where it shows most.

Where a claim is for users, it is all events of one user that count, in one tick.

Where that is follows from public structure and is said by each mechanism (`opening`): noise protects a decision least
where it is nearly taken, so what is decided by counts is filled up to its threshold first. Rules: deterministic;
whether its pairs are neighbours is for the verifier to say. This file knows no statistics and no data.
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
    """Creates `mechanisms` in a composition; per tick it sends each its pair of rows, then asks each.

    `pairs[tick][i]` is what mechanism i gets, `claims[i]` what its creation says of it (None: its own guarantee).
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
        """The event lies in the first of `ticks` ticks; the later rows are empty.

        Where the claim lets a replacement move to another tick, the other stream has it in the second one.

        Every second mechanism gets its pair the other way round: noise that two of them share cancels in the difference
        of their answers, where the same change on both would cancel too.
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
        """How many messages it sends, HALT included."""
        return len(self.mechanisms) * (1 + 2 * len(self.pairs)) + 1

    def init(self, noise: Noise) -> int:
        """Return the first state: nothing sent."""
        return 0

    def step(self, sent: int, message: Any, noise: Noise) -> tuple[int, Any]:
        """Create all, then an update and a query to each per tick, then HALT."""
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
    """How many columns of the mechanism's rows one event can change."""
    law = mechanism.rows
    return mechanism.guarantee.neighbors.l0(law.width, law.ones)


def moves(claim: Claim | None) -> bool:
    """Whether the claim is for replacements that may lie in another tick."""
    rows = _rows(claim)
    return isinstance(rows, MovedRows) or (isinstance(rows, AmountRows) and rows.moves)


def events_of(mechanism: ServingMechanism[Any], claim: Claim | None) -> int:
    """How many events of one user the claim is for: 1 where it is for events.

    Of rows that count identifiers at their first tick, how many units the neighbours of the claim differ by.
    """
    rows = _rows(claim) or mechanism.rows.relation(mechanism.guarantee.neighbors)
    if isinstance(rows, EventRows) or (isinstance(rows, AmountRows) and not rows.moves):
        return rows.most
    return 1


def _rows(claim: Claim | None) -> Relation | None:
    rows = claim.relation.rows if claim and isinstance(claim.relation, Stream) else None
    return rows.first if isinstance(rows, HalvedRows) else rows


def _turned(pairs: Sequence[RowPair]) -> tuple[RowPair, ...]:
    """Every second pair the other way round."""
    return tuple(pair[::-1] if place % 2 else pair for place, pair in enumerate(pairs))


def _second_pair(mechanism: ServingMechanism[Any], claim: Claim | None) -> RowPair:
    """The rows of the second tick: the left one has the event where it may have moved, or else both are empty."""
    left, right = np.zeros((2, mechanism.width), dtype=np.int64)
    left[: mechanism.rows.ones] = int(moves(claim)) * mechanism.rows.contents[1]
    return left, right


def worst_pair(mechanism: ServingMechanism[Any], events: int = 1) -> RowPair:
    """The rows of the tick with the event, each of shape (width,).

    The right one has the event in the first columns, as many as one event may set; the left one has it in the next
    ones where the relation allows, else not at all. Of a user with several `events` all are the same.
    """
    halves = [_worst_half(mechanism, law, events) for law in mechanism.rows.halves]
    left, right = (np.concatenate(sides) for sides in zip(*halves, strict=True))
    return left, right


def _worst_half(mechanism: ServingMechanism[Any], law: RowLaw, events: int) -> RowPair:
    """The part of those rows that this law is for."""
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
