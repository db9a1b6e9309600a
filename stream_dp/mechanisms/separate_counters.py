"""Continual counters whose columns close their updates apart: trees of different ages in one block of arrays.

A column's update is what has come since it was closed last; a `CloseQuery` names the columns that close now, and each
answers its exact total plus the noise of its own trees, handed over from one to the next: trees of 32, 128, 512, ...
updates, each at the whole share of the column, and of a finished tree the last noise stays. Rules: which columns close,
and when, is public; columns of one age are advanced together. This file knows no thresholds and no ticks.
"""

from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.columns import columns_derivation
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.tree import TreeNoise, TreeShape, TreeState

SOURCE = "trees handed over, an update in one of them ([HSV] Cor 5.5, k = 1)"
FIRST, GROWTH = 32, 4


@dataclass(frozen=True, slots=True, eq=False)
class CloseQuery(Query):
    """Close the updates of these columns (distinct, a public choice) and answer their counts."""

    columns: IntArray = field(kw_only=True)


@wire("separate-counters-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class SeparateState:
    """`total`: exact counts, private. `updates`: closed so far, public. Both and `base` have shape (width,).

    `base` is the noise left by finished trees; `trees[e]` has the e-th tree of every column that has come so far.
    """

    total: IntArray
    updates: IntArray
    base: IntArray
    trees: tuple[TreeState, ...]


@wire("separate-counters", 1, rests_on=(TreeNoise,))
@dataclass(frozen=True)
class SeparateCounters:
    """`width` counters for any number of updates, each closed at public times of its own.

    Answers to a `CloseQuery` of shape (columns,). `ones`: the most entries of a row that one event sets.

    Privacy claim: `epsilon`-DP under `neighbors`, at every time, adaptively: an event lies in one update of a column,
    an update in one tree, which has the column's whole epsilon / L0; the trees of a column in parallel ([HSV] Cor 5.5,
    k = 1), the columns in parallel (k = L0).
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int = 1

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`."""
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def column_epsilon(self) -> Fraction:
        """What one column may spend: epsilon / L0."""
        return self.epsilon / self.neighbors.l0(self.width, self.ones)

    def length(self, epoch: int) -> int:
        """How many updates this tree has."""
        return FIRST * int(GROWTH**epoch)

    def tree(self, epoch: int, width: int = 1) -> TreeNoise:
        """This tree's noise, for so many columns."""
        while epoch >= len(self._shapes):
            shape = TreeShape.best(self.length(len(self._shapes)))
            self._shapes.append((shape, shape.height / self.column_epsilon))
        shape, scale = self._shapes[epoch]
        return TreeNoise(shape, scale, width)

    @cached_property
    def _shapes(self) -> list[tuple[TreeShape, Fraction]]:
        """Shape and scale of the trees needed so far."""
        return []

    def place(self, updates: int) -> tuple[int, int]:
        """(tree, updates inside it) after so many updates; a tree ends with its own last update."""
        epoch = 0
        while updates > self.length(epoch):
            updates -= self.length(epoch)
            epoch += 1
        return epoch, updates

    def noise_terms(self, updates: int) -> list[tuple[Fraction, int]]:
        """(scale, number) of the independent DLap terms in a column's answer after `updates` updates."""
        epoch, inside = self.place(updates)
        ends = [(self.tree(e), self.length(e)) for e in range(epoch)]
        last = (self.tree(epoch), inside)
        return [(tree.scale, tree.shape.terms(prefix)) for tree, prefix in (*ends, last)]

    def derivation(self) -> Derivation:
        """Derive the guarantee: one tree of a column, at its whole share; the columns in parallel.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        return columns_derivation(
            "one column's counter: trees one after the other, an update in one",
            SOURCE,
            (self.tree(0, self.width),),
            self.column_epsilon,
            self.neighbors,
            self.ones,
        )

    def init(self, noise: Noise) -> SeparateState:
        """Return the first state: all counts zero, no tree begun."""
        zeros = np.zeros(self.width, dtype=np.int64)
        return SeparateState(zeros, zeros, zeros, ())

    def step(
        self, state: SeparateState, message: Message, noise: Noise
    ) -> tuple[SeparateState, IntArray | None]:
        """Add a row to what is open, or close the updates of some columns and answer these.

        Raises:
            RejectedMessage: a bad row, or a query that names no columns.
        """
        if not isinstance(message, Query):
            return replace(state, total=state.total + checked(message.row, self.width)), None
        if not isinstance(message, CloseQuery):
            raise RejectedMessage("this query needs the columns whose updates close now")
        columns = message.columns
        answer = np.zeros(len(columns), dtype=np.int64)
        for age in sorted(set(state.updates[columns].tolist())):
            alike = state.updates[columns] == age
            state, noisy = self._close(state, columns[alike], age, noise)
            answer[alike] = noisy
        return state, answer

    def _close(
        self, state: SeparateState, columns: IntArray, age: int, noise: Noise
    ) -> tuple[SeparateState, IntArray]:
        """Close the updates of columns that have closed `age` of them."""
        epoch, inside = self.place(age + 1)
        base, trees = state.base, state.trees
        tree = self.tree(epoch, len(columns))
        if inside == 1:
            if epoch:
                ended = _part(trees[epoch - 1], columns, self.length(epoch - 1))
                base = _written(base, columns, base[columns] + self._value(epoch - 1, ended))
            begun = tree.init(noise)
        else:
            begun = _part(trees[epoch], columns, inside - 1)
        now = tree.advance(begun, noise)
        if epoch == len(trees):
            trees = (*trees, _blank(now, self.width))
        trees = (*trees[:epoch], _put(trees[epoch], columns, now), *trees[epoch + 1 :])
        updates = _written(state.updates, columns, np.full(len(columns), age + 1))
        noisy = state.total[columns] + base[columns] + tree.value(now)
        return SeparateState(state.total, updates, base, trees), noisy

    def _value(self, epoch: int, tree: TreeState) -> IntArray:
        return self.tree(epoch, tree.windows[0].shape[-1]).value(tree)


def _written(whole: IntArray, columns: IntArray, part: IntArray) -> IntArray:
    """A copy with these columns (the last axis) replaced."""
    after = whole.copy()
    after[..., columns] = part
    return after


def _arrays(tree: TreeState) -> dict[str, Any]:
    """The fields that hold arrays whose last axis are the columns."""
    return {f.name: getattr(tree, f.name) for f in fields(tree) if f.name != "prefix"}


def _part(tree: TreeState, columns: IntArray, prefix: int) -> TreeState:
    """The state of these columns alone, all at `prefix`."""
    parts = {name: tuple(a[..., columns] for a in arrays) for name, arrays in _arrays(tree).items()}
    return replace(tree, prefix=prefix, **parts)


def _put(tree: TreeState, columns: IntArray, part: TreeState) -> TreeState:
    """The state with these columns replaced; `prefix` says nothing here, as each column has its own."""
    new = _arrays(part)
    parts = {
        name: tuple(_written(a, columns, b) for a, b in zip(arrays, new[name], strict=True))
        for name, arrays in _arrays(tree).items()
    }
    return replace(tree, prefix=0, **parts)


def _blank(tree: TreeState, width: int) -> TreeState:
    """Zeros for so many columns, in the form of `tree`."""
    parts = {
        name: tuple(np.zeros((*a.shape[:-1], width), dtype=np.int64) for a in arrays)
        for name, arrays in _arrays(tree).items()
    }
    return replace(tree, prefix=0, **parts)
