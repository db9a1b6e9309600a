"""Continual counters: how many events so far, per column, at every step of a declared horizon.

One column is a counter, several columns are a histogram of counters: an event touches L0 columns (over one-hot
rows 1 under add_remove, 2 under replace), so each column runs at epsilon / L0 ([HSV] Cor 5.5 with k = L0).
The answer is the exact integer count plus integer tree noise. This file knows no ticks and no names.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.derivation import Derivation
from stream_dp.core.how_many import how_many
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.column_counter import ColumnCounter
from stream_dp.mechanisms.linear.columns import columns_derivation
from stream_dp.mechanisms.linear.tree import TreeNoise, TreeState
from stream_dp.mechanisms.linear.tree_shape import TreeShape
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.row_check import checked, require_left

SOURCE = "k-ary tree, l1 sensitivity = height (arXiv 2408.07021), decoded by least squares"


@wire("counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class CounterState:
    """`total`: exact counts, shape (width,), private. `tree`: the noise at the current step."""

    total: IntArray
    tree: TreeState


@wire("counter", 1, rests_on=(TreeNoise,))
@dataclass(frozen=True)
class Counter(ColumnCounter):
    """`width` continual counters for at most `horizon` updates.

    `ones`: the most entries of a row that one event sets (1: one-hot rows).

    Privacy claim: `epsilon`-DP for such event streams under `neighbors`, at every prefix, adaptively: k-ary tree of l1
    sensitivity = height (as Andersson, Pagh et al., arXiv 2408.07021), decoded by least squares (`tree` has the proof);
    columns composed in parallel by [HSV] Cor 5.5. Every entry of a step may change by at most one.

    >>> from stream_dp.testing.noise import ZeroNoise
    >>> from stream_dp.core.messages import Update
    >>> counter = Counter(1, Fraction(1), Neighbors.ADD_REMOVE, horizon=10)
    >>> state = counter.init(ZeroNoise())
    >>> state, _ = counter.step(state, Update(np.array([3])), ZeroNoise())
    >>> counter.step(state, Query(), ZeroNoise())[1]
    array([3])
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    horizon: int
    ones: int = 1

    @cached_property
    def tree(self) -> TreeNoise:
        """The noise process; node scale = height / column epsilon."""
        shape = TreeShape.best(self.horizon)
        return TreeNoise(shape, Fraction(shape.height) / self.column_epsilon, self.width)

    def noise_terms(self, updates: int) -> list[Term]:
        """The independent noises in the answer after `updates` updates, before it is rounded."""
        return self.tree.terms(updates)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: each column's tree noise, the columns in parallel.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        return columns_derivation(
            f"one counter, {how_many(self.horizon, 'update')}",
            SOURCE,
            (self.tree,),
            self.column_epsilon,
            self.neighbors,
            self.ones,
        )

    def init(self, noise: Noise) -> CounterState:
        """Return the first state: all counts zero."""
        return CounterState(np.zeros(self.width, dtype=np.int64), self.tree.init(noise))

    def step(
        self, state: CounterState, message: Message, noise: Noise
    ) -> tuple[CounterState, IntArray | None]:
        """Add a row, or answer the noisy counts, shape (width,).

        Raises:
            RejectedMessage: a bad row, or an update beyond the horizon.
        """
        if isinstance(message, Query):
            return state, state.total + self.tree.value(state.tree)
        row = checked(message.row, self.width)
        require_left(state.tree.prefix, self.horizon)
        return CounterState(state.total + row, self.tree.advance(state.tree, noise)), None
