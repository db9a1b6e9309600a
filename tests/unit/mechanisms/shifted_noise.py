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
from stream_dp.testing.noise import ScriptedNoise

SPREAD = 1 << 24
BIG = 1 << 20  # a unit of noise beside which roundings are nothing


class NoNoise:
    """Noise that may not be drawn; a test's own noise overrides what may."""

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        raise AssertionError("the mechanism draws noise of another law")

    geometric = gaussian = laplace


@dataclass(frozen=True, slots=True)
class Drawn:
    """A node noise as the oracle has it: its scale, and the first and the last step (from 1) that it covers."""

    scale: Fraction
    first: int
    last: int


@dataclass
class Shifted(NoNoise):
    """Hands out noise for the nodes of `expected`, in order, in 1 + len(steps) columns, and remembers them."""

    expected: Iterator[Drawn]
    steps: IntArray
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    drawn: list[Drawn] = field(default_factory=list)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        number, rest = divmod(size, 1 + len(self.steps))
        assert rest == 0, "a node's noise is drawn for some columns only"
        rows = [self._node(scale) for _ in range(number)]
        return np.array(rows, dtype=np.int64).reshape(-1)

    def _node(self, scale: Fraction) -> IntArray:
        node = next(self.expected)
        assert scale == node.scale, "a node has another scale than its oracle"
        self.drawn.append(node)
        holds = (self.steps >= node.first) & (self.steps <= node.last)
        return int(self.rng.integers(-SPREAD, SPREAD)) + np.array([0, *holds], dtype=np.int64)

    def cost(self, step: int) -> Fraction:
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
        assert not tree.fine(state).any()
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
    rows = np.repeat(np.arange(steps)[:, None] % 3, counter.width, axis=1)
    check_moves(answers(counter, noise, rows) - np.cumsum(rows, axis=0), events)
    return noise


def answers(mechanism: Any, noise: Any, rows: Any) -> IntArray:
    state, told = mechanism.init(noise), []
    for row in rows:
        state, _ = mechanism.step(state, Update(np.array(row, dtype=np.int64)), noise)
        state, answer = mechanism.step(state, Query(), noise)
        told.append(answer)
    return np.array(told)


def linear_map(mechanism: Any, updates: int) -> tuple[Any, list[Fraction]]:
    """(matrix, scales): all answers, flattened, per unit of each noise that is drawn, and these noises' scales."""
    empty, silent = (
        np.zeros((updates, mechanism.width), dtype=np.int64),
        ScriptedNoise([0] * 20_000),
    )
    answers(mechanism, silent, empty)
    scales = [call.scale for call in silent.calls for _ in range(call.size)]
    units = (np.eye(len(scales), dtype=np.int64) * BIG).tolist()
    columns = [answers(mechanism, ScriptedNoise(unit), empty).ravel() / BIG for unit in units]
    return np.array(columns).T, scales
