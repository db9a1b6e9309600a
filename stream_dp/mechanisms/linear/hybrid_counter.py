"""Continual counters for a number of updates nobody knows beforehand (Chan, Shi, Song 2011, hybrid mechanism).

Epoch e covers 2^e updates and runs a tree of its own at (1-w) of the budget; the totals of the finished epochs
go into one tree of at most 40 steps at w of the budget (w and its shape are best for 2^10 to 2^20 updates). An update
lies in one epoch and in one total, so the two add up to the whole. This file knows no ticks and no names.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.derivation import Derivation
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.column_counter import ColumnCounter
from stream_dp.mechanisms.linear.columns import columns_derivation
from stream_dp.mechanisms.linear.tree import TreeNoise, TreeState, rounded
from stream_dp.mechanisms.linear.tree_shape import TreeShape, worst_prefix
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.row_check import checked

SOURCE = "hybrid of trees (Chan, Shi, Song 2011)"
TOTALS_SHARE = Fraction(3, 10)
TOTALS_SHAPE = TreeShape(arity=8, height=2)
LAST_EPOCH = 40


@wire("hybrid-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class HybridState:
    """`total`: exact counts, private. `epoch`: its number; `inner`, `totals`: the two noises."""

    total: IntArray
    epoch: int
    inner: TreeState
    totals: TreeState


@wire("hybrid-counter", 2, rests_on=(TreeNoise,))
@dataclass(frozen=True)
class HybridCounter(ColumnCounter):
    """`width` continual counters for any number of updates (up to 2^40).

    `ones`: the most entries of a row that one event sets (1: one-hot rows).

    Privacy claim: `epsilon`-DP for such event streams under `neighbors`, at every prefix, adaptively:
    an event changes one update, which lies in one epoch tree ((1-w) epsilon, parallel over the epochs,
    [HSV] Cor 5.5 with k = 1) and in one step of the tree of totals (w epsilon); columns by Cor 5.5, k = L0.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int = 1

    @cached_property
    def totals(self) -> TreeNoise:
        """The tree over finished epochs."""
        scale = TOTALS_SHAPE.height / (TOTALS_SHARE * self.column_epsilon)
        return TreeNoise(TOTALS_SHAPE, scale, self.width)

    def inner(self, epoch: int) -> TreeNoise:
        """The tree inside this epoch."""
        while epoch >= len(self._inners):
            shape = TreeShape.best(1 << len(self._inners))
            scale = shape.height / ((1 - TOTALS_SHARE) * self.column_epsilon)
            self._inners.append(TreeNoise(shape, scale, self.width))
        return self._inners[epoch]

    @cached_property
    def _inners(self) -> list[TreeNoise]:
        """The trees of the epochs needed so far."""
        return []

    def noise_terms(self, updates: int) -> list[Term]:
        """The independent noises in the answer after `updates` updates, before it is rounded."""
        epoch, inside = _place(updates)
        return [*self.inner(epoch).terms(inside), *self.totals.terms(epoch)]

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: an epoch's tree noise and that of the totals, the columns in parallel.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        return columns_derivation(
            "one counter, any number of updates",
            SOURCE,
            (self.inner(0), self.totals),
            self.column_epsilon,
            self.neighbors,
            self.ones,
        )

    def most_noise_terms(self, updates: int) -> list[Term]:
        """The noises of the answer with the largest variance in the epoch that `updates` lies in."""
        epoch, _ = _place(updates)
        inner = self.inner(epoch)
        return [*inner.terms(worst_prefix(inner.shape, 1 << epoch)), *self.totals.terms(epoch)]

    def init(self, noise: Noise) -> HybridState:
        """Return the first state: all counts zero, epoch 0."""
        zeros = np.zeros(self.width, dtype=np.int64)
        return HybridState(zeros, 0, self.inner(0).init(noise), self.totals.init(noise))

    def step(
        self, state: HybridState, message: Message, noise: Noise
    ) -> tuple[HybridState, IntArray | None]:
        """Add a row, or answer the noisy counts, shape (width,).

        Raises:
            RejectedMessage: a bad row, or more than 2^40 updates.
        """
        if isinstance(message, Query):
            fine = self.inner(state.epoch).fine(state.inner) + self.totals.fine(state.totals)
            return state, state.total + rounded(fine)
        row = checked(message.row, self.width)
        epoch, inner, totals = state.epoch, state.inner, state.totals
        if inner.prefix == 1 << epoch:
            if epoch == LAST_EPOCH:
                raise RejectedMessage("this counter has had 2^40 updates; create a new one")
            totals = self.totals.advance(totals, noise)
            epoch, inner = epoch + 1, self.inner(epoch + 1).init(noise)
        inner = self.inner(epoch).advance(inner, noise)
        return HybridState(state.total + row, epoch, inner, totals), None


def _place(updates: int) -> tuple[int, int]:
    """(epoch, updates inside it) after `updates` updates; an epoch ends with its own last update."""
    if updates == 0:
        return 0, 0
    epoch = updates.bit_length() - 1
    inside = updates - (1 << epoch) + 1
    return epoch, inside
