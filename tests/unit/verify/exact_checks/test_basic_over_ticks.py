"""The basic filter over time, exactly: what a halt frees, and what it must not.

A mechanism with a delta beside pure ones that come and go; an event is in one tick, chosen by past answers. Oracle: the
recursion over all adversaries. Twins: a ledger that frees a delta, and one that books less than is alive at a tick.
"""

from fractions import Fraction

from stream_dp.accounting.amounts import exact
from stream_dp.accounting.filters.linear import BasicFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.composition import Create, Halt
from stream_dp.core.guarantee import differential_privacy
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.randomized_response import LateResponse
from stream_dp.verify.exact_checks.alive import OneTickDiffers, bits
from stream_dp.verify.exact_checks.instance import OneBitDiffers, Part, composed, private

TWO, THREE, TENTH = Fraction(2), Fraction(3), Fraction(1, 10)
Steps = tuple[tuple[int, Create | Halt | int], ...]
LATE = Part("late", LateResponse(THREE, TENTH), private(THREE, TENTH), OneBitDiffers())
BITS = bits(TWO)


def worst(steps: Steps, ratio: Fraction) -> Fraction:
    """The delta at ln ratio of the best adversary, who chooses the tick of the event."""
    return exact_delta(composed(), OneTickDiffers(steps), ratio, len(steps))


IN_TURN: Steps = (
    (0, LATE.create), (0, BITS.create), (0, 0), (0, 1),
    (1, Halt(1)), (1, BITS.create), (1, 0), (1, 2),
)  # fmt: skip
TWO_LATE: Steps = (
    (0, LATE.create), (0, 0), (1, 0), (2, Halt(0)), (2, LATE.create), (2, 1), (3, 1),
)  # fmt: skip


def test_a_halt_frees_a_pure_mechanism_beside_one_with_a_delta() -> None:
    """Booked (ln 3 + ln 2, 1/10): met exactly; less epsilon would not be enough."""
    measures = [part.measure for part in (LATE, BITS)]
    ledger = Ledger.under(BasicFilter.of(Fraction(2), TENTH))
    entries = [ledger.ask("m", measure, "r") for measure in measures]
    ledger = ledger.charge(entries[0]).charge(entries[1])
    ledger = ledger.halt(entries[1], 1).charge(entries[1], 1)
    booked = differential_privacy(ledger.filter.least(ledger.peak))
    assert float(exact(ledger.peak.amount)) - 1.791759 < 1e-5  # ln 6, not ln 12
    assert worst(IN_TURN, THREE * TWO) == booked.delta == TENTH
    assert worst(IN_TURN, THREE) > TENTH


def test_a_delta_that_is_freed_is_exceeded() -> None:
    """One after the other: each tells of its failure before the event is placed."""
    ledger = Ledger.under(BasicFilter.of(Fraction(9), TENTH))
    entry = ledger.ask("m", LATE.measure, "r")
    ledger = ledger.charge(entry).halt(entry, 2)
    assert not ledger.preview(entry).fits
    assert worst(TWO_LATE, THREE) == 1 - (1 - TENTH) ** 2
