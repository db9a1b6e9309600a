"""Two whole traces through one verifier, as [HSV] Def 3.4 plays a pair of histories."""

from collections.abc import Iterable

from stream_dp.core.composition import CompositionMessage
from stream_dp.core.relation import Relation
from stream_dp.verify.game import Verifier


def pair_accepted(
    relation: Relation, left: Iterable[CompositionMessage], right: Iterable[CompositionMessage]
) -> bool:
    """Say whether V[relation] lets two traces pass, message by message; traces of two lengths are no pair."""
    verifier, end = Verifier(relation), object()
    ours, theirs = iter(left), iter(right)
    while True:
        pair = next(ours, end), next(theirs, end)
        if end in pair:
            return pair == (end, end) and not verifier.halted
        verifier = verifier.verify(pair)
        if verifier.halted:
            return False
