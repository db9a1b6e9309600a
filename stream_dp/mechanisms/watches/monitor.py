"""Many watches in one block: thresholds of their own, re-armed or once, asked, armed and disarmed while they run.

A watch over the events since its last crossing is a count sparse vector, as in `alerts`: one event shifts all that it
is asked, until it halts, by the same +1, whatever public thresholds come and however many in one tick. One over a
window is a sparse vector too, but an event leaves the window again: it shifts what is asked while it is in, and nothing
after that. A watch of single ticks would shift one comparison only: there each tick's count gets its own discrete
Laplace noise, and every question about that tick is answered from that one noisy count. Rules: what crosses takes its
whole tick with it, the next instance starts from zero with the next tick, also in a window; a free place counts
nothing; a count that is told at a crossing has noise of its own, never that of the comparison. The law is in
`watch_block`, how much noise in `watch_noise`; here is what it costs. This file knows no names, filters or keys.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Fixed, Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.how_many import how_many
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hss.sparse_vector import SOURCE
from stream_dp.mechanisms.watches.watch_block import WatchBlock
from stream_dp.mechanisms.watches.watch_messages import (
    WatchTerms,
)

TEST = "tests/statistical/test_privacy_monitor.py"  # exact, against every adaptive adversary
LAPLACE = "discrete Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009)"
NONE = Fraction(0)


@wire("monitor", 1)
@dataclass(frozen=True)
class Monitor(WatchBlock):
    """Answers of shape (width,): 1 where a watch fires in this tick, else 0; a free place answers 0.

    With a `value_epsilon` the shape is (2 * width,): behind those the count of each watch that fires, noised, 0 else.
    `watches` are armed first, from place 0 on; others can be armed in free places later. `ones`: the most armed places
    that one event counts in, once in each. An answer to a `ThresholdQuery` has that one entry, or two.

    Privacy claim: (epsilon + value_epsilon)-DP for such event streams under `neighbors`, for ever, adaptively, whatever
    thresholds are asked and whatever is armed and disarmed. One instance is a watch between two of its crossings, or
    one tick of a watch of single ticks; one event reaches one instance in each of L0 places at most ([HSV] Cor 5.5,
    k = L0). An instance since a crossing costs max(e1, e2), both epsilon / L0 (`alerts`), and its count, told once with
    fresh noise, value_epsilon / L0 more. A tick's noisy count has both shares for itself; all else is made of it.

    An instance over a window costs max(e1 + e2, max(e1, e2) + e3), e3 for its count: more events shift the noisy
    threshold by 1 (e1), which pays for all comparisons that fail, and for a crossing while the event is in the window.
    There the count differs too (e3). A crossing after it has left costs e2 more, and the count is the same. Fewer
    events cost nothing where comparisons fail, and at a crossing e2 + e3 or nothing.

    Raises:
        UsageError: the watches do not fit into the places, or their windows into a state; noise that is too wide to be
            drawn.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    watches: tuple[WatchTerms, ...]
    ones: int = 1
    value_epsilon: Fraction = NONE

    def __post_init__(self) -> None:
        """Refuse more watches than places, windows that cannot be held and noise that cannot be drawn."""
        self.require_room()

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at the sum of the two shares."""
        return Guarantee(PureDP(self.epsilon + self.value_epsilon), self.neighbors)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one instance of each kind, then all places in parallel, re-armed for ever.

        Raises:
            NotDerivable: the noise is too small for the two shares.
        """
        touched = Touched.columns(self.neighbors, self.width, "place", self.ones)
        share = self.epsilon / touched.k
        shift = Condition(
            "constant shift",
            self.scale * share >= 1,
            "one event shifts all that an instance is asked until its halt by the same amount: cost max(e1, e2), both "
            f"at scale {text(self.scale)}",
        )
        since = self._leaf("one instance since a crossing", share, SOURCE, shift)
        if self.value_epsilon:
            since = derive(
                (since, self._told(touched.k)), Fixed("a watch and its count at its crossing")
            )
        whole = (self.epsilon + self.value_epsilon) / touched.k
        drawn = Condition(
            "noise",
            self.tick_scale * whole >= 1,
            f"an event changes the count of one tick by 1; scale {text(self.tick_scale)}",
        )
        tick = self._leaf("one tick of a watch of single ticks", whole, LAPLACE, drawn)
        window = self._leaf("one instance over a window", whole, SOURCE, *self._window(whole))
        why = f"an event reaches one live instance per watch; {touched.why}; checked by {TEST}"
        places = Parallel(
            f"watches in {how_many(self.width, 'place')}, for ever",
            replace(touched, why=why),
            (None,) * 3,
        )
        return derive((since, tick, window), places)

    def _window(self, whole: Fraction) -> tuple[Condition, ...]:
        """What an instance over a window rests on."""
        scale = self.window_scale
        compared = Condition(
            "one sign",
            2 / scale <= whole,
            "one event shifts what an instance is asked by the same amount or, out of the window, not at all: cost "
            f"e1 + e2, both at scale {text(scale)}",
        )
        if not self.value_epsilon:
            return (compared,)
        told = self.window_value_scale
        fresh = Condition(
            "fresh noise",
            1 / scale + 1 / told <= whole,
            f"a count that an event changes crosses with the event in: e1 or e2 there, and scale {text(told)} for it",
        )
        return compared, fresh

    def _told(self, touched: int) -> Derivation:
        share = self.value_epsilon / touched
        fresh = Condition(
            "fresh noise",
            self.value_scale * share >= 1,
            f"never that of the comparison; sensitivity 1, scale {text(self.value_scale)}, told once an instance",
        )
        return self._leaf("the count at a crossing", share, LAPLACE, fresh)

    def _leaf(self, subject: str, epsilon: Fraction, source: str, *why: Condition) -> Derivation:
        return leaf(subject, Guarantee(PureDP(epsilon), self.neighbors), source, why)
