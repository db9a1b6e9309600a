"""A quantity of somebody's own that runs alone: a function of the keys' counts so far."""

from stream_dp.app.standalone.keyed import Keyed
from stream_dp.core.messages import IntArray


class ContinualQuantity(Keyed[int]):
    """A monotone function of the keys' counts so far; made by `Budget.quantity`, which has tested the function.

    Privacy claim: epsilon-DP for all releases together, for ever, adaptively, as long as the function is what was
    stated of it: one event changes it by at most 1. A test is evidence and no proof; `derivation` says so. Neighbouring
    streams differ in one event: +1 at up to `most` keys in one tick, or under `replace` at others of the same tick (HSS
    on the function, [HSV] Thm 6.1).

    Examples
    --------
    >>> from stream_dp import Budget
    >>> def least(counts):
    ...     return min(counts.tolist())
    >>> everywhere = Budget(epsilon=1).quantity(
    ...     epsilon="0.5", keys=["DE", "FR"], function=least, horizon=24
    ... )
    >>> everywhere.add("DE", 3)
    >>> everywhere.release().value >= 0
    True
    """

    __slots__ = ()

    def _value(self, answer: IntArray) -> int:
        return int(answer[0])
