"""Sum counters whose noise forgets something; the exact tests must catch each."""

from fractions import Fraction

from stream_dp.mechanisms.linear.sum_counter import SumCounter


class WeightForgotten(SumCounter):
    """An event changes a row by 1."""

    @property
    def l1(self) -> int:
        """Too little."""
        return self.neighbors.l0(self.width, self.ones)


class OnesForgotten(SumCounter):
    """An event sets one entry."""

    @property
    def l1(self) -> int:
        """Too little for lists."""
        return self.weight


class RangeAlone(SumCounter):
    """A replaced amount is always one of the range, so that it changes by no more than highest - lowest."""

    @property
    def l1(self) -> int:
        """Too little where an event may as well add nothing, or lie in another entry."""
        return max(1, self.highest - self.lowest)


class ReplacedAsAdded(SumCounter):
    """Under replace, the scale of add_remove."""

    @property
    def l1(self) -> int:
        """Too little."""
        return min(self.ones, self.width) * self.weight


class HalfTheNoise(SumCounter):
    """Claims twice what the noise gives."""

    @property
    def l1(self) -> int:
        """Half of it, rounded up."""
        return -(-super().l1 // 2)


TWINS: dict[str, type[SumCounter]] = {
    twin.__name__: twin
    for twin in (WeightForgotten, OnesForgotten, RangeAlone, ReplacedAsAdded, HalfTheNoise)
}
EPSILON = Fraction(4, 5)
