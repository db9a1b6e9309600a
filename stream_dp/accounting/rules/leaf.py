"""Leaves of a derivation: mechanisms with a proof of their own.

All composition theorems of [HSV] require discrete answers (sections 4 and 5); an answer here is an array of
integers.
"""

from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee

DISCRETE = Condition("discrete answers", True, "arrays of integers; checked by tests/conformance")


def leaf(
    subject: str,
    guarantee: Guarantee,
    source: str,
    conditions: tuple[Condition, ...] = (),
) -> Derivation:
    """Return a derivation that states `guarantee` for `subject`, by the proof in `source`."""
    return Derivation(subject, guarantee, "proven mechanism", source, (*conditions, DISCRETE))
