"""[Lyu] Thm 3 and [HSV] Lemma 4.7, 5.6 constructed: four systems, their sum, and IRR behind the post-processor.

The equality is of exact laws over all transcripts of all query sequences, against the machine played by itself. Twins:
a split that forgets the control function, a post-processor that never asks for the bit, and one that knows no failure.
"""

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.verify.exact import exact_delta as module
from stream_dp.verify.exact.exact_delta import Decomposition, ResponsePostProcessor, exact_delta
from stream_dp.verify.exact.randomized_response import NoisyBits
from stream_dp.verify.exact_checks.table import (
    MACHINES,
    ONE_BIT,
    Universal,
    adds_up,
    constructed,
)

ONE, TWO, THREE = Fraction(1), Fraction(2), Fraction(3)
BY_WORDS = {machine.words: machine for machine in MACHINES}
every_machine = pytest.mark.parametrize("universal", MACHINES, ids=BY_WORDS)
TORN = BY_WORDS["a coin before a leak, one way (erratum of Lemma 5.6)"]


@every_machine
def test_the_claims_are_true(universal: Universal) -> None:
    assert (
        exact_delta(universal.machine, universal.pairs, universal.ratio, universal.rounds)
        <= universal.delta
    )


def test_every_machine_is_irr_behind_its_post_processor() -> None:
    result = list(constructed())
    assert len(result) == len(MACHINES)
    assert all(built.decomposed and built.equal for built in result)


@every_machine
def test_every_law_has_all_its_mass(universal: Universal) -> None:
    """The oracle: chances of each length and query sequence add up to 1."""
    for b in (0, 1):
        sums: dict[Any, Fraction] = {}
        for transcript, chance in universal.law(b).items():
            queries = tuple(pair for pair, _ in transcript)
            sums[queries] = sums.get(queries, Fraction(0)) + chance
        assert set(sums.values()) == {ONE}


@every_machine
def test_the_bit_is_not_asked_for_while_pairs_are_equal_but_for_the_erratum(
    universal: Universal,
) -> None:
    """[HSV] Lemma 5.6, second part, under relations whose pairs may be exchanged."""
    if universal.rounds < 2 or "IRR" in universal.words:
        return  # their only pair is a data set, and a data set that is known needs no bit
    asked = ResponsePostProcessor(universal.taken_apart()).asked()
    most = max(n for t, n in asked.items() if all(a == b for (a, b), _ in t))
    assert most == (2 if universal is TORN else 1)
    assert max(asked.values()) == 2


def test_no_post_processor_of_the_torn_leak_asks_once() -> None:
    """The leaks behind tails and heads need all of delta each: together 2 delta, and there is delta."""
    first = dict(TORN.taken_apart().answers((), (0, 0)))
    assert first["tails"].bad == (TORN.delta, 0)
    assert first["heads"].bad == (0, TORN.delta)
    assert exact_delta(TORN.machine, TORN.pairs, TORN.ratio, TORN.rounds) == TORN.delta


def test_a_split_without_the_control_function_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bad mass spread by the mass of the answers: some good mass becomes negative."""

    def even(total: Any, bounds: list[Any]) -> list[Any]:
        sums = [sum(b.whole[i] for b in bounds) for i in (0, 1)]
        return [tuple(total[i] * b.whole[i] / sums[i] for i in (0, 1)) for b in bounds]

    monkeypatch.setattr(module, "shared", even)
    assert not adds_up(BY_WORDS["a failure that is announced before the bit differs"].taken_apart())


def test_one_who_never_asks_for_the_bit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponsePostProcessor, "_matters", lambda *_: False)
    assert not all(built.equal for built in constructed())


def test_one_who_does_not_tell_failures_apart_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponsePostProcessor, "_of", staticmethod(lambda _, masses: masses.good))
    assert not all(built.equal for built in constructed() if built.words.startswith("RR"))


def test_what_is_less_private_has_no_decomposition() -> None:
    with pytest.raises(ValueError, match=r"not \(eps, delta\)-DP"):
        Decomposition(NoisyBits(THREE), ONE_BIT, TWO, Fraction(1, 5), 2)
    with pytest.raises(ValueError, match="above 1"):
        Decomposition(NoisyBits(THREE), ONE_BIT, ONE, Fraction(1, 10), 2)
