"""Choosing the HSS of [HSV] as printed, where the relation is the one that it is made for."""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.paper_hss import PaperHSS
from stream_dp.mechanisms.quantities import Quantity
from stream_dp.pipeline.choice import ENDLESS, Choice, Setting


def paper_hss_choice(
    setting: Setting, quantity: Quantity, epsilon: Fraction, expected_events: int | None
) -> Choice:
    """Choose Alg. 4; the error to expect is predicted for the expected events, or else for one a tick.

    Raises:
        UsageError: the relation is not `replace`, or the quantity is not 1-sensitive under ~_H.
    """
    if setting.neighbors is not Neighbors.REPLACE:
        raise UsageError(
            "method paper_hss: [HSV] Alg. 4 is made for ~_H, where a row is replaced, and here mechanisms are made for "
            f"{setting.neighbors}; declare `neighbors: replace` with `moves: within_tick`, or use method hss"
        )
    mechanism = PaperHSS(setting.width, quantity, epsilon, setting.horizon)
    events = expected_events or setting.horizon or ENDLESS
    return Choice(mechanism, "method: paper_hss", _predicted(mechanism, setting, events))


def _predicted(mechanism: PaperHSS, setting: Setting, events: int) -> Callable[[int], int]:
    """The band expected at a tick, halfway to the next crossing: all events in one column, evenly over the horizon."""

    @lru_cache(maxsize=256)
    def expected(tick: int) -> int:
        so_far = events * (tick + 1) // (setting.horizon or ENDLESS)
        now, closed = tick + 1, 0
        reach = mechanism.gamma(now, 1)
        while so_far > reach and closed < now:
            closed += 1
            reach += mechanism.gamma(now, closed + 1)
        behind = mechanism.gamma(now, closed + 1) // 2
        return mechanism.band((setting.horizon or now, closed, behind), setting.confidence)

    return expected
