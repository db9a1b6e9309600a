"""First-pair consistent composition ([HSV] Def 5.12, 5.13) in RDP, zCDP and GDP against every adaptive adversary.

Oracles: exact moments and deltas of finite machines with a static data set, over all interleavings, creations and
choices of who is touched. Equality: RDP at a whole order is met exactly (moments of independent parts multiply, and
the touched parts may be the dearest); pure is met; zCDP and GDP nearly so by rounded Gaussian noise, exactly in the
limit only.
Known-broken twins: the dearest part alone (max), also as sqrt of it, and what is not first-pair consistent.
"""

import math
import random
from collections.abc import Hashable
from fractions import Fraction

import pytest
from oracles.divergences import gaussian_delta, gdp, moment, quantised_gaussian, zcdp_bracket
from oracles.static import Accepted, Answering, Composed, Data, Rounded, rounded_odds

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.composition import Ask, Create
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, GaussianDP, Guarantee, Measure, PureDP, RenyiDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import Stream, event
from stream_dp.errors import NotDerivable
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment, worst_ratio
from stream_dp.verify.exact.finite import BIT_PAIRS, FiniteComposition, FirstPair, SparsePairs
from stream_dp.verify.exact_checks.instance import logarithm
from stream_dp.verify.relations.creation import Parameters, Renyi, approximate, privacy_function
from stream_dp.verify.relations.pair_conditions import k_sparse_first_pair
from stream_dp.verify.relations.streams import StaticDataSet

ADD = Neighbors.ADD_REMOVE
UP = Fraction(1, 10**6)
STATIC = FirstPair(BIT_PAIRS, ("more",))
WHY = "the data set comes first"


def derivation(kinds: list[Measure], creations: tuple[int | None, ...]) -> Derivation:
    """What the package derives for two touched parts of these kinds."""
    premises = tuple(
        leaf(f"kind {i}", Guarantee(m, ADD, finite=True), "exact") for i, m in enumerate(kinds)
    )
    touched = Touched(2, ADD, "2 users differ")
    return derive(premises, Parallel("parts", touched, creations, first_pair=WHY))


def derived(kinds: list[Measure], creations: tuple[int | None, ...]) -> Measure:
    """The package's guarantee for them."""
    return derivation(kinds, creations).guarantee.measure


def draw(rng: random.Random, answers: int = 2) -> tuple[Fraction, ...]:
    """A random law."""
    weights = [rng.randint(2, 9) for _ in range(answers)]
    return tuple(Fraction(w, sum(weights)) for w in weights)


def interactive(rng: random.Random) -> Answering:
    """A data set answered at random, and one query more whose law depends on the data set and the first answer."""
    then = tuple(tuple(draw(rng) for _ in range(2)) for _ in (0, 1))
    return Answering((draw(rng), draw(rng)), then)


def once(zero: dict[int, Fraction], one: dict[int, Fraction]) -> Answering:
    """One answer with these laws under the two data sets."""
    return Answering((tuple(zero.values()), tuple(one.values())))


@pytest.mark.parametrize(("order", "seed"), [(2, 0), (3, 1), (5, 2)])
def test_renyi_sums_are_met_at_whole_orders(order: int, seed: int) -> None:
    """[HSV] Thm 13.6 with equality; the twin that books the dearest touched part only is below."""
    rng = random.Random(seed)
    machines = (interactive(rng), interactive(rng))
    moments = [exact_moment(m, STATIC, order, 2) for m in machines]
    assert all(isinstance(m, Fraction) and m > 1 for m in moments)
    exact = exact_moment(
        FiniteComposition(machines), SparsePairs((STATIC,) * 2, (2, 1), 2), order, 6
    )
    a, b = (Fraction(m) for m in moments)
    assert exact == max(a * a, a * b)  # two of the first kind or one of each, whichever is worse
    claims: list[Measure] = [RenyiDP(Fraction(order), logarithm(m) / (order - 1)) for m in (a, b)]
    found = derived(claims, (2, 1))
    assert isinstance(found, RenyiDP)
    promised = Interval.of((order - 1) * found.epsilon).exp().upper
    assert exact <= promised <= exact * (1 + UP)
    assert exact > max(a, b) * (1 + UP)  # the twin


