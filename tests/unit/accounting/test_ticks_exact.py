"""Time: the largest load of a tick against the exact privacy of mechanisms with lives of their own.

An adversary creates three mechanisms, sends each a bit per tick of its life, and lets one tick of its choice, seen what
came before, differ for every mechanism alive then (`verify.exact_checks.alive`).
"""

from fractions import Fraction

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.derive import derive
from stream_dp.core.guarantee import differential_privacy
from stream_dp.verify.exact.exact_delta import worst_ratio
from stream_dp.verify.exact_checks.alive import LIVES, ODDS, TICKS, lives


def test_the_largest_load_is_the_exact_privacy_loss() -> None:
    """Loads 3, 3 x 2 = 6, 2 x 5/2 = 5 as odds: exactly 6, and neither their product nor what is alive at the end."""
    instance = lives()
    exact = worst_ratio(instance.machine, instance.pairs, instance.rounds)
    assert exact == 6
    booked = derive(instance.premises, instance.situation).guarantee.measure
    claimed = Interval.of(differential_privacy(booked).epsilon).exp()
    assert exact <= claimed.upper <= exact * (1 + Fraction(1, 10**40))


def test_a_halt_that_frees_past_ticks_is_caught() -> None:
    """The twin forgets a halted mechanism: at tick 2 it says 2 x 5/2 = 5, and 6 was lost at tick 1."""
    instance = lives()
    exact = worst_ratio(instance.machine, instance.pairs, instance.rounds)
    last = TICKS - 1
    still = [
        o for o, life in zip(ODDS, LIVES, strict=True) if life.last is None or life.last >= last
    ]
    assert still[0] * still[1] == 5 < exact
