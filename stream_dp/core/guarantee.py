"""Guarantees: a privacy measure with exact parameters, against a neighbour relation.

Rules: parameters are exact (`Fraction`), never floats, and never ints, which mean units elsewhere. epsilon,
rho and mu are at least 0, delta is in [0, 1), orders and omega are above 1; other parameters raise InvalidCost.
Measures are a closed family that may grow: the meaning of an existing class never changes, a new measure is a new
class, and a subclass does not count as a measure. This file knows no mechanism and no rule.
"""

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.wire import takes_no_subclass
from stream_dp.errors import InvalidCost, NotDerivable


class _Exact:
    """A measure whose fields are its parameters: checks that each is exact and in its range."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            _check(field.name, getattr(self, field.name))


def _check(field: str, value: Any) -> None:
    name = "the order alpha" if field == "alpha" else field
    if type(value) is not Fraction:
        raise InvalidCost(
            f"{name} must be an exact number (a Fraction), but is the {type(value).__name__} "
            f"{value!r}; write it as a decimal or a fraction"
        )
    match field:
        case "alpha" | "omega":
            holds, must = value > 1, "be greater than 1"
        case "delta":
            holds, must = 0 <= value < 1, "lie in [0, 1)"
        case _:
            holds, must = value >= 0, "not be negative"
    if not holds:
        raise InvalidCost(f"{name} must {must}, got {value}")


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class PureDP(_Exact):
    """epsilon-differential privacy against adaptive adversaries ([HSV] Def 3.8 with delta = 0)."""

    epsilon: Fraction

    @property
    def delta(self) -> Fraction:
        return Fraction(0)


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class ApproxDP(_Exact):
    """(epsilon, delta)-differential privacy against adaptive adversaries ([HSV] Def 3.8)."""

    epsilon: Fraction
    delta: Fraction


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class ProbabilisticDP(_Exact):
    """The privacy loss exceeds `epsilon` in size with probability at most `delta` ([WRRW] Def 5, pDP).

    Stronger than (epsilon, delta)-DP; the converse costs (accounting/conversions.py).
    """

    epsilon: Fraction
    delta: Fraction


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class ZCDP(_Exact):
    """rho-zero-concentrated DP: Renyi divergence at most rho * alpha at every order ([WRRW] Def 3, delta = 0)."""

    rho: Fraction


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class TruncatedZCDP(_Exact):
    """(rho, omega)-truncated concentrated DP, tCDP: Renyi divergence at most rho * alpha at every order alpha < omega.

    [Lyu] Cor 1, after Bun, Dwork, Rothblum, Steinke 2018. tCDP allows losses that are rare and large, zCDP does not.
    """

    rho: Fraction
    omega: Fraction


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class RenyiDP(_Exact):
    """(alpha, epsilon)-Renyi DP at this one order alpha > 1 ([HSV] Def 13.3)."""

    alpha: Fraction
    epsilon: Fraction


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class RenyiCurve:
    """Renyi DP at several orders at once: each of the `points` holds ([HSV] Def 13.3). Orders ascend."""

    points: tuple[RenyiDP, ...]

    def __post_init__(self) -> None:
        orders = [point.alpha for point in self.points]
        if not orders or sorted(set(orders)) != orders:
            raise InvalidCost(f"the orders of a curve must ascend and be at least 1, got {orders}")

    def at(self, alpha: Fraction) -> RenyiDP | None:
        """Return the point at this order; None where the curve has none."""
        return next((point for point in self.points if point.alpha == alpha), None)


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class GaussianDP(_Exact):
    """mu-Gaussian DP: f-DP with the trade-off function of N(0, 1) against N(mu, 1) ([HSV] section 14)."""

    mu: Fraction


Measure: TypeAlias = (
    PureDP | ApproxDP | ProbabilisticDP | ZCDP | TruncatedZCDP | RenyiDP | RenyiCurve | GaussianDP
)

NAMES: dict[type[Any], str] = {
    PureDP: "DP", ApproxDP: "DP", ProbabilisticDP: "pDP", ZCDP: "zCDP", RenyiDP: "RDP",
    RenyiCurve: "RDP", GaussianDP: "GDP", TruncatedZCDP: "tCDP",
}  # fmt: skip


def is_pure(measure: Measure) -> bool:
    """Say whether the measure is pure DP; (epsilon, 0)-DP counts as pure."""
    return isinstance(measure, PureDP | ApproxDP | ProbabilisticDP) and measure.delta == 0


def differential_privacy(measure: Measure) -> ApproxDP:
    """Return `measure` as (epsilon, delta)-DP where that needs no chosen delta; pDP implies it.

    Raises:
        NotDerivable: the measure has no epsilon before a delta is chosen (zCDP, tCDP, RDP, GDP).
    """
    if isinstance(measure, PureDP | ApproxDP | ProbabilisticDP):
        return ApproxDP(measure.epsilon, measure.delta)
    raise NotDerivable(
        f"{NAMES[type(measure)]} has no (epsilon, delta) form until a delta is chosen. "
        "Convert it first (grant a delta to `derive`, or use accounting.conversions)"
    )


def parameters(measure: Measure) -> dict[str, Fraction]:
    """Return the parameters of a measure by name; DP always has epsilon and delta, a curve one epsilon per order.

    >>> parameters(PureDP(Fraction(1, 2)))
    {'epsilon': Fraction(1, 2), 'delta': Fraction(0, 1)}
    """
    if isinstance(measure, RenyiCurve):
        return {f"epsilon at alpha {point.alpha}": point.epsilon for point in measure.points}
    if isinstance(measure, PureDP):
        return {"epsilon": measure.epsilon, "delta": measure.delta}
    return {field.name: getattr(measure, field.name) for field in fields(measure)}


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Protected:
    """The pairs of input streams that a guarantee or a ledger treats as neighbours. See `Guarantee`."""

    neighbors: Neighbors
    users: Users | None = None
    group: int = 1

    @property
    def unit(self) -> str:
        """The protected unit where it is not one event: users or groups; empty for one event."""
        many = "" if self.group == 1 else f"groups of {self.group}"
        return ", ".join(filter(None, (str(self.users or ""), many)))

    def __str__(self) -> str:
        """Return the unit in words: `add_remove, users of at most 20 events for ever`."""
        return ", ".join(filter(None, (str(self.neighbors), self.unit)))


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Guarantee:
    """`measure` holds for every pair of input streams that `neighbors` relates.

    With `group` > 1 it holds for every pair that a chain of at most `group` such steps connects (all events
    together of a user with that many events). `finite`: communication is finite ([HSV] Def 14.4): there is a
    horizon, and messages and answers come from finite sets, as with clamped noise. Gaussian DP composes
    concurrently for such mechanisms only.

    `fresh`: after any answers to equal pairs of messages, the rest still has `measure` (docs/time.md). Pure DP always
    is: its odds after such a history are those before it. Another mechanism is where all noise that an event shifts
    is drawn after the event came.

    With `users` the measure holds for every pair that differs in all events of one user; `neighbors` then says how
    one event differs, and `group` counts users.
    """

    measure: Measure
    neighbors: Neighbors
    group: int = 1
    finite: bool = False
    users: Users | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        """Check for a known measure and relation (NotDerivable), and a group of at least 1 (InvalidCost)."""
        if type(self.measure) not in NAMES or type(self.neighbors) is not Neighbors:
            raise NotDerivable(
                "a guarantee needs a measure and a neighbour relation of this package, not a "
                f"{type(self.measure).__name__} and a {type(self.neighbors).__name__}"
            )
        if self.group < 1:
            raise InvalidCost(f"a group must have at least one member, got {self.group}")
        if self.users is not None and type(self.users) is not Users:
            raise NotDerivable(
                f"users must be given as `Users`, not as a {type(self.users).__name__}"
            )
        object.__setattr__(self, "fresh", self.fresh or is_pure(self.measure))

    @property
    def protected(self) -> Protected:
        return Protected(self.neighbors, self.users, self.group)

    @property
    def unit(self) -> str:
        """The protected unit where it is not one event: users or groups; empty for one event."""
        return self.protected.unit