@pytest.mark.parametrize("touched", [1, 2, 3])
def test_renyi_counts_who_is_touched_and_not_who_exists(touched: int) -> None:
    rng, bits = random.Random(9), FirstPair(BIT_PAIRS)
    machine = Answering((draw(rng), draw(rng)))
    one = exact_moment(machine, bits, 2, 1)
    pairs = SparsePairs((bits,), (3,), touched)
    assert exact_moment(FiniteComposition((machine,)), pairs, 2, 6) == Fraction(one) ** touched > 1


def rho_of(machine: Answering) -> Fraction:
    """An upper bound of the least rho of a machine with one answer, at most 1% above."""
    zero, one = (dict(enumerate(law)) for law in machine.first)
    return Fraction(zcdp_bracket(zero, one)[1]) + UP


@pytest.mark.parametrize("seed", range(4))
def test_zcdp_sums_cover_every_order(seed: int) -> None:
    """Random parts with three answers, rho by the supremum over all orders; checked at whole orders from 2 to 7."""
    rng = random.Random(seed)
    machines = tuple(Answering((draw(rng, 3), draw(rng, 3))) for _ in range(2))
    rhos = [rho_of(m) for m in machines]
    found = derived([ZCDP(r) for r in rhos], (1, 2))
    assert found == ZCDP(max(rhos[0] + rhos[1], 2 * rhos[1]))
    pairs = SparsePairs((FirstPair(BIT_PAIRS),) * 2, (1, 2), 2)
    for order in (2, 3, 7):
        exact = exact_moment(FiniteComposition(machines), pairs, order, 6)
        assert exact <= Interval.of((order - 1) * order * found.rho).exp().upper


def gaussians(*mus: float) -> tuple[Answering, ...]:
    """N(0, 1) against N(mu, 1), rounded to eight cells of short rationals."""
    found = []
    for mu in mus:
        cuts = [mu / 2 + 0.75 * i for i in range(-3, 4)]
        laws = []
        for mean in (0.0, mu):
            law = {i: p.limit_denominator(500) for i, p in quantised_gaussian(mean, cuts).items()}
            last = 1 - sum((p for i, p in law.items() if i != 3), Fraction(0))
            laws.append({i: last if i == 3 else p for i, p in law.items()})
        found.append(once(laws[0], laws[1]))
    return tuple(found)


def test_zcdp_sums_are_nearly_met_and_max_is_caught() -> None:
    """Rounded Gaussian noise, mu = .5 and .75: at order 2 the exact sum is above 85% of the promise."""
    machines = gaussians(0.5, 0.75)
    rhos = [rho_of(m) for m in machines]
    found = derived([ZCDP(r) for r in rhos], (1, 1))
    assert isinstance(found, ZCDP)
    pairs = SparsePairs((FirstPair(BIT_PAIRS),) * 2, (1, 1), 2)
    exact = math.log(exact_moment(FiniteComposition(machines), pairs, 2, 4)) / 2
    assert 0.85 * float(found.rho) < exact <= found.rho
    assert exact > max(rhos)  # the twin


