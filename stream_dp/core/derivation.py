"""A guarantee with its reasons: a tree whose leaves are proven mechanisms and whose inner nodes are theorems.

Rules: a node is a value; a node whose conditions do not all hold cannot be made. This file knows no theorem.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil

from stream_dp.core.guarantee import NAMES, Guarantee, parameters
from stream_dp.core.wire import takes_no_subclass
from stream_dp.errors import BrokenCondition, NotDerivable


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Condition:
    """A side condition of a rule: whether it holds, and why."""

    name: str
    holds: bool
    why: str


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Alternative:
    """Another rule for the same node: the guarantee it would give, or why it was refused."""

    rule: str
    source: str
    outcome: Guarantee | str


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Derivation:
    """`guarantee` follows by `rule` (proved in `source`) from the `premises`, because all `conditions` hold.

    `alternatives` are the rules that were tried and not taken. A condition that does not hold raises BrokenCondition;
    a part that is not exactly of its class raises NotDerivable. `currency`: of what each part of the price is for one,
    where the rule knows something else than events.
    """

    subject: str
    guarantee: Guarantee
    rule: str
    source: str
    conditions: tuple[Condition, ...] = ()
    premises: tuple["Derivation", ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    currency: str = ""

    def __post_init__(self) -> None:
        require_exactly(self.guarantee, Guarantee, self.subject)
        for condition in self.conditions:
            require_exactly(condition, Condition, self.subject)
        for premise in self.premises:
            require_exactly(premise, Derivation, self.subject)
        require(self.subject, self.rule, self.source, self.conditions)

    def __str__(self) -> str:
        """Return the tree as text: one line per node and per condition, premises indented, amounts rounded up."""
        return "\n".join(_lines(self))

    @property
    def stated(self) -> str:
        """What it claims and by which theorems: the tree as text, without the words that explain."""
        like = self.guarantee
        amounts = ", ".join(f"{name} {_up(x)}" for name, x in parameters(like.measure).items())
        claim = f"{NAMES[type(like.measure)]} {amounts}, {like.neighbors.value}, {like.users}"
        kinds = f"group {like.group}, finite {like.finite}, fresh {like.fresh}"
        names = [condition.name for condition in self.conditions]
        premises = ", ".join(premise.stated for premise in self.premises)
        return f"{self.rule} ({self.source}): {claim}, {kinds} {names} [{premises}]"


def require_exactly(part: object, kind: type, subject: str) -> None:
    """Refuse an object that is not exactly of the class `kind` (NotDerivable, which names the object's class)."""
    if type(part) is not kind:
        raise NotDerivable(
            f"{subject}: a {type(part).__name__} must be exactly a {kind.__name__}, not a subclass"
        )


def require(subject: str, rule: str, source: str, conditions: tuple[Condition, ...]) -> None:
    """Refuse a rule with a broken side condition (BrokenCondition, which names every such condition)."""
    broken = [f"{c.name}: {c.why}" for c in conditions if not c.holds]
    if broken:
        raise BrokenCondition(f"{subject}: {rule} ({source})", "; ".join(broken))


def _lines(node: Derivation, indent: str = "") -> Iterator[str]:
    like = node.guarantee
    amounts = ", ".join(f"{name} {_up(x)}" for name, x in parameters(like.measure).items())
    stated = f"{NAMES[type(like.measure)]} {amounts}, {like.protected}"
    yield f"{indent}{node.subject}: {stated}, by {node.rule} ({node.source})"
    for condition in node.conditions:
        yield f"{indent}  holds: {condition.name}: {condition.why}"
    for premise in node.premises:
        yield from _lines(premise, indent + "  ")


def _up(amount: Fraction) -> str:
    return f"{Decimal(ceil(amount * 10**12)).scaleb(-12).normalize():f}"
