"""Measures: exact numbers only, in any measure; what each says of itself."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.core.guarantee import (
    NAMES,
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    ProbabilisticDP,
    PureDP,
    RenyiCurve,
    RenyiDP,
    differential_privacy,
    parameters,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import InvalidCost, NotDerivable

ONE, TWO = Fraction(1), Fraction(2)
ADD = Neighbors.ADD_REMOVE
BAD: list[Any] = [math.nan, 0.5, "1", True, 1, Fraction(-1)]
MAKERS: list[Callable[[Any], Any]] = [
    PureDP,
    lambda x: ApproxDP(x, Fraction(0)),
    lambda x: ApproxDP(ONE, x),
    lambda x: ProbabilisticDP(x, Fraction(0)),
    lambda x: ProbabilisticDP(ONE, x),
    ZCDP,
    lambda x: RenyiDP(x, ONE),
    lambda x: RenyiDP(TWO, x),
    GaussianDP,
]


@pytest.mark.parametrize("value", BAD, ids=str)
@pytest.mark.parametrize("make", range(len(MAKERS)))
def test_what_is_no_exact_number_is_no_cost(make: int, value: Any) -> None:
    with pytest.raises(InvalidCost, match="must") as caught:
        MAKERS[make](value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("make", [m for i, m in enumerate(MAKERS) if i != 6])
def test_zero_is_legal(make: Callable[[Any], Any]) -> None:
    assert make(Fraction(0)) == make(Fraction(0, 7))


def test_the_orders_of_a_curve_ascend() -> None:
    two, three = RenyiDP(TWO, ONE), RenyiDP(Fraction(3), TWO)
    assert RenyiCurve((two, three)).at(Fraction(3)) == three
    assert RenyiCurve((two,)).at(Fraction(3)) is None
    for points in ((), (three, two), (two, two)):
        with pytest.raises(InvalidCost, match="must ascend"):
            RenyiCurve(points)
    with pytest.raises(InvalidCost, match="greater than 1"):
        RenyiDP(ONE, ONE)
    with pytest.raises(InvalidCost, match="at least one member"):
        Guarantee(PureDP(ONE), ADD, group=0)


def test_only_dp_states_an_epsilon() -> None:
    tiny = Fraction(1, 10**6)
    assert differential_privacy(PureDP(ONE)) == ApproxDP(ONE, Fraction(0))
    assert differential_privacy(ProbabilisticDP(ONE, tiny)) == ApproxDP(ONE, tiny)
    point = RenyiDP(TWO, ONE)
    for measure in (ZCDP(ONE), point, RenyiCurve((point,)), GaussianDP(ONE)):
        with pytest.raises(NotDerivable, match=f"{NAMES[type(measure)]} has no"):
            differential_privacy(measure)
    assert parameters(RenyiCurve((point,))) == {"epsilon at alpha 2": ONE}
    assert parameters(GaussianDP(TWO)) == {"mu": TWO}
    assert parameters(ApproxDP(ONE, tiny)) == {"epsilon": ONE, "delta": tiny}
