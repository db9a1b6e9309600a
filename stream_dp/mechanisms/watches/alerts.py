"""Alerts per key, re-armed for ever: "this key has had N events since its last alert".

One sparse vector instance per key over that key's count, all in one block of arrays. Re-arming is at tick
granularity: the instance that crosses takes its whole tick with it, and the next one starts from zero with the next
tick; no overshoot is carried over and no event reaches two instances. This file knows no ticks and no names.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.how_many import how_many
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hss.sparse_vector import SOURCE
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.serving import CountRows, Deciding
from stream_dp.mechanisms.watches.false_alarms import (
    crossing_chance,
    enough_margin,
    require_drawable,
)

REARMED = "tests/unit/verify/exact/test_exact_mechanisms.py"  # exact, against every adversary


@wire("alerts-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class AlertsState:
    """Per key: exact events since the last alert (private) and the noise on the threshold, shape (width,)."""

    count: IntArray
    lift: IntArray


@wire("alerts", 1)
@dataclass(frozen=True, slots=True)
class Alerts(CountRows, Deciding):
    """Answers of shape (width,): 1 where the key's count since its last alert reached `threshold`, else 0.

    `ones`: the most keys that one event counts in, once in each.

    Privacy claim: `epsilon`-DP for such event streams under `neighbors`, for ever, adaptively. One more event
    shifts the count of one live instance of each of its keys by the same +1 from its tick to the halt; that is paid
    once, by the noisy threshold (one direction) or by the query noise of the crossing (the other): cost max(e1, e2) an
    instance, so both are epsilon / L0. Instances of several keys add up, whichever way each moves (under `replace` two
    keys move in opposite directions: e1 + e2): [HSV] Cor 5.5, k = L0.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    threshold: int
    ones: int = 1

    def __post_init__(self) -> None:
        """Refuse noise that cannot be drawn."""
        require_drawable(self.scale)

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`."""
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def scale(self) -> Fraction:
        """Scale of both geometric noises."""
        return self.neighbors.l0(self.width, self.ones) / self.epsilon

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one instance of one key, then all keys in parallel, re-armed for ever.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        touched = Touched.columns(self.neighbors, self.width, "key", self.ones)
        epsilon = self.epsilon / touched.k
        shift = Condition(
            "constant shift",
            self.scale * epsilon >= 1,
            "one event shifts one key's count by the same amount until its halt: cost max(e1, e2), both at scale "
            f"{text(self.scale)}",
        )
        each = Guarantee(PureDP(epsilon), self.neighbors)
        one = leaf("one alert instance of one key", each, SOURCE, (shift,))
        why = f"an event reaches one live instance per key; {touched.why}; checked by {REARMED}"
        return derive(
            (one,),
            Parallel(
                f"{how_many(self.width, 'key')}, re-armed for ever", replace(touched, why=why)
            ),
        )

    def public(self, updates: int, state: AlertsState) -> int:
        """Return the number of updates: the longer it runs, the likelier a large draw was among them."""
        return updates

    def band(self, public: int, confidence: float) -> int:
        """Return by how many events an alert after `public` updates may come too early or too late.

        Too early needs one of at most `public` draws to exceed the threshold's, too late a large one on it.
        """
        return math.ceil(float(self.scale) * math.log((public + 1) / (1 - confidence)))

    def false_alarm(self, usual: int, comparisons: int) -> float:
        """Return the chance, at most, that one key fires in so many ticks while its count stays at `usual`."""
        return crossing_chance(self.threshold - usual, self.scale, comparisons)

    def enough_margin(self, comparisons: int, chance: float) -> int:
        """Return how far below the threshold a count must be, so that the chance of a false alarm is no more."""
        return enough_margin(self.scale, comparisons, chance)

    def opening(self) -> tuple[int, int]:
        """Return one short of the threshold: the chances of an alert are then a : 1 and 1 : a, a = e^(-1/scale)."""
        beside = self.threshold - 1 if self.neighbors.l0(self.width, self.ones) > 1 else 0
        return self.threshold - 1, beside

    def init(self, noise: Noise) -> AlertsState:
        """Return the first state: nothing counted; all instances armed."""
        return AlertsState(
            np.zeros(self.width, dtype=np.int64), noise.geometric(self.scale, self.width)
        )

    def step(
        self, state: AlertsState, message: Message, noise: Noise
    ) -> tuple[AlertsState, IntArray | None]:
        """Add a row, or compare every key and re-arm those that crossed.

        Raises:
            RejectedMessage: a bad row.
        """
        if not isinstance(message, Query):
            return AlertsState(state.count + checked(message.row, self.width), state.lift), None
        lifted = state.count + noise.geometric(self.scale, self.width)
        crossed = lifted >= self.threshold + state.lift
        lift = state.lift.copy()
        lift[crossed] = noise.geometric(self.scale, int(crossed.sum()))
        return AlertsState(np.where(crossed, 0, state.count), lift), crossed.astype(np.int64)
