"""Alerts that run alone: which keys have had about so many events since their last alert."""

from stream_dp.core.messages import IntArray
from stream_dp.python.standalone.keyed import Keyed


class ContinualAlerts(Keyed[tuple[str, ...]]):
    """Which keys have had about `threshold` events since they fired last; made by `Budget.alerts`.

    Privacy claim: epsilon-DP for all releases together, for ever and however often it fires, adaptively. Neighbouring
    streams differ in one event: +1 at up to `most` keys in one tick, or under `replace` at others of the same tick. The
    derivation is in `derivation` (sparse vector per key, re-armed: [HSV] Cor 5.5, one-sided noise of arXiv 2407.20068).

    A release's value names the keys that fired; its band says by how many events an alert may be early or late.

    Examples
    --------
    >>> from stream_dp import Budget
    >>> alerts = Budget(epsilon=1).alerts(epsilon=1, keys=["DE", "FR"], threshold=10_000)
    >>> alerts.add("DE", 20_000)
    >>> alerts.release().value
    ('DE',)
    """

    __slots__ = ()

    def _value(self, answer: IntArray) -> tuple[str, ...]:
        return tuple(key for key, fired in zip(self.keys, answer.tolist(), strict=True) if fired)
