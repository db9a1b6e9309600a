"""A continual maximum that runs alone: how many events so far with the key that has most, and which it is."""

from typing import Any

from stream_dp.core.messages import IntArray
from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.keyed import Keyed


class ContinualMaximum(Keyed[int]):
    """How many events so far at the key that has most, and which key; made by `Budget.maximum`.

    A release's `name` is the key, of equal ones the first; None while the value is 0. Its band holds for the largest
    count and for the count of this key at once.

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
    >>> release = busiest.release()
    >>> release.value >= 0, release.name in {"DE", "FR", None}
    (True, True)
    """

    __slots__ = ()

    def _value(self, answer: IntArray) -> int:
        return int(answer[0])

    def _named(self, state: Any) -> str | None:
        return blocks.leading_name(self._charged.mechanism, self.keys, state)
