"""Watches on sums: has a clamped amount added up to a threshold, since the last crossing or in a window?

The law of `monitor` on rows to which an event adds one integer amount instead of 1. What an instance costs grows with
what an event changes in it: an amount y shifts all that is asked by y, or nothing once it has left the window, and the
noises answer for it unit by unit, whatever its sign; so does the noise on a sum that is told. So all noises are as wide
as what one event changes in all its entries together. This file knows no names, filters, keys or grid.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Fixed, Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.how_many import how_many
from stream_dp.core.messages import IntArray, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hss.sparse_vector import SOURCE
from stream_dp.mechanisms.linear.event_amounts import EventAmounts
from stream_dp.mechanisms.row_check import checked_amounts
from stream_dp.mechanisms.watches.watch_block import WatchBlock
from stream_dp.mechanisms.watches.watch_messages import WatchTerms

TEST = "tests/statistical/test_privacy_sum_monitor.py"  # exact, against every adaptive adversary
NONE = Fraction(0)
SHIFT = "shifts all that is asked: max(e1, e2)"
PASSES = "shifts what is asked, or nothing: e1 + e2"


@wire("sum-monitor", 1)
@dataclass(frozen=True)
class SumMonitor(EventAmounts, WatchBlock):
    """Answers of shape (width,): 1 where a watch fires in this tick, else 0; a free place answers 0.

    With a `value_epsilon` the shape is (2 * width,): behind those the sum of each watch that fires, noised, 0 else. An
    event adds one amount from `lowest` to `highest` (in units) to at most `ones` entries of its row, or nothing;
    thresholds are in units too.

    Privacy claim: (epsilon + value_epsilon)-DP for such event streams under `neighbors`, for ever, adaptively. One
    event changes its entries by `l1` in all, and lies in one instance of each place. For each unit an instance since a
    crossing pays max(e1, e2) and what its told sum costs, one over a window the larger of e1 + e2 and max(e1, e2) with
    the sum, one of single ticks what its noisy sum costs (`monitor`, with a shift of as many units): a part of l1 each.

    Raises:
        NotDerivable: no amounts.
        UsageError: the watches do not fit into the places, or their windows into a state; noise that is too wide to be
            drawn.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    watches: tuple[WatchTerms, ...]
    lowest: int
    highest: int
    ones: int = 1
    value_epsilon: Fraction = NONE

    def __post_init__(self) -> None:
        """Refuse amounts that are none, and what cannot be held or drawn."""
        self._require_amounts()
        self.require_room()

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at the sum of the two shares."""
        return Guarantee(PureDP(self.epsilon + self.value_epsilon), self.neighbors)

    @property
    def signed(self) -> bool:
        """Whether sums may be below 0."""
        return self.lowest < 0

    @property
    def changed(self) -> int:
        """How many units one event can change in all its places together."""
        return self.l1

    def takes(self, message: object) -> bool:
        """Whether the message is a query, of whatever kind, or a row of amounts."""
        return isinstance(message, Query) or super().takes(message)

    def checked_row(self, row: IntArray) -> IntArray:
        """Return a row of amounts.

        Raises:
            RejectedMessage: a bad row.
        """
        return checked_amounts(row, self.width)

    def opening(self) -> tuple[int, int]:
        """Return what is short of the first threshold by the largest amount, in units."""
        first = max(0, self.watches[0].threshold - self.weight) if self.watches else 0
        return first, first if self.l0 > 1 else 0

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one unit in one instance of each kind, then all units of an event in all places.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        share, told = self.epsilon / self.l1, self.value_epsilon / self.l1
        since = self._unit("since a crossing", share, self._enough(share, 1 / self.scale, SHIFT))
        if told:
            sum_ = self._enough(
                told, 1 / self.value_scale, "changes what is told once, with fresh noise"
            )
            since = derive(
                (since, self._unit("of the sum at a crossing", told, sum_)),
                Fixed("a watch and its sum at its crossing"),
            )
        tick = self._enough(share + told, 1 / self.tick_scale, "changes one noisy sum")
        window = [self._enough(share + told, 2 / self.window_scale, PASSES)]
        if told:
            both = 1 / self.window_scale + 1 / self.window_value_scale
            window.append(
                self._enough(share + told, both, "in the window changes the told sum too")
            )
        each = (
            since,
            self._unit("of single ticks", share + told, tick),
            self._unit("over a window", share + told, *window),
        )
        why = (
            f"one event under {self.neighbors} changes its entries by {how_many(self.l1, 'unit')} in all, and lies in "
            f"one live instance of each; checked by {TEST}"
        )
        touched = Touched(self.l1, self.neighbors, why)
        many = f"watches on sums in {how_many(self.width, 'place')}, for ever"
        return derive(each, Parallel(many, touched, (None,) * len(each)))

    def _enough(self, epsilon: Fraction, paid: Fraction, why: str) -> Condition:
        return Condition("noise", paid <= epsilon, f"a unit {why}: {text(paid)}")

    def _unit(self, kind: str, epsilon: Fraction, *enough: Condition) -> Derivation:
        claim = Guarantee(PureDP(epsilon), self.neighbors)
        return leaf(f"one unit in one instance {kind}", claim, SOURCE, enough)
