"""A guarantee with its reasons: a tree whose leaves are proven mechanisms and whose inner nodes are theorems.

Rules: a node is a value; a node whose conditions do not all hold cannot be made. This file knows no theorem.
"""

from dataclasses import dataclass

from stream_dp.core.guarantee import Guarantee
from stream_dp.errors import BrokenCondition


@dataclass(frozen=True, slots=True)
class Condition:
    """A side condition of a rule: whether it holds, and why."""

    name: str
    holds: bool
    why: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another rule for the same node: the guarantee it would give, or why it was refused."""

    rule: str
    source: str
    outcome: Guarantee | str


@dataclass(frozen=True, slots=True)
class Derivation:
    """`guarantee` follows by `rule` (proved in `source`) from the `premises`, as all `conditions` hold.

    `alternatives` are the rules that were tried and not taken.

    Raises:
        BrokenCondition: a condition does not hold; the message names it.
    """

    subject: str
    guarantee: Guarantee
    rule: str
    source: str
    conditions: tuple[Condition, ...] = ()
    premises: tuple["Derivation", ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a derivation with a broken side condition."""
        require(self.subject, self.rule, self.source, self.conditions)


def require(subject: str, rule: str, source: str, conditions: tuple[Condition, ...]) -> None:
    """Refuse a rule with a broken side condition.

    Raises:
        BrokenCondition: naming every condition that does not hold.
    """
    broken = [f"{c.name}: {c.why}" for c in conditions if not c.holds]
    if broken:
        raise BrokenCondition(f"{subject}: {rule} ({source})", "; ".join(broken))
