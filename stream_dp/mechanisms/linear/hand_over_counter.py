"""Continual counters for any number of updates, best for the first thousand: one tree hands over to the next.

Each tree takes four times the updates of the one before, at the whole budget; what it answered last stays for good, and
the next tree adds to it. An update lies in one tree ([HSV] Cor 5.5, k = 1), so no budget goes to totals; the price is
the noise of all finished trees. With many updates `hybrid_counter` is better. This file knows no ticks and no names.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

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
from stream_dp.mechanisms.linear.hand_over_schedule import HandOverSchedule
from stream_dp.mechanisms.linear.tree import TreeNoise, TreeState, rounded
from stream_dp.mechanisms.linear.tree_shape import TreeShape, worst_prefix
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.row_check import checked

SOURCE = (
    "one tree after the other, each update in one ([HSV] Cor 5.5, k = 1), decoded by least squares"
)
LAST_TREE = 17  # about 2^40 updates


@wire("hand-over-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class HandOverState:
    """`total`: exact counts, private. `number`: which tree is at work; `tree`: its noise.

    `base`: the noise in the last answers of the finished trees, private, in fixed point as a tree's.
    """

    total: IntArray
    number: int
    base: IntArray
    tree: TreeState


@wire("hand-over-counter", 1, rests_on=(TreeNoise,))
@dataclass(frozen=True)
class HandOverCounter(ColumnCounter):
    """`width` continual counters for any number of updates (up to 2^40).

    `ones`: the most entries of a row that one event sets (1: one-hot rows).

    Privacy claim: `epsilon`-DP for such event streams under `neighbors`, at every prefix, adaptively: an event
    changes one update, which lies in one tree, at the whole epsilon of its column; the trees are a parallel
    composition ([HSV] Cor 5.5, k = 1), and later answers add a finished tree's last one. Columns by Cor 5.5, k = L0.
    """

    schedule: ClassVar[HandOverSchedule] = HandOverSchedule(64, 4)

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int = 1

    def tree(self, number: int) -> TreeNoise:
        """The tree of this number."""
        while number >= len(self._trees):
            shape = TreeShape.best(self.schedule.size(len(self._trees)))
            scale = shape.height / self.column_epsilon
            self._trees.append(TreeNoise(shape, scale, self.width))
        return self._trees[number]

    @cached_property
    def _trees(self) -> list[TreeNoise]:
        """The trees needed so far."""
        return []

    def noise_terms(self, updates: int) -> list[Term]:
        """The independent noises in the answer after `updates` updates, before it is rounded."""
        number, inside = self.schedule.place(updates)
        return [*self._finished_terms(number), *self.tree(number).terms(inside)]

    def most_noise_terms(self, updates: int) -> list[Term]:
        """The noises of the answer with the largest variance under the tree of `updates`."""
        number, _ = self.schedule.place(updates)
        tree = self.tree(number)
        return [
            *self._finished_terms(number),
            *tree.terms(worst_prefix(tree.shape, self.schedule.size(number))),
        ]

    def _finished_terms(self, number: int) -> list[Term]:
        """The noises in the last answers of the trees before this one."""
        return [term for n in range(number) for term in self.tree(n).terms(self.schedule.size(n))]

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: the tree that an update lies in, the columns in parallel.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        return columns_derivation(
            "one counter, any number of updates",
            SOURCE,
            (self.tree(0),),
            self.column_epsilon,
            self.neighbors,
            self.ones,
        )

    def init(self, noise: Noise) -> HandOverState:
        """Return the first state: all counts zero, the first tree."""
        zeros = np.zeros(self.width, dtype=np.int64)
        return HandOverState(zeros, 0, zeros, self.tree(0).init(noise))

    def step(
        self, state: HandOverState, message: Message, noise: Noise
    ) -> tuple[HandOverState, IntArray | None]:
        """Add a row, or answer the noisy counts, shape (width,).

        Raises:
            RejectedMessage: a bad row, or more than 2^40 updates.
        """
        if isinstance(message, Query):
            fine = state.base + self.tree(state.number).fine(state.tree)
            return state, state.total + rounded(fine)
        row = checked(message.row, self.width)
        number, base, tree = state.number, state.base, state.tree
        if tree.prefix == self.schedule.size(number):
            if number == LAST_TREE:
                raise RejectedMessage("this counter has had 2^40 updates; create a new one")
            base = base + self.tree(number).fine(tree)
            number, tree = number + 1, self.tree(number + 1).init(noise)
        tree = self.tree(number).advance(tree, noise)
        return HandOverState(state.total + row, number, base, tree), None
