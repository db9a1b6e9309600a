"""Sliding windows of counts, and of sums, from one forest, at one price: with Laplace or, for a delta, Gaussian noise.

With Gaussian noise an event changes at most L0 entries of a node's row by one each, so in zCDP the row costs L0 times
one entry; with Laplace noise each of these entries needs its share of epsilon.

Privacy of `GaussianForest`: fix the released noisy counts. Between two neighbouring runs the exact counts of a node
differ only if it holds the event's tick, by at most 1 in L0 entries, so its noise differs by that shift. Whatever the
adversary does, one node of each level holds that tick, and it receives noise once. A shift by an integer vector s has
the Renyi divergence alpha |s|^2 / (2 variance) at most (Canonne, Kamath, Steinke 2020, Prop. 5), a node's noise is
drawn afresh when it is complete, so these add up adaptively, to L0 / 2 times the sum over levels of 1 / variance on
every path: zCDP. (Under `replace` the event leaves one entry and comes to another of the same tick, and so of the same
nodes: L0 = 2.)

All events of one user (`of_users`): a level's nodes hold disjoint ticks and entries, each of them at most so many of
these events as the caps let lie in its ticks and its entry. The squares of the shifts of a level add up to at most
`UserShape.squares` on every path; each node's noise is drawn afresh when it is complete, so levels and nodes add up as
above. This file knows no ticks' times, no names and no grid: amounts are whole units.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed, Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.core.neighbors import Neighbors, UserShape
from stream_dp.core.row_law import ShapedLaw
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.linear.counter import EventAmounts, PureShares
from stream_dp.mechanisms.linear.noisy_forest import ONCE, TEST, ForestShape, NoisyForest
from stream_dp.mechanisms.linear.tree import LIKELY
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.serving import CountRows
from stream_dp.mechanisms.watches.block import WIDEST

SOURCE = "discrete Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009)"
SUM_SOURCE = "discrete Laplace mechanism on integer rows, scale l1 / epsilon (Ghosh, Roughgarden, Sundararajan 2009)"


class LaplaceForest(PureShares, NoisyForest):
    """A forest whose nodes have Laplace noise, at the scale of the l1 norm of what one event changes in a row (`l1`).

    This is private for any integer row: a shift by y of the noises of one node per level explains a difference y.

    Privacy claim: `epsilon`-DP for its rows under `neighbors`, adaptively: each level's nodes have noise of their own
    at the level's share; an event lies in one node of each level, and the levels add up ([HSV] Thm 4.10). Answers are
    functions of the noisy sums.
    """

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        return tuple(1 / (share * self.unit_epsilon) for share in self.shape.shares)

    def _levels(self, what: str) -> Derivation:
        once = Touched.intervals(self.neighbors, ONCE, TEST)
        spans = [f"{what}s of {span}-tick spans" for span in self.shape.spans]
        levels = tuple(
            derive((self._node(level),), Parallel(span, once)) for level, span in enumerate(spans)
        )
        return derive(levels, Fixed("a forest of windows")) if len(levels) > 1 else levels[0]

    def _node(self, level: int) -> Derivation:
        raise NotImplementedError

    @cached_property
    def node_variances(self) -> tuple[Fraction, ...]:
        return tuple(2 * scale**2 for scale in self.scales)

    @property
    def _drawable(self) -> bool:
        return max(self.scales) <= WIDEST

    def _reach(self, level: int, number: int) -> float:
        """Return s (2 sqrt(n x) + x): a sum of n Laplace noises of scale s exceeds it with probability below e^-x."""
        return float(self.scales[level]) * (2 * math.sqrt(number * LIKELY) + LIKELY)

    def _drawn(self, level: int, noise: Noise) -> IntArray:
        return noise.laplace(self.scales[level], self.width)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        return NoiseLaw(tuple(self.noise_terms(view or 0, public)))

    def noise_terms(self, place: int, updates: int) -> list[Term]:
        weights = self.decoding.weights(updates, self.windows[place])
        return [Term(self.scales[level], number, abs(weight)) for number, level, weight in weights]


@wire("window-forest", 1)
@dataclass(frozen=True)
class WindowForest(CountRows, LaplaceForest):
    """Counts over windows (`NoisyForest`); `ones`: the most entries of a row that one event sets.

    A node's entries are composed in parallel ([HSV] Cor 5.5, k = L0).
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    shape: ForestShape
    ones: int = 1

    def __post_init__(self) -> None:
        self._require_room()

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._levels("count")

    def _node(self, level: int) -> Derivation:
        span, scale = self.shape.spans[level], self.scales[level]
        touched = Touched.columns(self.rows)
        share = self.shape.shares[level] * self.epsilon / touched.k
        why = f"1 / scale = 1 / {text(scale)}, at most {text(share)}"
        enough = Condition("noise", scale * share >= 1, why)
        each = Guarantee(PureDP(share), self.neighbors)
        one = leaf(f"one count of a {span}-tick span", each, SOURCE, (enough,))
        return derive((one,), Parallel(f"columns: {self.width}", touched, (self.width,)))


