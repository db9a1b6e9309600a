"""HSS with a Gaussian counter inside, tuned and as the paper prints it, where a delta is granted.

Sparse vectors and checks stay pure: any number of them is created, and their deltas would add up ([HSV] Thm 5.2,
5.4). The counter is one part, analysed with all columns together, where [HSV] section 7 gives each column a share
of epsilon and of delta. Rules: everything that runs, watches, releases and decides is as in `hss` and `paper_hss`.
This file has only the differences: the counter, the claim, and the growth that is worth an update.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee, PureDP
from stream_dp.core.wire import wire
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.hss.hss import HSS, InnerCounter
from stream_dp.mechanisms.hss.sparse_vector import SelfTuned, SparseVector, ceil_root
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.papers.paper_hss import (
    RELATION,
    NoisyQuantity,
    PaperHSS,
    PaperSparseVector,
)

NONE = Fraction(0)
FINE = 1000  # a node's deviation is rounded up to a multiple of 1 / FINE


@wire("gaussian-hss", 1, rests_on=(GaussianCounter, SparseVector))
@dataclass(frozen=True)
class GaussianHSS(HSS):
    """HSS with a Gaussian counter at `rho` in zCDP for all columns together; no pure epsilon goes to the counter.

    Privacy claim: (e tanh(e/2) + rho)-zCDP, e = threshold_epsilon + query_epsilon, for the events of `HSS`, adaptively:
    [HSV] Thm 6.1 over {sparse vector instances: Cor 5.5, k = 1; the counter: an event changes one interval's sum, by
    one in at most L0 entries}, joined in zCDP by Cor 13.4 at every order.
    """

    counter_epsilon: Fraction = field(default=NONE, init=False, repr=False)
    rho: Fraction = field(kw_only=True)

    @property
    def guarantee(self) -> Guarantee:
        pure = pure_to_zcdp(PureDP(self.threshold_epsilon + self.query_epsilon))
        return Guarantee(ZCDP(pure.rho + self.rho), self.neighbors, fresh=True)

    @cached_property
    def counter(self) -> InnerCounter:
        return GaussianCounter(self.width, self.rho, self.neighbors, None, self.ones)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee as `HSS` does; its code runs unchanged, only the counter is another part."""
        return super().derivation()

    @cached_property
    def tuned(self) -> SelfTuned:
        """The self-tuned thresholds; a node's deviation is about sqrt(L0 / rho)."""
        square = self.neighbors.l0(self.width, self.ones) / self.rho
        node = Fraction(ceil_root(square * FINE**2), FINE) * self._law.factor
        return SelfTuned(node, self._query_scale, self.horizon, self._spread, steady=True)


@wire("gaussian-paper-hss", 1, rests_on=(GaussianCounter, PaperSparseVector, NoisyQuantity))
@dataclass(frozen=True)
class GaussianPaperHSS(PaperHSS):
    """Alg. 4 with Gaussian counters: `rho` for all counters together replaces their third of `epsilon`.

    Privacy claim: zCDP for ~_H, adaptively: twice e tanh(e/2), e = epsilon / 3, for instances and for checks, and
    rho: [HSV] Thm 6.1 over {instances: Cor 5.5, k = 1; checks: Cor 5.5, k = 1; d counters together: one row of
    theirs is replaced}, joined in zCDP by Cor 13.4 at every order.
    """

    rho: Fraction = field(kw_only=True)

    @property
    def guarantee(self) -> Guarantee:
        third = pure_to_zcdp(PureDP(self.epsilon / 3))
        return Guarantee(ZCDP(2 * third.rho + self.rho), RELATION, fresh=True)

    @cached_property
    def counter(self) -> InnerCounter:
        return GaussianCounter(self.width, self.rho, RELATION, None, self.width)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee as `PaperHSS` does; its code runs unchanged, only the d-counter is another part."""
        return super().derivation()
