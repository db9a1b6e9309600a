"""The verifier of games and production, presented to the exact oracle as a list of moves.

An adversary of `exact_delta` may send what V[f] ([HSV] Def 3.5) lets pass; here V is the core's own `Verifier`
around a core `Relation`, and the adversary picks from a finite menu of pairs. Rules: the menu must hold every pair
that could help; what the verifier refuses is no move (halting earlier never helps). This file knows no mechanism.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stream_dp.core.composition import Ask, Create
from stream_dp.core.relation import Relation
from stream_dp.verify.exact.enumeration import contents
from stream_dp.verify.games.verifier import Verifier


@dataclass(frozen=True, eq=False)
class Verified:
    """The pairs of `menu` that `verifier` lets pass; equal where menus and the verifiers' contents are equal."""

    verifier: Verifier
    menu: tuple[tuple[Any, Any], ...]
    _held: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Remember the verifier's content."""
        object.__setattr__(self, "_held", contents(self.verifier))

    def __hash__(self) -> int:
        return hash(self._held)

    def __eq__(self, other: object) -> bool:
        """Say whether both have the same menu, and verifiers with equal contents."""
        if not isinstance(other, Verified):
            return NotImplemented
        return self.menu is other.menu and self._held == other._held

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Verified"]]:
        """Yield the pairs that are allowed next."""
        for pair in self.menu:
            after = self.verifier.verify(pair)
            if not after.halted:
                yield pair, Verified(after, self.menu)


def behind(
    relation: Relation,
    creations: Iterable[Create],
    queries: Iterable[tuple[Any, Any]],
    indices: int,
) -> Verified:
    """Return the moves of a composition behind V[relation]: creations, and pairs to the first `indices` ones."""
    asked = tuple(queries)
    menu = (
        *((create, create) for create in creations),
        *((Ask(i, left), Ask(i, right)) for i in range(indices) for left, right in asked),
    )
    return Verified(Verifier(relation), menu)
