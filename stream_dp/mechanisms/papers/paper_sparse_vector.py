"""The sparse vector technique as [HSV] prints it (Alg. 3): two-sided noise on the threshold and on each query.

`PaperHSS` runs it. The product's own instance (`SparseVector`) draws one-sided noise, half as wide for the same
epsilon. Discrete Laplace noise takes the place of the paper's continuous one, as all values are integers.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.core.derivation import Derivation
from stream_dp.core.mechanism import Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.hss.quantities import Quantity
from stream_dp.mechanisms.hss.sparse_vector import SparseVector

SOURCE = "[HSV] Lemma 7.4, discrete Laplace noise"


@wire("paper-sparse-vector", 1)
@dataclass(frozen=True, slots=True)
class PaperSparseVector(SparseVector):
    """Alg. 3 at its parameter e = threshold_epsilon = query_epsilon: Lap(D / e) once, Lap(2 D / e) at each query.

    Answers as `SparseVector` does. Privacy claim: 2e-DP for such event streams under `neighbors`, adaptively
    ([HSV] Lemma 7.4, where e is epsilon / 6 and the claim epsilon / 3).
    """

    @classmethod
    def at(
        cls,
        width: int,
        epsilon: Fraction,
        neighbors: Neighbors,
        offset: tuple[int, ...],
        quantity: Quantity,
        ones: int,
    ) -> "PaperSparseVector":
        """Return the instance SVT-init(epsilon, quantity, offset) of the paper."""
        return cls(width, epsilon, epsilon, neighbors, offset, quantity, ones)

    def derivation(self) -> Derivation:
        """Derive the guarantee as `SparseVector` does; the overrides below only exchange the noise and its scales.

        Raises:
            NotDerivable: a scale is too small.
        """
        return SparseVector.derivation(self)

    @property
    def _source(self) -> str:
        return SOURCE

    @property
    def _signs(self) -> int:
        """Return 2: the paper uses only the sensitivity of q."""
        return 2

    def _drawn(self, noise: Noise, scale: Fraction) -> int:
        """Return one two-sided draw at this scale."""
        return int(noise.laplace(scale, 1)[0])
