"""A guarantee with its reasons: a tree whose leaves are proven mechanisms and whose inner nodes are theorems.

Rules: a node is a value; a node whose conditions do not all hold cannot be made. This file knows no theorem.
"""

from dataclasses import dataclass

from stream_dp.core.guarantee import Guarantee
from stream_dp.errors import NotDerivable


@dataclass(frozen=True, slots=True)
class Condition:
    """A side condition of a rule: whether it holds, and why."""

    name: str
    holds: bool
    why: str


@dataclass(frozen=True, slots=True)
class Derivation:
    """`guarantee` follows by `rule` (proved in `source`) from the `premises`, as all `conditions` hold.

    Raises:
        NotDerivable: a condition does not hold; the message names it.
    """

    subject: str
    guarantee: Guarantee
    rule: str
    source: str
    conditions: tuple[Condition, ...] = ()
    premises: tuple["Derivation", ...] = ()

    def __post_init__(self) -> None:
        """Refuse a derivation with a broken side condition."""
        broken = [f"{c.name}: {c.why}" for c in self.conditions if not c.holds]
        if broken:
            raise NotDerivable(
                f"{self.subject}: {self.rule} ({self.source}) does not apply: " + "; ".join(broken)
            )