def test_pure_gaussian_and_concentrated_parts_add_up_as_rhos() -> None:
    """RR(3) by its epsilon, a rounded Gaussian by its mu, another machine by its rho; any two of them touched."""
    half = (Fraction(3, 4), Fraction(1, 4))
    response, (normal,) = Answering((half, half[::-1])), gaussians(0.5)
    other = Answering((draw(random.Random(3)), draw(random.Random(4))))
    mu = Fraction(gdp(*(dict(enumerate(law)) for law in normal.first))) + UP
    kinds: list[Measure] = [PureDP(logarithm(Fraction(3))), GaussianDP(mu), ZCDP(rho_of(other))]
    found = derived(kinds, (1, 1, 1))
    assert isinstance(found, ZCDP)
    pairs = SparsePairs((FirstPair(BIT_PAIRS),) * 3, (1, 1, 1), 2)
    for order in (2, 4):
        exact = exact_moment(FiniteComposition((response, normal, other)), pairs, order, 6)
        assert exact <= Interval.of((order - 1) * order * found.rho).exp().upper
        laws = [tuple(dict(enumerate(law)) for law in m.first) for m in (response, normal, other)]
        each = sorted((moment(p, q, order) for p, q in laws), reverse=True)
        assert exact == each[0] * each[1]


RATIOS = [Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(2), Fraction(3), Fraction(6)]


def test_gaussian_roots_cover_every_epsilon_and_max_is_caught() -> None:
    """[HSV] Cor 14.8: mu-GDP is its whole delta curve (Dong, Roth, Su, Cor 2.13). At least 90% of it is met.

    Twins: the larger mu alone, and sqrt of the mean square.
    """
    machines = gaussians(0.5, 0.75)
    mus = [Fraction(gdp(*(dict(enumerate(law)) for law in m.first))) + UP for m in machines]
    assert [float(mu) for mu in mus] == pytest.approx([0.5, 0.75], abs=0.05)
    found = derived([GaussianDP(mu) for mu in mus], (1, 1))
    assert isinstance(found, ZCDP)  # no delta is granted, and zCDP needs no finite communication
    root = gdp_alternative([GaussianDP(mu) for mu in mus], (1, 1))
    pairs = SparsePairs((FirstPair(BIT_PAIRS),) * 2, (1, 1), 2)
    twins = {"max": float(max(mus)), "mean": math.sqrt(sum(float(m) ** 2 for m in mus) / 2)}
    beaten = set()
    for ratio in RATIOS:
        exact = float(exact_delta(FiniteComposition(machines), pairs, ratio, 4))
        promised = gaussian_delta(float(root.mu), math.log(ratio))
        assert exact <= promised
        beaten |= {n for n, mu in twins.items() if exact > gaussian_delta(mu, math.log(ratio))}
    assert beaten == set(twins)
    at_zero = float(exact_delta(FiniteComposition(machines), pairs, Fraction(1), 4))
    assert at_zero > 0.9 * gaussian_delta(float(root.mu), 0.0)


def gdp_alternative(kinds: list[Measure], creations: tuple[int | None, ...]) -> GaussianDP:
    """What Cor 14.8 gives; without a delta it is shown beside the zCDP."""
    beside = derivation(kinds, creations).alternatives
    (guarantee,) = (a.outcome for a in beside if a.source == "[HSV] Cor 14.8")
    assert isinstance(guarantee, Guarantee)
    assert isinstance(guarantee.measure, GaussianDP)
    return guarantee.measure


# --- the production composition behind the production relation


BASE = Fraction(1, 2)
SMALL, LARGE = Rounded(Fraction(1)), Rounded(Fraction(1), more=True)
ODDS = (rounded_odds(Fraction(1), BASE), rounded_odds(Fraction(1), BASE) ** 2)
DATA_FIRST = StaticDataSet(lambda a, b: isinstance(a, Data) and isinstance(b, Data))


def behind(
    claims: list[Measure], parameters: Parameters, touched: list[Measure], most: int
) -> Accepted:
    """f_(inf, FPC) over SMALL and LARGE with these claims, which the oracle proves; parameters as in `touched`."""
    creations = tuple(
        Create(mechanism, Claim(claim, DATA_FIRST, finite=True))  # type: ignore[arg-type]
        for mechanism, claim in zip((SMALL, LARGE), claims, strict=True)
    )
    names = [parameters(Claim(claim, DATA_FIRST, finite=True)) for claim in touched]
    return Accepted(k_sparse_first_pair(names, parameters, lambda _: True), creations, most)


