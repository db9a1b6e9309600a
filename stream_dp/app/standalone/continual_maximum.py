"""A continual maximum that runs alone: how many events so far with the key that has most."""

from stream_dp.app.standalone.keyed import Keyed
from stream_dp.core.messages import IntArray


class ContinualMaximum(Keyed[int]):
    """How many events so far at the key that has most, without saying which; made by `Budget.maximum`.

    Privacy claim: epsilon-DP for all releases together, for ever, adaptively. Neighbouring streams differ in one event:
    +1 at up to `most` keys in one tick, or under `replace` at others of the same tick. The derivation is in
    `derivation` (HSS on the largest column, [HSV] Thm 6.1).

    Examples
    --------
    >>> from stream_dp import Budget
    >>> busiest = Budget(epsilon=1).maximum(
    ...     epsilon="0.5", keys=["DE", "FR"], expected_events=100, horizon=24
    ... )
    >>> busiest.add("DE", 3)
    >>> busiest.release().value >= 0
    True
    """

    __slots__ = ()

    def _value(self, answer: IntArray) -> int:
        return int(answer[0])
