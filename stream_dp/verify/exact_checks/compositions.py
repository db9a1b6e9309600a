"""Instances for mechanisms that are fixed, touched in parallel or admitted by a filter, and for composite mechanisms.

Fixed mechanisms and fixed parameters: [HSV] Thm 4.10, 4.12; Cor 13.4, 14.7. k-sparse parallel composition and its three
legal rules: Def 5.1, 5.3, 5.13; Cor 5.5, Thm 5.4, 5.14, 13.6. Composites: Thm 6.1, Cor 6.6. Filters: Thm 12.4,
Cor 13.8.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from stream_dp.accounting.amounts import Interval, cost_units, exact
from stream_dp.accounting.conversions import pure_to_renyi
from stream_dp.accounting.derive import derive
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import BasicFilter, PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.gaussian_curve import pure_to_gaussian
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.situations import Composite, Filtered, Fixed, Parallel, Touched
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import (
    ZCDP,
    GaussianDP,
    PureDP,
    RenyiDP,
    TruncatedZCDP,
    differential_privacy,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import All, Claim
from stream_dp.core.row_law import RowLaw
from stream_dp.verify.exact.exact_sparse_vector import (
    SmallGaussianHSS,
    SmallHSS,
    SmallPaperHSS,
    whole_rows,
)
from stream_dp.verify.exact.finite import DifferAtMost
from stream_dp.verify.exact.randomized_response import (
    LateResponse,
    LeakyBit,
    RareAnswer,
    bit_moment,
)
from stream_dp.verify.exact_checks.instance import (
    ADD,
    ZERO,
    Instance,
    OneBitDiffers,
    Part,
    claimed,
    game,
    irr,
    known,
    logarithm,
    private,
    related,
    rr,
)
from stream_dp.verify.game import LedgerFilter
from stream_dp.verify.relations import (
    CreatedWithin,
    Parameters,
    Renyi,
    approximate,
    filtered,
    fixed_mechanisms,
    fixed_parameters,
    k_sparse,
    k_sparse_first_pair,
    k_sparse_with_delta_budget,
    privacy_function,
    randomized_response_only,
    single_pair,
)

TWO, THREE, TENTH = Fraction(2), Fraction(3), Fraction(1, 10)
DATA_FIRST = "its data set is its first message"


def measure_of(claim: Claim) -> object:
    return claim.measure


def at_most(part: Part, number: int) -> CreatedWithin:
    """Return the relation that admits at most `number` creations of `part`."""
    return CreatedWithin.of([part.measure] * number, measure_of)


def late(odds: Fraction, delta: Fraction) -> Part:
    """Return a part that reveals its failure before the bit that counts."""
    pairs = ((0, 0), (0, 1))
    return Part("late", LateResponse(odds, delta), private(odds, delta), OneBitDiffers(), pairs)


def leaky(delta: Fraction) -> Part:
    """Return M_delta of [HSV] Thm 5.2 as a part."""
    return Part("leaky", LeakyBit(delta), private(Fraction(1), delta), OneBitDiffers())


def _touched(k: int) -> Touched:
    return Touched(k, ADD, "the verifier lets no more be touched")


def pure_responses(created: int, k: int, delta: Fraction) -> Instance:
    """Return `created` parts RR(ln 3), k of which may be touched."""
    part = rr(THREE)
    relation = All((k_sparse([approximate(part.claim)] * k, truth=known), at_most(part, created)))
    granted = f", delta {float(delta):g}" if delta else ""
    words = f"{created} RR(ln 3) created, {k} touched{granted}"
    situation = Parallel("sparse", _touched(k), (None,), delta)
    return game(words, situation, relation, (part,), created, 2 * created)


def touched_pure() -> tuple[Instance, ...]:
    """Return the instances of [HSV] Cor 5.5."""
    return pure_responses(3, 1, ZERO), pure_responses(3, 2, Fraction(1, 5)), _kinds()


def _kinds() -> Instance:
    """Return parts of several kinds, any of which may be touched."""
    parts = rr(THREE), rr(TWO)
    created = CreatedWithin.of([part.measure for part in parts], measure_of)
    relation = All((k_sparse([approximate(parts[0].claim)], truth=known), created))
    words = "RR(ln 3) and RR(ln 2) created, the dearer one touched"
    return game(words, Parallel("kinds", _touched(1), (1, 1)), relation, parts, 2, 4)


def delta_budget(part: Part, created: int, words: str, more: Fraction = ZERO) -> Instance:
    """Return `created` copies of the part, one touched, with a budget for all deltas ([HSV] Def 5.3)."""
    stated = differential_privacy(part.measure)
    every = 1 - (1 - stated.delta) ** created
    relation = k_sparse_with_delta_budget([stated.epsilon], every, truth=known)
    situation = Parallel("deltas", _touched(1), (created,), every + more)
    return game(words, situation, relation, (part,), created, 2 * created + 1)


def responses(created: int) -> Instance:
    """Return `created` copies of RR_(0, .1), all touched: how the proof of Thm 5.4 sees deltas ([HSV] Def 5.8)."""
    part, every = rr(Fraction(1), TENTH), 1 - (1 - TENTH) ** created
    relation = randomized_response_only(lambda query: query == part.create, every, truth=known)
    words = f"{created} RR(0, 0.1) created, all touched (Def 5.8)"
    situation = Parallel("responses", _touched(created), (created,), every)
    return game(words, situation, relation, (part,), created, 2 * created)


def touched_deltas() -> tuple[Instance, ...]:
    """Return the instances of [HSV] Thm 5.4."""
    lately = "3 late RR(ln 3, 0.1) created, 1 touched, delta 0.3"
    return (
        responses(3),
        delta_budget(leaky(TENTH), 3, "3 leaky bits (M_0.1 of Thm 5.2) created, 1 touched"),
        delta_budget(late(THREE, TENTH), 3, lately, Fraction(29, 1000)),
    )


def _data_first(
    words: str, part: Part, delta: Fraction = ZERO, parameters: Parameters = approximate
) -> Instance:
    allowed = [parameters(part.claim)]
    relation = All((k_sparse_first_pair(allowed, parameters, known), at_most(part, 2)))
    situation = Parallel("data first", _touched(1), (None,), delta, DATA_FIRST)
    return game(words, situation, relation, (part,), 2, 8)


def first_pair() -> tuple[Instance, ...]:
    """Return the instances of [HSV] Thm 5.14."""
    part = irr(THREE, TENTH)
    return (
        _data_first("2 IRR(ln 3, 0.1) created, 1 touched", part, TENTH),
        _data_first("the same, delta 0.2", part, Fraction(1, 5)),
    )


def first_pair_concentrated() -> tuple[Instance, ...]:
    """Return the instances of [HSV] Thm 13.6 at every order."""
    return (_data_first("2 IRR(ln 3) created, 1 touched", irr(THREE)),)


def first_pair_renyi() -> tuple[Instance, ...]:
    """Return the instances of [HSV] Thm 13.6 at one order."""
    part = irr(THREE).claiming(renyi_claim(THREE))
    words = "2 IRR(ln 3) created, 1 touched, order 2"
    return (_data_first(words, part, parameters=Renyi(Fraction(2))),)


def first_pair_gaussian() -> tuple[Instance, ...]:
    """Return the instances of [HSV] Cor 14.8."""
    part = irr(THREE).claiming(gaussian_claim(THREE))
    words = "2 IRR(ln 3) created, 1 touched, each as GDP"
    return (_data_first(words, part, parameters=privacy_function),)


HALF, FINE = Fraction(1, 2), Fraction(9, 10)
SMALL = SmallHSS(2, HALF, HALF, HALF, gamma=0, low=0, high=4)
ROWS = ((0, 0), (0, 1), (2, 0))
ADDED = (((0, 0), (1, 0)), ((0, 1), (1, 1)), ((1, 0), (2, 0)))
SUITE = "tests/unit/verify/exact/test_small_hss.py"
RowPairs: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def once(pairs: RowPairs, rows: tuple[tuple[int, ...], ...] = ROWS) -> DifferAtMost:
    """Return the relation in which rows are equal, but for one of these pairs or its mirror image, once."""
    return DifferAtMost(rows, (*pairs, *((b, a) for a, b in pairs)))


def _one_after_the_other(part: Derivation) -> Derivation:
    """Return any number of such parts, where an event lies in one of them."""
    touched = Touched.intervals(part.guarantee.neighbors, "one at a time", SUITE)
    return derive((part,), Parallel(part.subject, touched))


def _behind_hss(*parts: Derivation) -> tuple[tuple[Derivation, ...], Composite]:
    why = "thresholds, intervals and releases depend on answers only"
    both = derive(parts, Fixed("parts"))
    return (both,), Composite("hss", why, "a row goes to each part as it is", SUITE)


def pure_hss() -> Instance:
    """Return two columns under add_remove; the price is attained."""
    vectors = _one_after_the_other(claimed("sparse vectors", private(Fraction(4))))
    columns = Parallel("counters", Touched.columns(RowLaw(SMALL.width, ADD)), (2,))
    counters = derive((claimed("counters", private(Fraction(2))),), columns)
    words = "HSS on 2 columns, 2 ticks, all three noises of ln 2"
    return Instance(words, *_behind_hss(vectors, counters), SMALL, once(ADDED), 2)


def gaussian_inside() -> Instance:
    """Return one column with a Gaussian counter of rho = ln 2 behind pure sparse vectors, under add_remove."""
    machine = SmallGaussianHSS(1, FINE, FINE, HALF, gamma=0, low=-4, high=9)
    vectors = _one_after_the_other(claimed("sparse vectors", private(1 / FINE**2)))
    counter = claimed("a Gaussian counter", ZCDP(logarithm(1 / HALF)))
    pairs = once((((0,), (1,)), ((2,), (3,))), ((0,), (1,), (3,)))
    words = "HSS on 1 column, 2 ticks, sparse vectors of ln 1.23, a Gaussian counter of rho ln 2"
    return Instance(words, *_behind_hss(vectors, counter), machine, pairs, 2)


def paper_hss() -> Instance:
    """Return [HSV] Alg. 4 on one column under ~_H, two steps.

    In two steps a sparse vector alone cannot show all of its third of epsilon.
    """
    machine = SmallPaperHSS(
        1, max, HALF**2, HALF, HALF**4, HALF**4, lambda t, j: 1 + (t + j) // 2, lambda *_: 1, 0, 2
    )
    third = private(1 / HALF**4)
    parts = [
        claimed(name, third, Neighbors.REPLACE) for name in ("instances", "checks", "counters")
    ]
    made = (*map(_one_after_the_other, parts[:2]), parts[2])
    words = "HSS of [HSV] Alg. 4 under ~_H, 1 column, 2 steps, all thirds of ln 16"
    return Instance(words, *_behind_hss(*made), machine, DifferAtMost(*whole_rows(1)), 2)


def hss() -> tuple[Instance, ...]:
    return pure_hss(), gaussian_inside(), paper_hss()


FILTER_ORDER, SLACK = Fraction(2), Fraction(2, 5)
MORE = 2


def behind_ledger(
    words: str, filter_: Filter, kinds: Sequence[Part], admitted: Sequence[Part]
) -> Instance:
    """Return parts of these kinds, created adaptively through the product's ledger ([HSV] Def 12.2).

    `admitted` is a longest sequence that the ledger admits. The game allows `MORE` creations than that, so that a
    ledger that admits too many is detected.
    """
    relation = filtered(LedgerFilter(Ledger.under(filter_)), truth=known)
    most = len(admitted) + MORE
    return game(
        words, Filtered("asked for", filter_), relation, kinds, most, 2 * most, premises=admitted
    )


def admitted() -> tuple[Instance, ...]:
    """Return the instances of the filter rule: filters that take DP, proven for concurrent mechanisms."""
    two, three, failing = rr(TWO), rr(THREE), rr(THREE, TENTH)
    both = exact(cost_units(logarithm(THREE)) + cost_units(logarithm(TWO)))
    at_order = pure_to_renyi(PureDP(logarithm(THREE)), FILTER_ORDER)
    twice = RenyiDP(FILTER_ORDER, 2 * exact(cost_units(at_order.epsilon)))
    return (
        behind_ledger(
            "pure filter of ln 6; RR of ln 2 or ln 3, by past answers",
            PureFilter.of(both), (three, two), (three, two),
        ),
        behind_ledger(
            "basic filter of ln 6, delta 0.1; RR of ln 2 or (ln 3, 0.1), by past answers",
            BasicFilter.of(both, TENTH), (failing, two), (failing, two),
        ),
        behind_ledger(
            "tight approximate filter of 1, delta 0.4; RR of ln 2 or ln 3",
            TightApproximateFilter.of(Fraction(1), SLACK, ZERO), (two, three), (two,) * 3,
        ),
        behind_ledger(
            "zCDP filter of 0.6; RR of ln 2 or ln 3",
            ZCDPFilter.of(Fraction(3, 5)), (two, three), (two,) * 2,
        ),
        behind_ledger(
            "GDP filter of 1.5; RR of ln 2 or ln 3, each at its mu",
            GaussianFilter.of(Fraction(3, 2)), (two, three), (two,) * 3,
        ),
        behind_ledger(
            "RDP filter at order 2, two of RR(ln 3)", RenyiFilter.of(twice), (three, two), (three,) * 2,
        ),
    )  # fmt: skip


TINY = Fraction(1, 10**9)
ORDER = 2


def renyi_claim(odds: Fraction) -> RenyiDP:
    """Return the Renyi DP of RR_(ln odds, 0) at order 2, rounded up."""
    return RenyiDP(Fraction(ORDER), Interval.of(bit_moment(odds, ORDER)).ln().upper)


def gaussian_claim(odds: Fraction) -> GaussianDP:
    """Return the GDP of RR_(ln odds, 0), rounded up."""
    return pure_to_gaussian(PureDP(logarithm(odds)))


def _all_at_once(words: str, parts: tuple[Part, ...], delta: Fraction = ZERO) -> Instance:
    relation = fixed_mechanisms(tuple(p.create for p in parts), truth=known)
    rounds = sum(4 if part.name == "IRR" else 2 for part in parts)
    return game(words, Fixed("fixed", delta), relation, parts, len(parts), rounds)


def summed() -> tuple[Instance, ...]:
    """Return the instances of the rule that adds epsilons up."""
    interactive = irr(THREE, TENTH)
    return (
        _all_at_once("RR(ln 3), RR(ln 2) at once", (rr(THREE), rr(TWO))),
        _all_at_once(
            "two IRR(ln 3, 0.1), queries interleaved", (interactive,) * 2, Fraction(19, 100)
        ),
    )


def best() -> tuple[Instance, ...]:
    """Return the instances of the rule that takes the least epsilon at a granted delta."""
    parts = rr(THREE), rr(THREE), rr(TWO)
    measures = tuple(part.measure for part in parts)
    allowed = [(m.epsilon, m.delta) for m in map(differential_privacy, measures)]
    words = "any of the parameters ln 3, ln 3, ln 2, in any order (Thm 4.12), delta 0.2"
    situation = Fixed("parameters", Fraction(1, 5), parameters=measures)
    relation = fixed_parameters(allowed, truth=known)
    return (
        _all_at_once(
            "RR(ln 3, 0.1), RR(ln 2) at once, delta 0.4", (rr(THREE, TENTH), rr(TWO)), SLACK
        ),
        game(words, situation, relation, parts, len(parts), 6, premises=parts[:1]),
    )


def summed_zcdp() -> tuple[Instance, ...]:
    """Return the instances of the sum of rhos (zCDP), compared at whole orders only."""
    return (_all_at_once("RR(ln 3), RR(ln 2) at once", (rr(THREE), rr(TWO))),)


def truncated_claim(part: RareAnswer, omega: Fraction) -> TruncatedZCDP:
    """Return (rho, omega)-tCDP of a rare answer: its divergence over the order grows up to 5/2 (checked by a test)."""
    return TruncatedZCDP(Fraction(part.divergence(float(omega)) / float(omega)) + TINY, omega)


def summed_truncated() -> tuple[Instance, ...]:
    """Return the instances of the sum of rhos below the least omega; one part rarely has a large loss."""
    rare = RareAnswer(Fraction(1, 10**4), Fraction(1, 100))
    part = Part("rare", rare, truncated_claim(rare, Fraction(5, 2)), single_pair(related))
    return (_all_at_once("a rare answer (tCDP below 5/2), RR(ln 3/2)", (part, rr(Fraction(3, 2)))),)


def summed_renyi() -> tuple[Instance, ...]:
    """Return the instances of the sum of epsilons at one Renyi order."""
    part = rr(THREE).claiming(renyi_claim(THREE))
    return (_all_at_once("two RR(ln 3) at once, order 2", (part, part)),)


def summed_gaussian() -> tuple[Instance, ...]:
    """Return the instances of the sum of squares in Gaussian DP."""
    parts = tuple(rr(odds).claiming(gaussian_claim(odds)) for odds in (THREE, TWO))
    return (_all_at_once("RR(ln 3), RR(ln 2), each as GDP", parts),)
