"""A continual histogram that runs alone: how many events so far, for each key."""

from stream_dp.core.messages import IntArray
from stream_dp.python.standalone.keyed import Keyed
from stream_dp.python.standalone.tick_release import Counts


class ContinualHistogram(Keyed[Counts]):
    """How many events so far with each of the declared keys; made by `Budget.histogram`.

    Privacy claim: `guarantee` (epsilon-DP, or zCDP or Gaussian DP by Gaussian noise) for all releases together, for
    ever, adaptively. Neighbouring streams differ in one event: +1 at up to `most` keys in one tick, or under `replace`
    at other keys of the same tick. The derivation is in `derivation` (tree counters in parallel, [HSV] Cor 5.5; HSS,
    [HSV] Thm 6.1; discrete Gaussian noise correlated over time, all keys together, arXiv 2404.16706).

    Examples
    --------
    >>> from stream_dp import Budget
    >>> by_country = Budget(epsilon=1).histogram(epsilon="0.5", keys=["DE", "FR"], horizon=24)
    >>> by_country.add("DE")
    >>> list(by_country.release().value)
    ['DE', 'FR']
    """

    __slots__ = ()

    def _value(self, answer: IntArray) -> Counts:
        return Counts(self.keys, tuple(answer.tolist()))
