"""Sliding windows of counts from one forest with discrete Gaussian noise, where a delta is granted.

A node's whole row receives noise. An event changes at most L0 of its entries by one each, so in zCDP the row costs
L0 times one entry; with Laplace noise each of these entries would need its share of epsilon.

Privacy: fix the released noisy counts. Between two neighbouring runs the exact counts of a node differ only if it
holds the event's tick, by at most 1 in L0 entries, so its noise differs by that shift. Whatever the adversary does,
one node of each level holds that tick, and it receives noise once. A shift by an integer vector s has the Renyi
divergence alpha |s|^2 / (2 variance) at most (Canonne, Kamath, Steinke 2020, Prop. 5), a node's noise is drawn
afresh when it is complete, so these add up adaptively, to L0 / 2 times the sum over levels of 1 / variance on every
path: zCDP. (Under `replace` the event leaves one entry and comes to another of the same tick, and so of the same
nodes: L0 = 2.)
This file knows no ticks' times and no names.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from stream_dp.accounting.amounts import text
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.tree import LIKELY
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.serving import CountRows
from stream_dp.mechanisms.windows.forest_shape import ForestShape
from stream_dp.mechanisms.windows.noisy_forest import NoisyForest

SOURCE = "discrete Gaussian mechanism (Canonne, Kamath, Steinke 2020, Prop. 5)"
MOST_RHO = 1000
WIDEST = (
    1 << 88
)  # the largest variance that is drawn: `stream_dp.noise.gaussian.MAX_VARIANCE`, which loads the cipher


@wire("gaussian-forest", 1)
@dataclass(frozen=True)
class GaussianForest(CountRows, NoisyForest):
    """Answers of shape (windows * width,): the counts of each of `windows` (in ticks), one window after the other.

    A window longer than the stream so far counts what there is. `ones`: the most entries of a row that one event
    sets.

    Privacy claim: `rho`-zCDP for such event streams under `neighbors`, adaptively, by the proof above. Answers are
    functions of the noisy counts.

    >>> from stream_dp.mechanisms.windows.forest_shape import FLAT
    >>> GaussianForest(3, Fraction(1, 50), Neighbors.REPLACE, (1, 24), FLAT).node_variances
    (Fraction(50, 1),)

    Raises:
        NotDerivable: no rho from 0 to 1,000, no windows, windows that its nodes do not fit into, more of them than
            a state may hold, or noise that is too wide for 64 bits.
    """

    width: int
    rho: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    shape: ForestShape
    ones: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.rho <= MOST_RHO:
            raise NotDerivable("a Gaussian forest needs a rho in (0, 1000]")
        self._require_room()

    @property
    def guarantee(self) -> Guarantee:
        """zCDP at `rho`."""
        return Guarantee(ZCDP(self.rho), self.neighbors)

    @cached_property
    def node_variances(self) -> tuple[Fraction, ...]:
        """The variance of one node's noise, by level."""
        touched = self.rows.l0
        return tuple(touched / (2 * share * self.rho) for share in self.shape.shares)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one leaf for all nodes that hold one event.

        Raises:
            NotDerivable: the noise is too small for `rho`.
        """
        touched = self.rows.l0
        paid = touched * sum(1 / (2 * variance) for variance in self.node_variances)
        why = (
            f"an event is in {self.shape.height} node(s), in {touched} entries by 1: squared shifts over twice the "
            f"variances {text(paid)}, at most {text(self.rho)}"
        )
        subject = f"{self.width} Gaussian count(s) over {len(self.windows)} window(s)"
        return leaf(subject, self.guarantee, SOURCE, (Condition("noise", paid <= self.rho, why),))

    @property
    def _drawable(self) -> bool:
        return max(self.node_variances) <= WIDEST

    def _reach(self, level: int, number: int) -> float:
        """Return the bound sqrt(2 n v x): a sum of n noises of variance v exceeds it with probability below 2 e^-x."""
        return math.sqrt(2 * number * float(self.node_variances[level]) * (LIKELY + 1))

    def _drawn(self, level: int, noise: Noise) -> IntArray:
        return noise.gaussian(self.node_variances[level], self.width)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in the window at index `view`: normal, then rounded."""
        return NoiseLaw(variance=self.view_variance(view or 0, public))
