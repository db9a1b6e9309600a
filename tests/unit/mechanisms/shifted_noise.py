"""Noise in two copies that differ as one event would make them: the proof of a counter's privacy, played exactly.

A counter is private if one more event at step i has the same effect on all answers as a shift of the node noises by
integers: the shift is a bijection of the noise, and costs |shift| / scale for each node ([HSV] Def 3.1 and the
proof in mechanisms/linear/tree.py). Rules: columns of one counter have the same random noise, and column i > 0 has
1 more in every node that covers step `steps[i - 1]`. If then each answer of column i is greater by exactly [t >=
i], and each node is drawn once, at the scale that the oracle says, the loss is at most the sum of 1 / scale over
the nodes that cover i.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.mechanisms.linear.tree import FRACTION_BITS, TreeNoise

SPREAD = 1 << 24


@dataclass(frozen=True, slots=True)
class Drawn:
    """A node noise as the oracle has it: its scale, and the first and the last step (from 1) that it covers."""

    scale: Fraction
    first: int
    last: int


@dataclass(slots=True)
class Shifted:
    """Hands out noise for the nodes of `expected`, in order, in 1 + len(steps) columns, and remembers them."""

    expected: Iterator[Drawn]
    steps: IntArray
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    drawn: list[Drawn] = field(default_factory=list)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """The next nodes' noises: a node's noise is drawn for every column, at the scale of the oracle."""
        number, rest = divmod(size, 1 + len(self.steps))
        assert rest == 0, "a node's noise is drawn for some columns only"
        rows = [self._node(scale) for _ in range(number)]
        return np.array(rows, dtype=np.int64).reshape(-1)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """A counter has no use for it."""
        raise AssertionError("a counter draws Laplace noise only")

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Nor for this."""
        raise AssertionError("a counter draws Laplace noise only")

    def _node(self, scale: Fraction) -> IntArray:
        node = next(self.expected)
        assert scale == node.scale, "a node has another scale than its oracle"
        self.drawn.append(node)
        holds = (self.steps >= node.first) & (self.steps <= node.last)
        return int(self.rng.integers(-SPREAD, SPREAD)) + np.array([0, *holds], dtype=np.int64)

    def cost(self, step: int) -> Fraction:
        """What the shift for this step costs."""
        return sum((1 / n.scale for n in self.drawn if n.first <= step <= n.last), Fraction(0))


def check_moves(values: Iterable[IntArray], steps: IntArray, unit: int = 1) -> None:
    """The value after t steps of column i lies above that of column 0 by `unit` from step i on, and by 0 before."""
    for prefix, value in enumerate(values, start=1):
        moved = value[1:] - value[0]
        assert np.array_equal(moved, unit * (steps <= prefix)), f"answer {prefix} moves otherwise"


def check_tree(tree: TreeNoise, nodes: Iterable[Drawn], steps: int) -> Shifted:
    """Check the tree itself, before rounding, for events at each of its first `steps` steps."""
    events = np.arange(1, steps + 1)
    noise = Shifted(iter(nodes), events)

    def values() -> Iterator[IntArray]:
        state = tree.init(noise)
        assert not tree.value(state).any()
        for _ in range(steps):
            state = tree.advance(state, noise)
            yield tree.fine(state)

    check_moves(values(), events, 1 << FRACTION_BITS)
    return noise


def check_counter(
    make: Callable[[int], Any], nodes: Iterable[Drawn], steps: int, events: IntArray
) -> Shifted:
    """Check a counter's answers, `make(width)`, over `steps` updates for an event at each of `events`."""
    noise, counter = Shifted(iter(nodes), events), make(1 + len(events))

    def values() -> Iterator[IntArray]:
        state = counter.init(noise)
        total = np.zeros(counter.width, dtype=np.int64)
        for t in range(steps):
            row = np.full(counter.width, t % 3, dtype=np.int64)
            total += row
            state, _ = counter.step(state, Update(row), noise)
            _, answer = counter.step(state, Query(), noise)
            assert answer is not None
            yield answer - total

    check_moves(values(), events)
    return noise
