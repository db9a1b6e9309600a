"""Composite mechanisms: the guarantee of the sub-mechanisms is the guarantee of the whole ([HSV] Thm 6.1)."""

from stream_dp.core.derivation import Condition, Derivation


def composite(subject: str, premise: Derivation, destination: str, relation: str) -> Derivation:
    """`subject` only adds and forwards its input to the mechanisms of `premise` and decides on their answers.

    `destination` says why no destination or response depends on tainted values (checked by the taint suite),
    `relation` why neighbouring inputs become neighbouring inputs of the sub-mechanisms ([HSV] Def 6.2).
    """
    conditions = (
        Condition("destination and response", True, destination),
        Condition("f to f'", True, relation),
    )
    return Derivation(
        subject, premise.guarantee, "composite mechanism", "[HSV] Thm 6.1", conditions, (premise,)
    )
