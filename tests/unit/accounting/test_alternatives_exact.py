"""What `plan` shows beside the rule that was taken: every price is true, none is below it, and all are in one form.

Parts: randomized response by its epsilon, random laws by their exact epsilon, rho, mu or divergences at three orders.
Oracle: the exact delta of two touched parts with static data sets, at every epsilon that is shown.
"""

import math
import random
from fractions import Fraction

import pytest
from oracles.divergences import (
    gdp,
    hockey_stick,
    moment,
    product_law,
    random_line,
    worst_ratio,
    zcdp_bracket,
)

from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed, Parallel, Situation, Touched
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    Measure,
    PureDP,
    RenyiCurve,
    RenyiDP,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.pipeline.report import derivation_json
from stream_dp.verify.exact_checks.instance import logarithm

ADD = Neighbors.ADD_REMOVE
UP = Fraction(1, 10**6)
ORDERS = (2, 3, 8)
Law = dict[int, Fraction]
Part = tuple[Law, Law]


def drawn(seed: int) -> Part:
    """Two random laws with three answers."""
    zero, one = random_line(random.Random(seed), 2, 3)
    return zero, one


HALF = {0: Fraction(3, 5), 1: Fraction(2, 5)}
RESPONSE: Part = (HALF, {0: HALF[1], 1: HALF[0]})


def pure(part: Part) -> Measure:
    """Its epsilon."""
    return PureDP(logarithm(worst_ratio(*part)))


def rho(part: Part) -> Measure:
    """Its rho."""
    return ZCDP(Fraction(zcdp_bracket(*part)[1]) + UP)


def mu(part: Part) -> Measure:
    """Its mu."""
    return GaussianDP(Fraction(gdp(*part)) + UP)


def curve(part: Part) -> Measure:
    """Its divergence at three orders."""
    points = [RenyiDP(Fraction(a), logarithm(moment(*part, a)) / (a - 1)) for a in ORDERS]
    return RenyiCurve(tuple(points))


CLAIMS = {"pure": pure, "zCDP": rho, "GDP": mu, "RDP": curve}
MIXES = [
    ("pure", "pure"), ("zCDP", "zCDP"), ("GDP", "GDP"), ("RDP", "RDP"),
    ("pure", "zCDP"), ("pure", "GDP"), ("zCDP", "GDP"), ("RDP", "pure"), ("RDP", "GDP"),
]  # fmt: skip


def situations(delta: Fraction) -> list[Situation]:
    """Two fixed parts, and two first-pair consistent ones that are both touched; the price is the same."""
    touched = Touched(2, ADD, "two users differ")
    return [
        Fixed("fixed", delta),
        Parallel("first pair", touched, (1, 1), delta, "the data set comes first"),
    ]


def derived(mix: tuple[str, str], seed: int, situation: Situation) -> tuple[Derivation, list[Part]]:
    """The derivation, and the parts."""
    parts = [RESPONSE if mix[0] == "pure" else drawn(seed), drawn(seed + 50)]
    premises = tuple(
        leaf(f"{kind} {i}", Guarantee(CLAIMS[kind](part), ADD, finite=True), "exact")
        for i, (kind, part) in enumerate(zip(mix, parts, strict=True))
    )
    return derive(premises, situation), parts


def node_of(found: Derivation) -> Derivation:
    """The node of the rule that was taken, under its conversion."""
    return found if found.alternatives else found.premises[0]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("delta", [Fraction(1, 10), Fraction(1, 10**4)])
@pytest.mark.parametrize("seed", range(2))
def test_every_price_shown_is_true_and_none_is_below_the_one_taken(
    mix: tuple[str, str], delta: Fraction, seed: int
) -> None:
    """Static parts, both different: their answers together have product laws, and no adversary does better."""
    for situation in situations(delta):
        found, parts = derived(mix, seed, situation)
        p, q = (product_law([part[b] for part in parts]) for b in (0, 1))
        outcomes = [a.outcome for a in node_of(found).alternatives]
        shown = [g.measure for g in outcomes if isinstance(g, Guarantee)]
        taken = found.guarantee.measure
        for measure in [taken, *shown]:
            assert isinstance(measure, PureDP | ApproxDP)  # one form, whatever the rule's own
            assert measure.delta <= delta
            ratio = Fraction(math.exp(float(measure.epsilon))) * (1 + Fraction(1, 10**12))
            assert hockey_stick(p, q, ratio) <= measure.delta
            assert isinstance(taken, PureDP | ApproxDP)
            assert taken.epsilon <= measure.epsilon


@pytest.mark.parametrize("mix", MIXES)
def test_without_a_delta_no_form_is_passed_off_as_another(mix: tuple[str, str]) -> None:
    """Parts without an epsilon have none of it shown: rho, mu and orders are shown by their names."""
    for situation in situations(Fraction(0)):
        found, _ = derived(mix, 1, situation)
        shown = derivation_json(found)
        for one in [shown, *(a for a in shown["alternatives"] if "guarantee" in a)]:
            keys = set(one["guarantee"]) - {"neighbors"}
            assert keys in (
                {"epsilon", "delta"}, {"measure", "rho"}, {"measure", "mu"},
                {"measure", *(f"epsilon at alpha {a}" for a in ORDERS)},
            )  # fmt: skip
            if mix != ("pure", "pure"):
                assert "epsilon" not in one["guarantee"]


def test_the_prices_of_one_and_the_same_parts_are_ordered_as_the_theory_has_it() -> None:
    """Two mu-GDP parts: the curve of sqrt(2) mu is below their rho's bound, at every delta."""
    for delta in (Fraction(1, 10), Fraction(1, 10**6)):
        found, _ = derived(("GDP", "GDP"), 3, situations(delta)[0])
        assert node_of(found).source == "[HSV] Cor 14.7"
        beside = {a.source: a.outcome for a in node_of(found).alternatives}
        zcdp = beside["[HSV] Cor 13.4 at every order"]
        assert isinstance(zcdp, Guarantee)
        assert isinstance(zcdp.measure, ApproxDP)
        assert isinstance(found.guarantee.measure, ApproxDP)
        assert found.guarantee.measure.epsilon < zcdp.measure.epsilon
