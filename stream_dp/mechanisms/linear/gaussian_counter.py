"""Continual counters with Gaussian noise: how many events so far, per column, with or without a declared horizon.

Columns are released jointly: an event touches L0 entries by at most one each, so the whole row of noises costs L0 times
one column in zCDP, where (epsilon, delta) counters of their own would get a share of epsilon each ([HSV] section 7).
The answer is the exact integer count plus integer noise. This file knows no ticks and no names.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.amounts import text
from stream_dp.accounting.gaussian_curve import discrete_gaussian
from stream_dp.accounting.rules.rule import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import ZCDP, GaussianDP, Guarantee
from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.core.neighbors import Neighbors, UserShape
from stream_dp.core.row_law import ShapedLaw
from stream_dp.core.wire import wire
from stream_dp.core.wording import how_many
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.mechanisms.checks import of_the_exact_class, require_left
from stream_dp.mechanisms.linear.counter import Linear
from stream_dp.mechanisms.noise_law import NOTHING, NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.serving import CountRows

# Frozen numbers: mechanisms in journals rest on them, so a line never changes, and new numbers need a new version.
# Privacy does not depend on how they were found (`Decays.squared_norm`), the error does: for 2^n steps `TUNED[n]` is
# within 2 % of the least mean square error at the last step (6 % from 2^26 on), `ENDLESS` within a factor of 1.73 of
# every step's own optimum from 16 to 2^32; tests/unit/mechanisms/test_decays.py checks them.

TUNED: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    1: ((1,), (64,)),
    2: ((2, 1), (127, 1)),
    3: ((3, 2, 1), (202, 1, 11)),
    4: ((4, 3, 2, 1), (312, 1, 1, 24)),
    5: ((5, 4, 3, 2, 1), (467, 1, 1, 23, 23)),
    6: ((6, 5, 4, 2, 1), (666, 1, 24, 53, 13)),
    7: ((7, 6, 4, 2, 1), (931, 1, 101, 40, 16)),
    8: ((8, 6, 4, 3, 1), (1374, 21, 138, 33, 27)),
    9: ((9, 7, 5, 3, 1), (1937, 40, 207, 68, 26)),
    10: ((10, 8, 6, 3, 1), (2774, 1, 365, 95, 23)),
    11: ((11, 8, 6, 4, 1), (3747, 425, 196, 156, 33)),
    12: ((12, 9, 6, 4, 1), (5115, 810, 277, 142, 33)),
    13: ((13, 10, 8, 5, 2), (7618, 650, 640, 233, 74)),
    14: ((14, 11, 8, 5, 2), (10363, 1491, 725, 226, 75)),
    15: ((15, 12, 8, 4, 1), (14037, 2752, 959, 200, 30)),
    16: ((16, 12, 9, 6, 2), (22168, 2926, 859, 417, 87)),
    17: ((17, 13, 10, 6, 2), (31688, 3820, 1578, 471, 85)),
    18: ((18, 14, 10, 6, 2), (43665, 6630, 1830, 456, 86)),
    19: ((18, 14, 10, 6, 2), (47194, 6310, 1846, 456, 86)),
    20: ((20, 16, 11, 6, 2), (84786, 15289, 3327, 514, 82)),
    21: ((21, 17, 13, 10, 6, 2), (122803, 19434, 4469, 1499, 476, 85)),
    22: ((22, 18, 14, 10, 6, 2), (174883, 26473, 7391, 1781, 460, 86)),
    23: ((23, 19, 15, 10, 6, 2), (249101, 35494, 12077, 2075, 439, 87)),
    24: ((23, 19, 15, 10, 6, 2), (268441, 33708, 12158, 2068, 440, 87)),
    25: ((25, 20, 16, 11, 7, 2), (540486, 59958, 16577, 2838, 726, 102)),
    26: ((26, 21, 16, 12, 7, 2), (745263, 100975, 16056, 3908, 844, 98)),
    27: ((27, 22, 17, 12, 7, 2), (1058667, 139166, 25732, 4455, 824, 99)),
    28: ((27, 22, 17, 12, 7, 2), (1117870, 136575, 25800, 4451, 824, 99)),
    29: ((28, 23, 18, 12, 7, 2), (1587456, 187006, 40963, 5020, 800, 99)),
    30: ((29, 24, 18, 13, 7, 2), (2191471, 311916, 39892, 6931, 926, 95)),
    31: ((30, 24, 19, 13, 8, 2), (3376797, 302283, 56431, 6923, 1263, 115)),
    32: ((31, 25, 19, 14, 8, 2), (4699226, 488162, 55270, 9603, 1425, 112)),
}
ENDLESS: tuple[tuple[int, ...], tuple[int, ...]] = (
    (31, 26, 21, 16, 11, 7, 3),
    (1526928, 232511, 45041, 9382, 1701, 364, 196),
)


GUARD = 6  # bits of a buffer below the lattice's
PLACES = 160  # bits of the powers below
MOST_STEPS = 1 << 40  # the most steps of any counter

Floats = NDArray[np.float64]


MOST_HALVINGS, MOST_GAIN = 39, (1 << 23) - 1  # of a buffer: what products leave room for in 64 bits


@wire("decays", 1)
@dataclass(frozen=True)
class Decays:
    """Buffers that decay by powers of two, with `halvings` k_i, in falling order, and `gains` p_i.

    They correlate the noise of a Gaussian counter (a buffered linear Toeplitz, arXiv 2404.16706): the strategy has the
    coefficients c_0 = 1, c_k = sum_i omega_i theta_i^(k-1). Noise z is made into w = C^-1 z; an answer is the count
    plus the sum of all w. One event shifts z by c, so the sensitivity is the norm of c; the error is the norm of the
    coefficients of A C^-1. Here theta_i = 1 - 2^-k_i and omega_i = p_i / 2^(k_i + GUARD), k_i and p_i integers: no
    parameter has to be rounded, and a decay needs no multiplication. What privacy rests on (`squared_norm`,
    `rounding`) is exact or rounded up; `growth` and `window_growth` are floats, for bands only.
    """

    halvings: tuple[int, ...]
    gains: tuple[int, ...]

    def require_room(self) -> None:
        """Raise NotDerivable where 64 bits have no room for these buffers, or c grows, and with it the noise."""
        inside = (
            len(self.halvings) == len(self.gains) > 0
            and 1 <= min(self.halvings) <= max(self.halvings) <= MOST_HALVINGS
            and 1 <= min(self.gains) <= max(self.gains) <= MOST_GAIN
        )
        if not inside or not self.falling:
            raise NotDerivable(
                f"each buffer has 1 to {MOST_HALVINGS} halvings and a gain of 1 to {MOST_GAIN:,}, and their weights "
                "add up to at most 1"
            )

    @property
    def falling(self) -> bool:
        """Whether c never rises, with which 1 / c, and so the noise, stays bounded."""
        pairs = zip(self.gains, self.halvings, strict=True)
        top = max(self.halvings)
        return sum(p << (top - k) for p, k in pairs) <= 1 << (top + GUARD)

    @property
    def weights(self) -> tuple[Fraction, ...]:
        pairs = zip(self.gains, self.halvings, strict=True)
        return tuple(Fraction(p, 1 << (k + GUARD)) for p, k in pairs)

    @cached_property
    def columns(self) -> tuple[IntArray, IntArray]:
        halvings = np.array(self.halvings, dtype=np.int64)
        return halvings[:, None], np.array(self.gains, dtype=np.int64)[:, None]

    @property
    def rounding(self) -> Fraction:
        """Bound, in lattice units, on shift of z minus c after the event's own step (`LatticeNoise`)."""
        return 1 + Fraction(2 * len(self.halvings), 1 << GUARD)

    def squared_norm(self, steps: int | None) -> Fraction:
        """Return sum of c_k^2 over k < `steps`, rounded up; over all k for None."""
        total = Fraction(1)
        poles = list(zip(self.weights, self.halvings, strict=True))
        for a, j in poles:
            for b, k in poles:
                total += a * b * _summed(j, k, steps)
        return total

    def of_users(self, steps: int, shape: UserShape) -> Fraction:
        """Return by what factor all events of a user together shift z more than one event, in squares; rounded up.

        With N events of an entry, n_t of them in tick t, z is shifted by sum of n_t c_(. - t), where c falls from 1.
        The square of its norm is convex in n, so it is largest where all n_t but one are 0 or `per_tick`. It is at most
        the sum of n_s n_t G(s - t), where G(lag) is sum of c_k c_(k + lag) over k < steps - lag, which falls with the
        lag; and by the rearrangement inequality (Hardy, Littlewood, Polya 1934, Thm 371) that is largest where these
        ticks follow one another and the rest comes next to them: Q(N), at most N times the largest Q(j) / j of any j
        that the shape lets lie in an entry. All entries together have at most that times the number of the user's
        events, in each of the entries that one of them sets.
        """
        unit, lags = 1 << PLACES, self._correlations(steps)
        alone = _scaled_up(self.squared_norm(steps))
        # of the full ticks: their squares over per_tick^2, and what one more has with them
        whole = beside = 0
        most = alone
        for full in range(-(-shape.per_entry // shape.per_tick)):
            for rest in range(1, min(shape.per_tick, shape.per_entry - full * shape.per_tick) + 1):
                number = full * shape.per_tick + rest
                square = shape.per_tick**2 * whole + rest * (
                    2 * shape.per_tick * beside + rest * alone
                )
                most = max(most, -(-square // number))
            whole += 2 * beside + alone
            beside += next(lags)
        return shape.users.cap * Fraction(most, unit) / self.squared_norm(steps)

    def _correlations(self, steps: int) -> Iterator[int]:
        """Yield bounds on sum of c_k c_(k + lag) over k < steps - lag, in units of 2^-PLACES, for lags from 1 on."""
        poles = list(zip(self.weights, self.halvings, strict=True))
        terms = []
        for a, j in poles:
            tail = sum((a * b * _summed(j, k, steps) for b, k in poles), Fraction(0))
            terms.append(_scaled_up(a + tail * (1 - Fraction(1, 1 << j))))
        while True:
            yield sum(terms)
            terms = [term - (term >> j) for term, j in zip(terms, self.halvings, strict=True)]

    def growth(self, steps: int) -> float:
        """Return sum of b_k^2 over k < `steps`, b the coefficients of A C^-1: error variance over the variance of z."""
        size = len(self.halvings)
        impulse = np.array([float(w) for w in self.weights] + [1.0])
        gram, shift = np.zeros((size + 1, size + 1)), np.eye(size + 1)
        for place, (power, part) in enumerate(self._doublings):
            if steps >> place == 0:
                break
            if steps >> place & 1:
                gram = gram + shift.T @ part @ shift
                shift = power @ shift
        return float(impulse @ gram @ impulse)

    def window_growth(self, steps: int, window: int) -> float:
        """Return what `growth` does for the sum of the last `window` of `steps`, and not of all."""
        return self.modes.growth(steps, window)

    @cached_property
    def modes(self) -> "Modes":
        weights = np.array(self.gains) / 2.0 ** (np.array(self.halvings) + GUARD)
        return Modes.of(1 - 2.0 ** -np.array(self.halvings), weights)

    @cached_property
    def _doublings(self) -> list[tuple[Floats, Floats]]:
        """(M^n, sum of (M^k)' e e' M^k over k < n) for n = 1, 2, 4, ..., M one step of (omega_i buffers, sum of w)."""
        size = len(self.halvings)
        weights = np.array([float(w) for w in self.weights])
        power = np.zeros((size + 1, size + 1))
        power[:size, :size] = np.diag([1 - 2.0**-k for k in self.halvings]) - weights[:, None]
        power[size, :size], power[size, size] = -1, 1
        gram = np.zeros_like(power)
        gram[size, size] = 1
        doublings = []
        for _ in range(MOST_STEPS.bit_length()):
            doublings.append((power, gram))
            gram = gram + power.T @ gram @ power
            power = power @ power
        return doublings


def _summed(j: int, k: int, steps: int | None) -> Fraction:
    """Return sum of (theta_j theta_k)^(n - 1) over n from 1 to `steps` - 1, rounded up; over all n for None."""
    lost = Fraction((1 << j) + (1 << k) - 1, 1 << (j + k))  # 1 - theta_j theta_k
    left = 1 if steps is None else 1 - _power_below(1 - lost, steps - 1)
    return left / lost


def _scaled_up(number: Fraction) -> int:
    return math.ceil(number * (1 << PLACES))


class Modes(NamedTuple):
    """The k-th coefficient of A C^-1 as `rest` + sum of heights * rates^k, and the endless squared `norm` of c."""

    rest: float
    heights: Floats
    rates: Floats
    norm: float

    @classmethod
    def of(cls, thetas: Floats, omegas: Floats) -> "Modes":
        """Return those of c_k = sum of omegas * thetas^(k-1), the omegas above 0 and at most 1 together.

        The rates are the eigenvalues of diag(theta) - omega 1', which is similar to a symmetric matrix.
        """
        roots = np.sqrt(omegas)
        rates, vectors = np.linalg.eigh(np.diag(thetas) - roots[:, None] * roots)
        heights = (roots @ vectors) ** 2 / (1 - rates)
        squares = omegas[:, None] * omegas / (1 - thetas[:, None] * thetas)
        return cls(1 - float(heights.sum()), heights, rates, 1 + float(squares.sum()))

    def growth(self, steps: int, window: int) -> float:
        """Return the sum of squares of the first `steps` coefficients of A_W C^-1, A_W adding up a window."""
        few = min(steps, window)
        both, products = self.heights[:, None] * self.heights, self.rates[:, None] * self.rates
        early = both * _geometric(products, few)
        total = few * self.rest**2 + float(early.sum())
        total += 2 * self.rest * float(self.heights @ _geometric(self.rates, few))
        left = self.heights * (
            1 - self.rates**window
        )  # of the coefficients, less those `window` steps before
        late = left[:, None] * left * _geometric(products, steps - few)
        return total + float(late.sum())


def _geometric(rates: Floats, number: int) -> Floats:
    """Return the sum of rates^k over k < `number`."""
    sums: Floats = (1 - rates**number) / (1 - rates)
    return sums


def _power_below(base: Fraction, exponent: int) -> Fraction:
    """Return a lower bound of base^exponent, 0 <= base <= 1: each product is rounded down."""
    square, power = base.numerator * (1 << PLACES) // base.denominator, 1 << PLACES
    while exponent:
        if exponent & 1:
            power = power * square >> PLACES
        square = square * square >> PLACES
        exponent >>= 1
    return Fraction(power, 1 << PLACES)


@lru_cache(maxsize=64)
def decays_for(horizon: int | None) -> Decays:
    """Return the tuned decays for `horizon` steps, rounded up to a power of two; None means any number of steps."""
    if horizon is None:
        return Decays(*ENDLESS)
    bits = max(1, (horizon - 1).bit_length())
    return Decays(*TUNED.get(bits, ENDLESS))


FINEST = 30  # most bits of the lattice, beyond the integers
LARGEST = 1 << 66  # variance on the lattice for which the number of bits is chosen
LATTICE_NOISE_FINE = 1 << 32  # a square root is rounded up to a multiple of 1 / FINE
LIMIT = 1 << 38  # of |w|: products with gains (below 2^23) stay inside 64 bits


@wire("lattice-noise-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class LatticeState:
    """Integers after `steps` steps: `noise` of shape (width,), `carried` and `rests` of shape (buffers, width)."""

    steps: int
    noise: IntArray
    carried: IntArray
    rests: IntArray


@wire("lattice-noise", 1)
@dataclass(frozen=True, slots=True)
class LatticeNoise:
    """Noise of `width` columns on the lattice 2^-bits Z, where z has this `variance`; exact but for three roundings.

    Per column, z is a discrete Gaussian, carried_i are the buffers (GUARD bits finer than the lattice) and rest_i is
    the remainder of their division:

        w = z - round(sum of carried / 2^GUARD)
        q_i = rest_i + p_i w - carried_i;  carried_i += q_i >> k_i;  rest_i = q_i mod 2^k_i

    An answer is the count plus the sum of all w, rounded to an integer: post-processing of the lattice values.

    Privacy (`covered`): fix the released lattice values, so w differs between two neighbouring runs at the event's own
    step alone, by D = 2^bits. Y_i = 2^k_i carried_i + rest_i obeys Y <- theta_i Y + p_i w + rest_i / 2^k_i exactly; so
    Y_i differs by -D p_i theta_i^m plus less than 2^k_i - 1, carried_i by that over 2^k_i up to less than 2, and z by D
    c_m up to less than eta = 1 + 2 d / 2^GUARD (`Decays.rounding`), m steps after the event; not at all before it. By
    Minkowski the squares of z's shifts add up to at most (D |c| + eta sqrt(T))^2 on every path, whatever the adversary
    does, in each of the L0 columns that an event touches, and to 0 in the others. A shift by an integer has the Renyi
    divergence alpha shift^2 / (2 variance) at most (Canonne, Kamath, Steinke 2020, Prop. 5), z is drawn afresh at every
    step, so these add up adaptively: zCDP.

    Gaussian DP: the same shifts, priced by `accounting.gaussian_curve`, which takes adaptively chosen shifts by the
    sum of their squares; one more unit of variance makes up for the lattice.

    Users: with n_tc events of one user in tick t and column c, w differs by n_tc D at that step, and by the same
    recursion z by D times sum of n_tc c_(m - t), up to the same eta: rests are those of one division, however many
    events there are. So the squares add up to at most (D S + eta sqrt(T C))^2, where S^2 is the sum over the C columns
    that the user touches; S^2 is at most F L0 |c|^2 and C at most F L0, with the factor F of `Decays.of_users`. That is
    F times what one event pays, on every path.
    """

    decays: Decays
    bits: int
    variance: Fraction
    width: int

    @classmethod
    def calibrated(
        cls, decays: Decays, steps: int, unit: Fraction, width: int, finest: int = FINEST
    ) -> "LatticeNoise":
        """Return noise for which a column's squared shifts in `steps` steps sum to at most `unit` * variance of z.

        The lattice is as fine as 64 bits allow (NotDerivable: no lattice is fine enough).
        """
        norm, bits = decays.squared_norm(steps), finest
        while bits > 0 and norm * 4**bits > LARGEST * unit:
            bits -= 1
        variance = math.ceil(covered(decays, bits, steps) / unit)
        if variance > 2 * LARGEST:
            raise NotDerivable(
                "a Gaussian counter with so small a rho needs more noise than 64 bits hold; give it "
                "a larger rho"
            )
        return cls(decays, bits, Fraction(variance), width)

    @property
    def for_gdp(self) -> "LatticeNoise":
        """This noise with one more unit of variance: sqrt(squares / old variance) is then a mu of Gaussian DP."""
        return replace(self, variance=self.variance + 1)

    def init(self) -> LatticeState:
        shape = (len(self.decays.halvings), self.width)
        zeros, none = np.zeros(shape, dtype=np.int64), np.zeros(self.width, dtype=np.int64)
        return LatticeState(0, none, zeros, zeros)

    def advance(self, state: LatticeState, noise: Noise) -> LatticeState:
        """Return the state after one more step, with one z drawn for each column.

        Raises:
            FailClosed: a noise sample beyond 18 deviations, less likely than 1e-70.
        """
        drawn = noise.gaussian(self.variance, self.width)
        fed = state.carried.sum(axis=0) + (1 << GUARD - 1) >> GUARD
        step = drawn - fed
        if self.width and max(int(step.max()), -int(step.min())) >= LIMIT:
            raise FailClosed(
                "a noise sample is too large for its lattice: the noise source is broken"
            )
        halvings, gains = self.decays.columns
        moved = state.rests + gains * step - state.carried
        carried = state.carried + (moved >> halvings)
        rests = moved & ((1 << halvings) - 1)
        return LatticeState(state.steps + 1, state.noise + step, carried, rests)

    def value(self, state: LatticeState) -> IntArray:
        """Return the noise in counts, rounded to integers, shape (width,)."""
        half = (1 << self.bits) >> 1
        rounded: IntArray = (state.noise + half) >> self.bits
        return rounded

    def deviation(self, steps: int) -> float:
        """Return the standard deviation of the noise in counts after `steps` steps, before rounding."""
        return math.sqrt(float(self.variance) * self.decays.growth(steps)) / (1 << self.bits)

    def drift(self, steps: int) -> float:
        """Return a bound, in counts, on what the inner roundings add to the noise."""
        each = float(self.decays.rounding) / (1 << self.bits)
        return each * math.sqrt(steps * self.decays.growth(steps))


def covered(decays: Decays, bits: int, steps: int) -> int:
    """Return (D |c| + eta sqrt(T))^2, rounded up: a bound on the sum of squared shifts of z in one column."""
    exact = decays.squared_norm(steps) * (1 << 2 * bits)
    rounded = decays.rounding**2 * max(0, steps - 1)
    square = math.ceil(4 * exact * rounded * LATTICE_NOISE_FINE**2)
    mixed = math.isqrt(square - 1) + 1 if square else 0
    return math.ceil(exact + Fraction(mixed, LATTICE_NOISE_FINE) + rounded)


SOURCE = "discrete Gaussian (Canonne, Kamath, Steinke 2020) correlated by a BLT (arXiv 2404.16706)"
MOST_RHO = 1000
FINE = 10**18  # a mu is rounded up to a multiple of 1 / FINE
PIECES = 256  # discrete Laplace terms that replace a Gaussian in `noise_terms`


@wire("gaussian-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class GaussianCounterState:
    """`total`: exact counts, shape (width,), private. `noise`: the correlated noise."""

    total: IntArray
    noise: LatticeState


@wire("gaussian-counter", 1, rests_on=(LatticeNoise,))
@dataclass(frozen=True)
class GaussianCounter(CountRows, Linear[GaussianCounterState]):
    """`width` continual counters for at most `horizon` updates, or for any number (up to 2^40) where it is None.

    `ones`: the most entries of a row that one event sets (1: one-hot rows). `gdp`: the counter claims sqrt(2
    rho)-Gaussian DP. The claim holds for the same noise up to one unit of lattice variance and gives a smaller
    epsilon at a delta, but composes only where communication is finite: it needs a horizon, with an answer after
    each update; rows and answers are 64-bit integers, and larger noise stops the engine.

    Privacy claim: `rho`-zCDP for such event streams under `neighbors`, at every prefix, adaptively: Gaussian noise
    correlated over time on an integer lattice, all columns together; the proof is in `LatticeNoise`. Every entry of a
    step may change by at most one.

    With a `shape` the claim is for its users: for all events of a user together (`LatticeNoise`, last paragraph).
    """

    width: int
    rho: Fraction
    neighbors: Neighbors
    horizon: int | None
    ones: int = 1
    gdp: bool = False
    shape: UserShape | None = None
    decays: Decays | None = None

    def __post_init__(self) -> None:
        if self.shape is not None and (self.gdp or self.neighbors is not Neighbors.ADD_REMOVE):
            raise NotDerivable(
                "for users, a Gaussian counter has a zCDP guarantee under add_remove"
            )

    @property
    def guarantee(self) -> Guarantee:
        measure = GaussianDP(self.mu) if self.gdp else ZCDP(self.rho)
        users = None if self.shape is None else self.shape.users
        return Guarantee(
            measure, self.neighbors, finite=self.horizon is not None, users=users, fresh=True
        )  # z is drawn at each step, for the shifts of that step

    @property
    def rows(self) -> ShapedLaw:
        return ShapedLaw(self.width, self.neighbors, self.ones, shape=self.shape)

    @property
    def mu(self) -> Fraction:
        """sqrt(2 rho), rounded up to 18 digits."""
        square = 2 * self.rho * FINE**2
        root = math.isqrt(math.floor(square))
        return Fraction(root + (root * root < square), FINE)

    @property
    def steps(self) -> int:
        return MOST_STEPS if self.horizon is None else self.horizon

    @cached_property
    def lattice(self) -> LatticeNoise:
        """The noise process: for each column, the sum of squared shifts over its variance is at most 2 rho / L0.

        Raises:
            NotDerivable: no positive rho, or one too small for 64 bits; more than 2^40 updates.
        """
        if not 0 < self.rho <= MOST_RHO or not 1 <= self.steps <= MOST_STEPS:
            raise NotDerivable("a Gaussian counter needs a rho in (0, 1000] and 1 to 2^40 updates")
        decays = decays_for(self.horizon) if self.decays is None else self.decays
        decays.require_room()
        unit = 2 * self.rho / (self.rows.l0 * self._events(decays))
        noise = LatticeNoise.calibrated(decays, self.steps, unit, self.width)
        return noise.for_gdp if self.gdp else noise

    def _events(self, decays: Decays) -> Fraction:
        """Return by what factor the events of the protected unit shift z more than one event, in squares."""
        return Fraction(1) if self.shape is None else decays.of_users(self.steps, self.shape)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        many = "any number of updates" if self.horizon is None else how_many(self.horizon, "update")
        subject = f"{how_many(self.width, 'Gaussian counter')}, {many}"
        return leaf(subject, self.guarantee, SOURCE, (self._noise(),))

    def _noise(self) -> Condition:
        """Return the condition on the noise: squared shifts in all columns that an event touches, over the variance."""
        touched, lattice = self.rows.l0, self.lattice
        shifts = covered(lattice.decays, lattice.bits, self.steps)
        if self.gdp:
            mu = discrete_gaussian(lattice.variance, Fraction(touched * shifts)).mu
            why = f"mu of the squared shift {text(mu)}, at most {text(self.mu)}"
            return Condition("noise", mu <= self.mu, f"{how_many(touched, 'column')}, {why}")
        events = self._events(lattice.decays)
        paid = events * touched * shifts / (2 * lattice.variance)
        why = (
            f"{how_many(touched, 'column')}; squared shift divided by twice the variance: {text(paid)}, at most "
            f"{text(self.rho)}"
        )
        if self.shape is not None:
            why = f"{why}: {self.shape}, whose squared shift together is {float(events):.4g} times that of one event"
        return Condition("noise", paid <= self.rho, why)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        if not public:
            return NOTHING
        drift = self.lattice.drift(public)
        variance = self.lattice.deviation(public) ** 2
        return NoiseLaw((), variance, 0.5 + drift, between=2 * drift)

    def noise_terms(self, updates: int) -> list[Term]:
        """Return DLap terms whose sum has tails at least as heavy as the noise in the answer after `updates`.

        The PIECES terms have together at least the noise's variance. No cumulant of a DLap is negative, so the moment
        generating function of the sum is above that of the Gaussian, and a Chernoff bound for the sum also bounds the
        noise.
        """
        if updates == 0:
            return []
        whole = self.lattice.deviation(updates) + self.lattice.drift(updates)
        square = ((whole + 0.5) ** 2 / PIECES + 1 / 6) / 2  # a DLap has at least 2 scale^2 - 1/6
        return [Term(Fraction(math.ceil(square**0.5 * 2**20), 2**20), PIECES)]

    def most_noise_terms(self, updates: int) -> list[Term]:
        """Return terms at least as wide as those of any answer up to the next power of two of `updates`."""
        return self.noise_terms(min(self.steps, 1 << updates.bit_length()))

    def init(self, noise: Noise) -> GaussianCounterState:
        return GaussianCounterState(np.zeros(self.width, dtype=np.int64), self.lattice.init())

    def advanced(
        self, state: GaussianCounterState, total: IntArray, noise: Noise
    ) -> GaussianCounterState:
        require_left(state.noise.steps, self.steps)
        return GaussianCounterState(total, self.lattice.advance(state.noise, noise))

    def value(self, state: GaussianCounterState) -> IntArray:
        return self.lattice.value(state.noise)