def test_the_production_composition_in_pure_dp_is_exact() -> None:
    """Thm 5.14 on the objects that run: all interleavings of two creations, whichever are touched."""
    claims: list[Measure] = [PureDP(logarithm(odds)) for odds in ODDS]
    for touched, odds in (
        (claims, ODDS[0] * ODDS[1]),
        (claims[:1], ODDS[0]),
        (claims[1:], ODDS[1]),
    ):
        accepted = behind(claims, approximate, touched, most=2)
        assert worst_ratio(Composed(BASE), accepted, 5) == odds
    found = derived(claims, (None, 1))
    assert isinstance(found, PureDP)
    assert Interval.of(found.epsilon).exp().upper >= ODDS[0] * ODDS[1] > max(ODDS)


@pytest.mark.parametrize("order", [2, 3])
def test_the_production_composition_in_renyi_dp_is_exact(order: int) -> None:
    """Thm 13.6: claims are the exact divergences of each mechanism alone; the two touched ones multiply."""
    parameters = Renyi(Fraction(order))
    loose: list[Measure] = [RenyiDP(Fraction(order), logarithm(odds)) for odds in ODDS]
    alone = [
        exact_moment(Composed(BASE), behind(loose, parameters, [claim], 1), order, 3)
        for claim in loose
    ]
    small, large = (Fraction(m) for m in alone)
    assert 1 < small < large
    claims: list[Measure] = [
        RenyiDP(Fraction(order), logarithm(m) / (order - 1)) for m in (small, large)
    ]
    exact = exact_moment(Composed(BASE), behind(claims, parameters, claims, 2), order, 5)
    assert exact == small * large
    found = derived(claims, (None, 1))
    assert isinstance(found, RenyiDP)
    assert exact <= Interval.of((order - 1) * found.epsilon).exp().upper <= exact * (1 + UP)


def test_the_production_composition_in_gaussian_dp_is_covered() -> None:
    """Cor 14.8: mu of each mechanism alone is exact, from the laws of its answers."""
    answers = [_answers(SMALL, bit) for bit in (0, 1)]
    twice = [{(a, b): p[a] * p[b] for a in p for b in p} for p in answers]
    mus = [Fraction(gdp(*laws)) + UP for laws in (answers, twice)]
    claims: list[Measure] = [GaussianDP(mu) for mu in mus]
    root = gdp_alternative(claims, (1, 1))
    accepted = behind(claims, privacy_function, claims, 2)
    for ratio in (Fraction(1), Fraction(3)):
        exact = float(exact_delta(Composed(BASE), accepted, ratio, 5))
        assert 0 < exact <= gaussian_delta(float(root.mu), math.log(ratio))


def _answers(mechanism: Rounded, bit: int) -> dict[Hashable, Fraction]:
    """The law of its first answer, by the composition itself."""
    machine = Composed(BASE)
    ((_, made),) = machine.step((), Create(mechanism))  # type: ignore[arg-type]
    law = machine.step(made, Ask(0, Data(bit)))  # type: ignore[arg-type]
    return {answer: chance for (answer, _), chance in law.items()}


def test_what_is_not_first_pair_consistent_is_not_created() -> None:
    """A stream of rows may differ later; f_(inf, FPC) refuses its creation, and the accounting refuses the rule."""
    claim = Claim(PureDP(Fraction(1)), Stream(event(ADD, 1)))
    relation = k_sparse_first_pair([(Fraction(1), Fraction(0))], approximate, lambda _: True)
    create = Create(SMALL, claim)  # type: ignore[arg-type]
    assert list(Accepted(relation, (create,), 1).moves()) == []
    for measure in (RenyiDP(Fraction(2), Fraction(1)), ZCDP(Fraction(1)), GaussianDP(Fraction(1))):
        premise = leaf("stream", Guarantee(measure, ADD, finite=True), "its proof")
        situation = Parallel("parts", Touched(1, ADD, "one"), (2,))
        with pytest.raises(NotDerivable, match="first-pair consistent"):
            derive((premise,), situation)
