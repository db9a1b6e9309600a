"""Leaves of a derivation: mechanisms with a proof of their own."""

from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee


def leaf(
    subject: str,
    guarantee: Guarantee,
    source: str,
    conditions: tuple[Condition, ...] = (),
) -> Derivation:
    """`subject` has `guarantee` by the proof in `source`."""
    return Derivation(subject, guarantee, "proven mechanism", source, conditions)
