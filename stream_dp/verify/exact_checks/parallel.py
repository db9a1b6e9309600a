"""k-sparse parallel composition and its three legal rules ([HSV] Def 5.1, 5.3, 5.13; Cor 5.5, Thm 5.4, 5.14, 13.6)."""

from fractions import Fraction

from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.relation import All, Claim
from stream_dp.verify.exact.randomized_response import LateResponse, LeakyBit
from stream_dp.verify.exact_checks.fixed_parts import gaussian_claim, renyi_claim
from stream_dp.verify.exact_checks.instance import (
    ADD,
    ZERO,
    Instance,
    OneBitDiffers,
    Part,
    game,
    irr,
    known,
    private,
    rr,
)
from stream_dp.verify.relations.creation import Parameters, Renyi, approximate, privacy_function
from stream_dp.verify.relations.pair_conditions import (
    CreatedWithin,
    k_sparse,
    k_sparse_first_pair,
    k_sparse_with_delta_budget,
    randomized_response_only,
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