@wire("sum-forest", 1)
@dataclass(frozen=True)
class SumForest(EventAmounts, LaplaceForest):
    """Sums over windows (`NoisyForest`).

    An event adds one amount from `lowest` to `highest` (in units) to at most `ones` entries of its row, or nothing.

    >>> from stream_dp.mechanisms.linear.noisy_forest import FLAT
    >>> sums = SumForest(1, Fraction(1), Neighbors.ADD_REMOVE, (1, 2), FLAT, lowest=-5, highest=240)
    >>> sums.l1, sums.scales
    (240, (Fraction(240, 1),))
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    shape: ForestShape
    lowest: int
    highest: int
    ones: int = 1

    def __post_init__(self) -> None:
        self._require_amounts()
        self._require_room()

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._levels("sum")

    def _node(self, level: int) -> Derivation:
        span, scale = self.shape.spans[level], self.scales[level]
        share = self.shape.shares[level] * self.epsilon
        why = f"l1 norm of a row / scale = {self.l1} / {text(scale)}, at most {text(share)}"
        enough = Condition("noise", scale * share >= self.l1, why)
        each = Guarantee(PureDP(share), self.neighbors)
        return leaf(
            f"sums of a {span}-tick span, columns: {self.width}",
            each,
            SUM_SOURCE,
            (enough,),
        )


GAUSSIAN_FOREST_SOURCE = "discrete Gaussian mechanism (Canonne, Kamath, Steinke 2020, Prop. 5)"
MOST_RHO = 1000
WIDEST_VARIANCE = 1 << 88  # that is drawn: `noise.stream.MAX_VARIANCE`, which loads the cipher


@wire("gaussian-forest", 1)
@dataclass(frozen=True)
class GaussianForest(CountRows, NoisyForest):
    """Counts over windows (`NoisyForest`); `ones`: the most entries of a row that one event sets.

    Privacy claim: `rho`-zCDP for such event streams under `neighbors`, adaptively, by the proof at the top of this
    file. Answers are functions of the noisy counts.
    """

    width: int
    rho: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    shape: ForestShape
    ones: int = 1
    of_users: UserShape | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rho <= MOST_RHO:
            raise NotDerivable("a Gaussian forest needs a rho in (0, 1000]")
        if self.of_users is not None and self.neighbors is not Neighbors.ADD_REMOVE:
            raise NotDerivable("for users, a Gaussian forest has a guarantee under add_remove")
        self._require_room()

    @property
    def guarantee(self) -> Guarantee:
        users = None if self.of_users is None else self.of_users.users
        return Guarantee(
            ZCDP(self.rho), self.neighbors, users=users, fresh=True
        )  # drawn when a node is complete

    @property
    def rows(self) -> ShapedLaw:
        return ShapedLaw(self.width, self.neighbors, self.ones, shape=self.of_users)

    @cached_property
    def squares(self) -> tuple[int, ...]:
        """By level, the most that the protected unit adds to the sum of squares of the level's nodes."""
        touched, spans = self.rows.l0, self.shape.spans
        if self.of_users is None:
            return (touched,) * len(spans)
        return tuple(self.of_users.squares(span, touched) for span in spans)

    @cached_property
    def node_variances(self) -> tuple[Fraction, ...]:
        levels = zip(self.squares, self.shape.shares, strict=True)
        return tuple(square / (2 * share * self.rho) for square, share in levels)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        levels = zip(self.squares, self.node_variances, strict=True)
        paid = sum((square / (2 * variance) for square, variance in levels), Fraction(0))
        unit = (
            f"number of nodes that contain an event: {self.shape.height}; number of entries to which it adds 1: "
            f"{self.rows.l0}"
            if self.of_users is None
            else f"{self.of_users}: squared changes of the nodes, by level: {', '.join(map(str, self.squares))}"
        )
        why = f"{unit}: squared shifts divided by twice the variances: {text(paid)}, at most {text(self.rho)}"
        enough = Condition("noise", paid <= self.rho, why)
        subject = (
            f"Gaussian counts over windows, columns: {self.width}, windows: {len(self.windows)}"
        )
        return leaf(subject, self.guarantee, GAUSSIAN_FOREST_SOURCE, (enough,))

    @property
    def _drawable(self) -> bool:
        return max(self.node_variances) <= WIDEST_VARIANCE

    def _reach(self, level: int, number: int) -> float:
        """Return the bound sqrt(2 n v x): a sum of n noises of variance v exceeds it with probability below 2 e^-x."""
        return math.sqrt(2 * number * float(self.node_variances[level]) * (LIKELY + 1))

    def _drawn(self, level: int, noise: Noise) -> IntArray:
        return noise.gaussian(self.node_variances[level], self.width)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        return NoiseLaw(variance=self.view_variance(view or 0, public))
