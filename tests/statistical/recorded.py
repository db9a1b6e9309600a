"""Seeded noise that remembers what it drew: an oracle that is given the same values must give the same answers."""

from fractions import Fraction

from stream_dp.core.mechanism import IntArray
from stream_dp.testing.noise import SeededNoise


class Recorded(SeededNoise):
    """`taken` has (kind, scale, values) of each draw."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.taken: list[tuple[str, Fraction, list[int]]] = []

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._kept("laplace", scale, super().laplace(scale, size))

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self._kept("geometric", scale, super().geometric(scale, size))

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self._kept("gaussian", variance, super().gaussian(variance, size))

    def _kept(self, kind: str, scale: Fraction, values: IntArray) -> IntArray:
        self.taken.append((kind, scale, values.tolist()))
        return values

    def scales(self, kind: str) -> set[Fraction]:
        return {scale for drawn, scale, _ in self.taken if drawn == kind}

    def of(self, kind: str, scale: Fraction) -> list[int]:
        of_kind = ((at, values) for drawn, at, values in self.taken if drawn == kind)
        return [value for at, values in of_kind if at == scale for value in values]
