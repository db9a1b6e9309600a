"""A continual count that runs alone: how many events so far."""

from stream_dp.core.messages import IntArray
from stream_dp.python.standalone.numbers import events_from
from stream_dp.python.standalone.told_counts import Counting


class ContinualCounter(Counting[int, int]):
    """How many events so far, released once each tick; made by `Budget.counter`.

    Privacy claim: `guarantee` (epsilon-DP, or zCDP or Gaussian DP by Gaussian noise) for all releases together, for
    ever, against readers who choose what to do next by what they saw. Neighbouring streams differ in one event: +1 in
    one tick. The derivation is in `derivation` (a k-ary tree, arXiv 2408.07021, optimally decoded; a hybrid of trees,
    Chan, Shi, Song 2011, where no horizon is declared; discrete Gaussian noise correlated over time, arXiv 2404.16706).
    Where a person has several events, each is protected for itself, not all together.

    Examples
    --------
    >>> from stream_dp import Budget
    >>> counter = Budget(epsilon=1).counter(epsilon="0.1", horizon=8760)
    >>> counter.add(3)
    >>> release = counter.release()
    >>> release.tick, type(release.value), release.band > 0, release.confidence
    (0, <class 'int'>, True, 0.95)
    >>> counter.last is release
    True
    """

    __slots__ = ()

    def add(self, events: int = 1) -> None:
        """Add events to the open tick.

        Parameters
        ----------
        events : int
            How many, 0 or more. Each of them is protected on its own.

        Raises
        ------
        RejectedMessage
            No number of events, or the horizon is reached; nothing has changed.
        FailClosed
            In a forked process.
        """
        self._add(self._changes(events))

    def _changes(self, events: int) -> dict[int, int]:
        return {0: events_from(events)}

    def _value(self, answer: IntArray) -> int:
        return int(answer[0])
