"""A top list that runs alone: the keys with most events, and which ranks are not told apart."""

from typing import Any

from stream_dp.core.messages import IntArray
from stream_dp.python.standalone.keyed import Keyed
from stream_dp.python.standalone.tick_release import Ranked


class ContinualTop(Keyed[tuple[Ranked, ...]]):
    """The `k` keys with most events, so far or over windows, and who is not told apart; made by `Budget.top`.

    Privacy claim: `guarantee` for all releases together, for ever, adaptively: that of the noisy counts of all keys,
    off which ranks are read. Neighbouring streams differ in one event: +1 at up to `most` keys in one tick, or under
    `replace` at others of the same tick. The derivation is in `derivation`.

    The band holds for all values of a list at once; so do the ties, for all pairs.

    Examples
    --------
    >>> from stream_dp import Budget
    >>> leaders = Budget(epsilon=1).top(epsilon=1, keys=["DE", "FR", "PL"], k=2, horizon=24)
    >>> leaders.add("FR", 9_000)
    >>> first, second = leaders.release().value
    >>> first.name, first.tied
    ('FR', ())
    """

    __slots__ = ()

    def _shown(self, place: int, view: IntArray, tick: int, state: Any) -> tuple[Ranked, ...]:
        told = self._charged.alone.tells[place](self.keys, view, tick, state)
        return tuple(Ranked(rank.name, rank.value, rank.tied, rank.more) for rank in told["ranks"])
