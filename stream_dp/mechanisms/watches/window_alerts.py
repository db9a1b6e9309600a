"""Watches over windows that all fire on one side, for good: a replaced event costs three quarters of what it would.

The law is that of `monitor` (`watch_block`), for watches that are declared and stay: none is armed or disarmed. What an
instance over a window pays depends on which of the two copies has the event, and under `replace` each place that an
event leaves has its counterpart in one that it enters. This file knows no names, filters or keys.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from stream_dp.accounting.amounts import text
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hss.sparse_vector import SOURCE
from stream_dp.mechanisms.watches.monitor_state import MonitorState
from stream_dp.mechanisms.watches.watch_block import WatchBlock
from stream_dp.mechanisms.watches.watch_messages import ArmQuery, DisarmQuery, WatchTerms

TEST = "tests/statistical/test_privacy_window_alerts.py"  # exact, against every adaptive adversary


@wire("window-alerts", 1)
@dataclass(frozen=True)
class WindowAlerts(WatchBlock):
    """Answers of shape (width,): 1 where a watch fires in this tick, else 0; a free place answers 0.

    `watches` are armed from place 0 on, all over windows, all above their thresholds or all `below`. `ones`: the most
    places that one event counts in, once in each.

    Privacy claim: epsilon-DP for such event streams under `neighbors`, for ever, adaptively, whatever thresholds are
    asked. With e1 for the noise on the thresholds and e2 for that of the comparisons, s = min(ones, width) places that
    one content counts in and L0 places that an event changes: s e1 + L0 e2. It is met, so no less holds.

    Proof. The answers say where instances begin and end, and each place draws its own noise. So the odds of a
    transcript are the product of those of its instances, whatever an adversary chose by the answers, and an event is in
    one instance of each place. Say that watches fire above, the margin of a comparison is m - c, for a count c, and it
    fires where its draw is at least that and the noise t on the threshold; with the event c is one more while it is in
    the window, and the same after.

    - The copy with the event over the one without it: for each t what fails with it fails without it. What crosses is
      at most exp(e2) times as likely with it. In all e2; nothing where no comparison crosses.
    - The other way round: read t + 1 for t in the copy with the event, which is exp(-e1) times as likely. What fails
      without it then fails with it, for its margin is the same, or larger. What crosses without it then crosses with
      it at the same margin while the event is in, and at one more when it has left: exp(e2). In all e1 + e2.

    Below a threshold an event makes margins larger, so the two change places. An event that is replaced is in at most
    s places before and in at most s after, in at most L0 where just one copy has it. Either way round at most s of
    these pay e1 + e2, and the others e2. Under `add_remove` all pay e1 + e2, and s = L0. Watches on two sides would pay
    e1 + e2 in all places, as `monitor` does. Both noises have one scale: the best two would have 2 % less between them.

    Raises:
        UsageError: the watches do not fit into the places, or their windows into a state; one is not over a window, or
            fires on the other side; noise that is too wide to be drawn.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    watches: tuple[WatchTerms, ...]
    ones: int = 1

    def __post_init__(self) -> None:
        """Refuse watches that are not alike, or cannot be held, and noise that cannot be drawn."""
        if not self._one_side:
            raise UsageError(
                "these watches are over windows, all above or all below: use a Monitor"
            )
        self.require_room()

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`."""
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def _one_side(self) -> bool:
        """Whether all are over windows, and fire on the same side."""
        return all(watch.window for watch in self.watches) and (
            len({watch.below for watch in self.watches}) <= 1
        )

    @property
    def _of_one_content(self) -> int:
        """How many places one content of an event counts in, at most."""
        return min(self.ones, self.width)

    @cached_property
    def scale(self) -> Fraction:
        """Scale of both geometric noises."""
        return (self._of_one_content + self.l0) / self.epsilon

    @cached_property
    def window_scale(self) -> Fraction:
        """Scale of both geometric noises, for all watches are over windows."""
        return self.scale

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: every instance that one event reaches, by which of the copies has it there.

        Raises:
            NotDerivable: the noise is too small for `epsilon`, or the watches are not alike.
        """
        side = Condition(
            "one side",
            self._one_side,
            "all fire above or all below, none is armed or disarmed: the copy with the event is at most e^e2 times as "
            "likely, the one without it e^(e1 + e2), or all the other way round",
        )
        most, changed, scale = self._of_one_content, self.l0, self.window_scale
        sides = Condition(
            "noise",
            (most + changed) / scale <= self.epsilon,
            f"one event under {self.neighbors} changes at most {changed} of {self.width} places, in one instance each, "
            f"and one copy has it in at most {most}: cost {most} e1 + {changed} e2, both at scale {text(scale)}; "
            f"checked by {TEST}",
        )
        subject = f"watches over windows in {self.width} places, re-armed for ever"
        return leaf(subject, self.guarantee, SOURCE, (side, sides))

    def step(
        self, state: MonitorState, message: Message, noise: Noise
    ) -> tuple[MonitorState, IntArray | None]:
        """Add a row, compare every watch, or ask one.

        Raises:
            RejectedMessage: a bad row, place or threshold, a watch that has ended or seen no whole window; a watch that
                is to be armed or disarmed.
        """
        if isinstance(message, ArmQuery | DisarmQuery):
            raise RejectedMessage("the watches of this block are those that it was made with")
        return super().step(state, message, noise)
