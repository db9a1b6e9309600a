"""Mechanisms whose privacy is broken in one known way each: the attacks of tests/statistical must catch them."""

from dataclasses import replace
from fractions import Fraction

from stream_dp.core.mechanism import IntArray, Message, Noise, Query
from stream_dp.mechanisms.hss.hss import HSS, HSSState
from stream_dp.mechanisms.hss.sparse_vector import SparseVector, SparseVectorState
from stream_dp.mechanisms.linear.counter import HandOverCounter


class WidthForgottenHandOver(HandOverCounter):
    """Every column at the full epsilon, also under replace (L0 forgotten)."""

    @property
    def unit_epsilon(self) -> Fraction:
        return self.epsilon


class CheapQueryNoise(SparseVector):
    """s = 1 whatever the relation."""

    @property
    def query_scale(self) -> Fraction:
        return 1 / self.query_epsilon


class GoesOn(SparseVector):
    """Answers after its first "above" with the same noisy threshold."""

    def step(
        self, state: SparseVectorState, message: Message, noise: Noise
    ) -> tuple[SparseVectorState, IntArray | None]:
        after, answer = super().step(state, message, noise)
        return replace(after, halted=False), answer


class AliasedHistogram(HSS):
    """The exact interval sums run on in the released histogram ([HSV] erratum: it must be copied)."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """A row is written into what is released next."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Query):
            return after, answer
        return replace(after, released=after.released + message.row), answer


class CheapHSS(HSS):
    """Its instances have s = 1 under replace."""

    def instance(self, released: IntArray | None = None) -> SparseVector:
        right = super().instance(released)
        return CheapQueryNoise(
            right.width, right.threshold_epsilon, right.query_epsilon, right.neighbors, right.offset
        )


class L0FreeHSS(HSS):
    """Its counter forgets L0."""

    @property
    def counter(self) -> HandOverCounter:
        return WidthForgottenHandOver(self.width, self.counter_epsilon, self.neighbors)


class KeepsItsSum(HSS):
    """The interval's sum is not cleared: an event enters the counter again at each crossing."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        return replace(super()._close(state, noise), pending=state.pending)
