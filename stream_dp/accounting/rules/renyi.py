"""Concurrent composition in Renyi DP, for fixed parameters: the epsilons at one order add up ([HSV] Cor 13.4).

The sum holds at every order of a curve, because each order is a separate statement. For zCDP it holds at all orders:
the bound rho alpha is fixed for each alpha in advance, so the rhos add up. The rhos of truncated zCDP add up below
omega ([Lyu] Cor 1), and the least omega of the parts remains. Parts need common orders: pure and zCDP parts have every
order and follow the others; parts with a delta have none.
"""

from fractions import Fraction

from stream_dp.accounting.conversions import pure_to_renyi, pure_to_zcdp, zcdp_to_renyi
from stream_dp.accounting.rules.fixed import fixed_before, paid
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite, same_neighbors, total
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import (
    NAMES,
    ZCDP,
    ApproxDP,
    GaussianDP,
    Measure,
    ProbabilisticDP,
    PureDP,
    RenyiCurve,
    RenyiDP,
    TruncatedZCDP,
)


def concentrated(measure: Measure) -> ZCDP | None:
    """Return `measure` as zCDP, by the tight rho of a pure or Gaussian mechanism; None where it has no rho."""
    match measure:
        case ZCDP():
            return measure
        case PureDP():
            return pure_to_zcdp(measure)
        case ApproxDP(epsilon, delta) | ProbabilisticDP(epsilon, delta) if delta == 0:
            return pure_to_zcdp(PureDP(epsilon))
        case GaussianDP(mu):
            return ZCDP(mu**2 / 2)
        case _:
            return None


def rhos(parts: tuple[Measure, ...]) -> list[Fraction]:
    """Return the rhos of the premises; all of them must have one (`all_orders`)."""
    return [known.rho for m in parts if (known := concentrated(m)) is not None]


def orders(parts: tuple[Measure, ...], asked: Fraction | None = None) -> list[Fraction]:
    """Return the orders at which every part is known, if some part names orders; else the order asked for, if any."""
    own = [
        {point.alpha for point in ((m,) if isinstance(m, RenyiDP) else m.points)}
        for m in parts
        if isinstance(m, RenyiDP | RenyiCurve)
    ]
    if own:
        return sorted(set.intersection(*own))
    return [] if asked is None else [asked]


def at(measure: Measure, alpha: Fraction) -> Fraction:
    """Return the measure's Renyi epsilon at this order, at which it must be known."""
    match measure:
        case RenyiDP(_, epsilon):
            return epsilon
        case RenyiCurve() if (point := measure.at(alpha)) is not None:
            return point.epsilon
        case PureDP():
            return pure_to_renyi(measure, alpha).epsilon
        case _:
            rho = concentrated(measure)
            if rho is None:
                raise ValueError(f"no Renyi bound of {measure} is known at order {alpha}")
            return zcdp_to_renyi(rho, alpha).epsilon


def one_order(parts: tuple[Measure, ...], asked: Fraction | None = None) -> Condition:
    """Check that all parts are known at a common order, named by a part or asked for."""
    others = [m for m in parts if not isinstance(m, RenyiDP | RenyiCurve)]
    names = ", ".join(sorted({NAMES[type(m)] for m in others if concentrated(m) is None}))
    if names:
        return Condition("Renyi", False, f"a part with a delta ({names}) has no Renyi order")
    if asked is None and len(others) == len(parts):
        return Condition("Renyi", False, "no part is stated at an order")
    shared = orders(parts, asked)
    why = f"all parts at order {', '.join(map(str, shared))}" if shared else "no order is shared"
    return Condition("one order", bool(shared), why)


def all_orders(parts: tuple[Measure, ...]) -> Condition:
    names = ", ".join(sorted({NAMES[type(m)] for m in parts if concentrated(m) is None}))
    why = (
        f"a part is {names} and has no rho"
        if names
        else "every part is zCDP: its Renyi epsilon at order alpha is at most rho alpha"
    )
    return Condition("every order", not names, why)


def curve(points: list[RenyiDP]) -> Measure:
    return points[0] if len(points) == 1 else RenyiCurve(tuple(points))


def _sums(premises: Premises, situation: Fixed) -> Measure:
    parts = paid(premises, situation)
    shared = orders(parts, situation.order)
    return curve([RenyiDP(a, total(at(m, a) for m in parts)) for a in shared])


def _below_omega(parts: tuple[Measure, ...]) -> Condition:
    others = [m for m in parts if not isinstance(m, TruncatedZCDP)]
    if any(concentrated(m) is None for m in others):
        return Condition("tCDP", False, "a part is neither tCDP, zCDP nor pure")
    some = len(others) < len(parts)
    why = "every part has a rho below the least omega" if some else "no part is tCDP"
    return Condition("tCDP", some, why)


def _truncated(premises: Premises, situation: Fixed) -> Measure:
    parts = paid(premises, situation)
    cut = [m for m in parts if isinstance(m, TruncatedZCDP)]
    whole = rhos(tuple(m for m in parts if not isinstance(m, TruncatedZCDP)))
    return TruncatedZCDP(total([*(m.rho for m in cut), *whole]), min(m.omega for m in cut))


renyi: Rule[Fixed] = Rule(
    "concurrent composition in Renyi DP",
    "[HSV] Cor 13.4",
    lambda premises, situation: (
        fixed_before(premises, situation),
        one_order(paid(premises, situation), situation.order),
        same_neighbors(premises),
    ),
    _sums,
    finite=all_finite,
)
zcdp: Rule[Fixed] = Rule(
    "concurrent composition in zCDP",
    "[HSV] Cor 13.4 at every order",
    lambda premises, situation: (
        fixed_before(premises, situation),
        all_orders(paid(premises, situation)),
        same_neighbors(premises),
    ),
    lambda premises, situation: ZCDP(total(rhos(paid(premises, situation)))),
    finite=all_finite,
)
truncated: Rule[Fixed] = Rule(
    "concurrent composition in truncated zCDP",
    "[Lyu] Cor 1, [HSV] Cor 13.4 at every order below omega",
    lambda premises, situation: (
        fixed_before(premises, situation),
        _below_omega(paid(premises, situation)),
        same_neighbors(premises),
    ),
    _truncated,
    finite=all_finite,
)
