"""Choosing the HSS of [HSV] as printed, where the relation is the one that it is made for."""

from collections.abc import Callable
from functools import lru_cache

from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.hss.gaussian_hss import GaussianPaperHSS
from stream_dp.mechanisms.hss.quantities import Quantity
from stream_dp.mechanisms.papers.paper_hss import PaperHSS
from stream_dp.statistics.choice.choice import ENDLESS, Choice, Setting, largest_rho
from stream_dp.statistics.choice.choose_hss import Demand, pure_part


def paper_hss_choice(demand: Demand) -> Choice:
    """Choose Alg. 4; the error to expect is predicted for the expected events, or else for one a tick.

    Raises:
        NotDerivable: Gaussian counters, and no delta is granted.
        UsageError: the relation is not `replace`, the quantity is not 1-sensitive under ~_H, or there is none.
    """
    setting = demand.setting
    if demand.quantity is None:
        raise UsageError("method paper_hss: [HSV] Alg. 4 releases one quantity, not a histogram")
    if setting.neighbors is not Neighbors.REPLACE:
        raise UsageError(
            "method paper_hss: [HSV] Alg. 4 is made for ~_H, where a row is replaced, and here mechanisms are made for "
            f"{setting.neighbors}; declare `neighbors: replace` with `moves: within_tick`, or use method hss"
        )
    mechanism, why = _mechanism(demand, demand.quantity), "method: paper_hss"
    if isinstance(mechanism, GaussianPaperHSS):
        why = f"{why}, counter: gaussian"
    why = f"{why}; error predicted for {demand.words}"
    predicted = _predicted(mechanism, setting, demand.events)
    return Choice(mechanism, why, predicted, supposing=demand.supposing)


def _mechanism(demand: Demand, quantity: Quantity) -> PaperHSS:
    """Thirds of epsilon, or of rho where the counters are Gaussian."""
    setting = demand.setting
    if demand.counter == "tree":
        return PaperHSS(setting.width, quantity, demand.epsilon, setting.horizon)
    rho = largest_rho(setting, demand.epsilon, "counter")
    third, paid = pure_part(rho / 3)
    return GaussianPaperHSS(setting.width, quantity, 3 * third, setting.horizon, rho=rho - 2 * paid)


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
