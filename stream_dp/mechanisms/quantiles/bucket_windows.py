"""Quantiles over windows: tumbling (the bucket of the value with a given share below it), and sliding with a delta.

A row counts the events of a tick by value bucket. Exact counts are collected within each public window of W ticks; the
first window begins with the first update. At a window's last update a noisy maximum chooses one bucket for each
quantile; that choice is the answer until the next window ends. An event lies in one window of each length, and the
counts of a window are forgotten when it ends.

How far bucket b is from the quantile q = p/s is an integer:
    loss(b) = max(0, s * before(b) - p * n, p * n - s * through(b)),
s times the number of events between the rank q * n and the ranks that b holds; some bucket's loss is 0. One more event
in bucket a moves s * before(b) - p * n by s - p (where a < b) or by -p, and p * n - s * through(b) by -(s - p) (where
a <= b) or by p: no loss by more than max(p, s - p). An event that moves between buckets within its tick leaves n as it
was and moves each of the two terms by s, -s or 0, so no loss by more than s, which is no less than max(p, s - p): the
zero row is a content as well.

The choice is the bucket of the largest Z(b) - loss(b), Z independent geometric with scale 2 * sensitivity / epsilon,
the first of equal ones. It is `epsilon`-DP: given the other noises, b is chosen iff Z(b) is at least some integer,
which a neighbour raises by at most 2 * sensitivity, and P[Z >= x + y] >= exp(-y / scale) P[Z >= x] for all integers x
and y >= 0. As Z is the whole part of an exponential variable, this is permute-and-flip (McKenna, Sheldon 2020; equal to
the maximum with exponential noise, Ding, Kifer et al. 2021) with scores read to 1/s of an event, in one draw a bucket:
no rejections, and so few draws that all of them can be enumerated.

Or one choice has all quantiles of a window. A candidate is a tuple of buckets, one for each quantile and none before
the one before; its loss is the largest of its buckets' losses, each first multiplied so that one event changes it by at
most the same M, the least common multiple of all sensitivities. A maximum of numbers that change by at most M does so
too, and some tuple has loss 0. So the choice above, among tuples and at the scale 2 * M / epsilon, pays once for all
quantiles; their number counts by the logarithm of the number of tuples alone.

In a sliding window, `RankWindow` has noisy counts of value buckets, with Gaussian noise for ranks, correlated over
values and time.

What is released is y = S X C' + z: S weighs the buckets of a tick (`RankLevels`), C is lower triangular, banded and
Toeplitz and weighs ticks (`window_gains`). Both are near the best of all factorizations, S for ranks less half the
number of events, C for the window's sums; together they are a Kronecker product, whose columns have the product of the
columns' norms. Everything told is computed from y. All of S and C is in integers.

Privacy of `RankWindow`: per entry of S x, with D = 2^GAIN_BITS and gains g_0 = D, g_1, ...,

    w_t = z_t - round(sum over k > 0 of g_k w_(t - k) / D),    v_t = D S x_t + w_t,

z discrete Gaussians drawn at t. Fix the released v. Between two neighbouring runs, whose rows differ by d at the
event's tick, w differs there by -D S d and nowhere else; so the sum in w_(t + k) differs by -g_k D S d, its rounded
quotient by -g_k S d to the last bit, and z_(t + k) by -g_k S d, for k below the number of gains. So on every path,
whatever the adversary does, the squares of z's shifts add up to |S d|^2 times the sum of g_k^2. A shift by an integer
has the Renyi divergence alpha shift^2 / (2 variance) at most (Canonne, Kamath, Steinke 2020, Prop. 5); z is drawn
afresh at every step, and these bounds on all shifts together hold whatever was released before, so they add up
adaptively: zCDP. d has one entry of 1, or under `replace` one of 1 and one of -1: `RankLevels.squares` is the largest
|S d|^2, in integers.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain, combinations_with_replacement
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.core.wording import how_many
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.mechanisms.checks import checked, of_the_exact_class
from stream_dp.mechanisms.linear.ended_windows import of_each_length
from stream_dp.mechanisms.linear.noisy_forest import Ring, pushed, require_held, row_back
from stream_dp.mechanisms.linear.tree import FRACTION_BITS
from stream_dp.mechanisms.noise_law import NOTHING, NoiseLaw
from stream_dp.mechanisms.serving import Additive, CountRows, Deciding

SOURCE = "noisy maximum with one-sided noise (McKenna, Sheldon 2020; Ding, Kifer et al. 2021)"
TEST = "tests/unit/verify/exact/test_small_quantiles.py"  # exact, against every adversary
WIDEST = 1 << 40  # noise of a larger scale cannot be drawn
UNTOLD = -1
"""The answer where no window has ended yet."""
# a loss beyond it counts as it: no noise reaches so far, and 64 bits hold any noise less this
_FARTHEST = 1 << 62

Tuples: TypeAlias = NDArray[np.int16]


def tuples_of(buckets: int, quantiles: int) -> int:
    """Return how many tuples of buckets, none before the one before, there are for so many quantiles."""
    return math.comb(buckets + quantiles - 1, quantiles)


@lru_cache(maxsize=4)
def _tuples(buckets: int, quantiles: int) -> Tuples:
    """Return these tuples in lexicographic order, shape (tuples, quantiles)."""
    whole = chain.from_iterable(combinations_with_replacement(range(buckets), quantiles))
    number = tuples_of(buckets, quantiles) * quantiles
    return np.fromiter(whole, dtype=np.int16, count=number).reshape(-1, quantiles)


@wire("tumbling-quantiles-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class TumblingQuantilesState:
    """Exact counts of each open window, shape (windows, buckets), private, and the last chosen buckets, `told`, public,
    shape (windows, quantiles).
    """

    updates: int
    counts: IntArray
    told: IntArray


@wire("tumbling-quantiles", 1)
@dataclass(frozen=True, slots=True)
class TumblingQuantiles(CountRows, Deciding):
    """Answers of shape (len(windows) * len(at),): by window length, each quantile's bucket in the last window.

    `windows` are lengths in updates. `at` are the quantiles, increasing, each between 0 and 1. The first entries of a
    row are the value buckets, in order; the last `unranked` ones hold events without a value and count nowhere. A
    bucket is given by its index, from 0; before the first window has ended it is `UNTOLD`. The buckets of one window
    are sorted into the order of the quantiles: post-processing that does not increase the largest error. `together`:
    one choice has all quantiles of a window, otherwise each quantile has its own.

    Privacy claim: `epsilon`-DP for one-hot event streams under `neighbors`, for ever, adaptively: an event lies in
    one window of each length, and each window pays for each choice epsilon / (len(windows) * len(choices)).
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    at: tuple[Fraction, ...]
    unranked: int = 0
    together: bool = False

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def buckets(self) -> int:
        return self.width - self.unranked

    @property
    def choice_epsilon(self) -> Fraction:
        return self.epsilon / (len(self.windows) * len(self.choices))

    @property
    def choices(self) -> tuple[tuple[Fraction, ...], ...]:
        """The quantiles of each choice of a window."""
        return (self.at,) if self.together else tuple((quantile,) for quantile in self.at)

    def sensitivity(self, quantile: Fraction) -> int:
        """Return the most by which one event changes a bucket's loss (NotDerivable: it may lie in two ticks)."""
        if self.neighbors.l0(2) == 2:
            return quantile.denominator
        return max(quantile.numerator, quantile.denominator - quantile.numerator)

    def moves(self, quantiles: Sequence[Fraction]) -> int:
        """Return the most by which one event changes the loss of a choice of these quantiles."""
        return math.lcm(*map(self.sensitivity, quantiles))

    def scale(self, *quantiles: Fraction) -> Fraction:
        return 2 * self.moves(quantiles) / self.choice_epsilon

    @of_the_exact_class
    def derivation(self) -> Derivation:
        if max(self.scale(*choice) for choice in self.choices) > WIDEST:
            raise NotDerivable(
                "noise for these quantiles is too wide to be drawn. Write them with fewer decimals, "
                "or give more "
                f"epsilon{(', or choose each by itself (method: apart)' if self.together else '')}"
            )
        window = derive(
            tuple(map(self._choice, self.choices)), Fixed("the quantiles of one window")
        )
        return of_each_length(window, self.neighbors, self.windows, TEST)

    def _choice(self, quantiles: tuple[Fraction, ...]) -> Derivation:
        claim = Guarantee(PureDP(self.choice_epsilon), self.neighbors)
        moves, scale = self.moves(quantiles), self.scale(*quantiles)
        why = (
            f"an event moves the losses of buckets by at most {moves}, some up and others down, so the noise has "
            f"scale {text(scale)}"
        )
        drawn = Condition("noise", scale * self.choice_epsilon >= 2 * moves, why)
        alone = f"the bucket of the quantile {quantiles[0]}"
        all_of = f"the buckets of the quantiles {', '.join(map(str, quantiles))}, chosen together"
        return leaf(alone if len(quantiles) == 1 else all_of, claim, SOURCE, (drawn,))

    def public(self, updates: int, state: TumblingQuantilesState) -> None:
        """Return None: the choices of every window have the same noise."""

    def band(self, public: None, confidence: float) -> int:
        """Return the rank error, in events, that all quantiles of a window stay within with probability `confidence`.

        It is the distance of the requested rank from the ranks of the reported bucket. It holds for all data: some
        candidate has loss 0, and one whose loss is at least L beats it with probability at most a^L / (1 + a), a =
        exp(-1 / scale).
        """
        high = 1
        while self._missed(high) > 1 - confidence:
            high *= 2
        return bisect_left(range(high), True, key=lambda n: self._missed(n) <= 1 - confidence)

    def view_public(self, place: int, updates: int, state: TumblingQuantilesState) -> None:
        """Return None, as `public` does."""

    def view_band(self, place: int, public: None, confidence: float) -> int:
        return self.band(public, confidence)

    def _missed(self, events: int) -> float:
        """Return a bound on P[the rank of some quantile is off by more than `events` events]."""
        return sum(self._choice_missed(choice, events) for choice in self.choices)

    def _choice_missed(self, quantiles: tuple[Fraction, ...], events: int) -> float:
        moves, rate = self.moves(quantiles), float(1 / self.scale(*quantiles))
        loss = min(moves // self.sensitivity(q) * (q.denominator * events + 1) for q in quantiles)
        others = tuples_of(self.buckets, len(quantiles)) - 1
        return others * math.exp(-loss * rate) / (1 + math.exp(-rate))

    def opening(self) -> tuple[int, int]:
        """Return event counts that put the requested rank between the first two buckets; others are unlikely."""
        p, s = min(self.at, key=lambda quantile: quantile.denominator).as_integer_ratio()
        times = max(1, -(-self.band(None, 0.95) // (s - p)))
        return p * times, (s - p) * times

    def init(self, noise: Noise) -> TumblingQuantilesState:
        counts = np.zeros((len(self.windows), self.buckets), dtype=np.int64)
        told = np.full((len(self.windows), len(self.at)), UNTOLD, dtype=np.int64)
        return TumblingQuantilesState(0, counts, told)

    def step(
        self, state: TumblingQuantilesState, message: Message, noise: Noise
    ) -> Step[TumblingQuantilesState]:
        if isinstance(message, Query):
            return state, state.told.flatten()
        updates = state.updates + 1
        counts = state.counts + checked(message.row, self.width)[: self.buckets]
        told = state.told.copy()
        for place, length in enumerate(self.windows):
            if updates % length == 0:
                told[place] = np.sort(self._chosen(counts[place], noise))
                counts[place] = 0
        return TumblingQuantilesState(updates, counts, told), None

    def _chosen(self, counts: IntArray, noise: Noise) -> list[int]:
        """Return the chosen bucket of each quantile."""
        chosen = []
        for quantiles in self.choices:
            tuples, moves = _tuples(self.buckets, len(quantiles)), self.moves(quantiles)
            losses = [self._losses(counts, q, moves // self.sensitivity(q)) for q in quantiles]
            drawn = noise.geometric(self.scale(*quantiles), len(tuples))
            chosen += tuples[int(np.argmax(drawn - self._largest(losses, tuples)))].tolist()
        return chosen

    def _losses(self, counts: IntArray, quantile: Fraction, times: int) -> IntArray:
        """Return `times` each bucket's loss, computed in Python integers because losses may exceed 64 bits."""
        through = np.cumsum(counts.astype(object))
        before, total = through - counts, through[-1]
        p, s = quantile.as_integer_ratio()
        loss = np.maximum(np.maximum(s * before - p * total, p * total - s * through), 0)
        return np.asarray(np.minimum(times * loss, _FARTHEST), dtype=np.int64)

    def _largest(self, losses: Sequence[IntArray], tuples: Tuples) -> IntArray:
        """Return the loss of each tuple."""
        largest = losses[0][tuples[:, 0]]
        for place, loss in enumerate(losses[1:], start=1):
            np.maximum(largest, loss[tuples[:, place]], out=largest)
        return largest


Floats = NDArray[np.float64]
ROW_UNIT = 1 << 10  # the norm of a column of S, without the row of all buckets
TOTALS = tuple(ROW_UNIT * part // 20 for part in range(11))  # what the row of all buckets may weigh
GAIN_BITS = 12
BANDS = 3  # windows that the gains reach back
SETTLED = 24  # windows after which the noise has the law that it keeps
BELOW = 6  # bits of a released value below a unit of S
WEIGHT_BITS = 24
REACH = (
    1 << 34
)  # numbers below it are decoded in one pass: products of weights and of 1,000 rows have room
PASSES = 4
LARGEST_VARIANCE = 1 << 68
LIMIT = 1 << 40  # of |w|: products with gains stay inside 64 bits


@wire("rank-levels", 1)
@dataclass(frozen=True)
class RankLevels:
    """The weights S of `leaves` buckets in a release, and what is estimated from it by least squares.

    The ranks less half the number of events are the rows of a matrix T of 1/2 and -1/2, which is skew-circulant. Its
    factorization by the symmetric square root of T T' has the least product of the largest norms of a row and of a
    column, by symmetry. That root, in units of 1 / ROW_UNIT of its norm, is S; a last row weighs each bucket by `total`
    for quantiles far from the median, whose ranks also have a part of the noise of the number of events.
    """

    leaves: int
    total: int

    def __post_init__(self) -> None:
        if self.leaves < 1 or self.total < 0:
            raise NotDerivable("ranks need at least one bucket")

    height: ClassVar[int] = 1

    @property
    def nodes(self) -> int:
        return self.leaves

    @cached_property
    def strategy(self) -> IntArray:
        """S, shape (leaves + 1, leaves)."""
        n = self.leaves
        phases = np.pi * (2 * np.arange(n) + 1) / n
        magnitudes = np.sin(phases / 2) ** -0.5
        root = np.array([float(magnitudes @ np.cos(phases * lag)) for lag in range(n)])
        first = np.round(root * (ROW_UNIT / math.sqrt(float(root @ root)))).astype(np.int64)
        lags = np.arange(n)[:, None] - np.arange(n)
        rows = np.where(lags >= 0, first[lags % n], -first[lags % n])
        return np.concatenate([rows, np.full((1, n), self.total, dtype=np.int64)])

    def squares(self, neighbors: Neighbors) -> int:
        """Return the largest sum of squares by which one event changes S x.

        Products of two columns are those of the first column with another. Raises NotDerivable if the event may lie in
        two ticks.
        """
        products = (self.strategy[:, 0] @ self.strategy).tolist()
        own, others = products[0], products[1:]
        if neighbors.l0(self.leaves) == 1:
            return int(own)
        return int(max([own, *(2 * (own - product) for product in others)]))

    @cached_property
    def covariance(self) -> Floats:
        """That of the estimates of the buckets, where all entries of S x have noise of variance 1."""
        inverse = _inverse(self.leaves)
        sums, square = inverse.sum(axis=0), float(self.total**2)
        own: Floats = inverse - np.outer(sums, sums) * (square / (1 + square * sums.sum()))
        return own

    @cached_property
    def widest(self) -> float:
        return float(self.covariance.diagonal().max())

    @cached_property
    def _weights(self) -> IntArray:
        """The weights of a release in the estimates of the buckets, in units of 2^-WEIGHT_BITS."""
        exact = self.covariance @ self.strategy.T
        return np.round(exact * (1 << WEIGHT_BITS)).astype(np.int64)

    def counted(self, buckets: Any) -> Any:
        return buckets

    def decoded(self, rows: IntArray) -> IntArray:
        """Return the estimates of the buckets in units of 2^-FRACTION_BITS, of a release in units of 2^-BELOW.

        Each pass estimates what is left after the one before, and subtracts it: what was counted is found to the last
        unit, whatever the rounding of the weights.
        """
        whole, rest = np.zeros(self.leaves, dtype=np.int64), rows
        for _ in range(PASSES):
            less = max(0, int(np.abs(rest).max()).bit_length() - REACH.bit_length() + 1)
            found = self._weights @ (rest >> less) >> (WEIGHT_BITS + BELOW - less)
            whole = whole + found
            rest = rest - ((self.strategy @ found) << BELOW)
        more = self._weights @ rest >> (WEIGHT_BITS + BELOW - FRACTION_BITS)
        estimates: IntArray = (whole << FRACTION_BITS) + more
        return estimates

    def estimates(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the whole parts of decoded estimates, and the rests, in units of 2^-FRACTION_BITS."""
        return nodes >> FRACTION_BITS, nodes & ((1 << FRACTION_BITS) - 1)

    def spread(self, at: tuple[Fraction, ...]) -> tuple[Floats, Floats]:
        """Return the variance of each noisy rank less q times the number of events, in that of the widest bucket.

        Shapes are (len(at), leaves). The noise is normal: fourth cumulants are 0.
        """
        squares = np.array([self._variances(float(q), self.covariance) for q in at]) / self.widest
        return squares, np.zeros_like(squares)

    def _variances(self, quantile: float, covariance: Floats) -> Floats:
        ranks = covariance.cumsum(axis=0).cumsum(axis=1)
        variances: Floats = (
            ranks.diagonal() - 2 * quantile * ranks[-1] + quantile**2 * ranks[-1, -1]
        )
        return variances

    def worst(self, at: Sequence[Fraction]) -> float:
        """Return the largest variance of a rank below the last bucket's end, times the squares of one event."""
        far = max(float(self._variances(float(q), self.covariance)[:-1].max(initial=0)) for q in at)
        return round(far * self.squares(Neighbors.ADD_REMOVE), 6)


@lru_cache(maxsize=8)
def _inverse(leaves: int) -> Floats:
    rows = RankLevels(leaves, 0).strategy.astype(np.float64)
    return np.asarray(np.linalg.inv(rows.T @ rows), dtype=np.float64)


@lru_cache(maxsize=64)
def best_rank_levels(leaves: int, at: tuple[Fraction, ...]) -> RankLevels:
    """Return the weights with the least deviation of noisy ranks, at their worst; see `value_tree.best_levels`."""
    return min((RankLevels(leaves, total) for total in TOTALS), key=lambda own: own.worst(at))


@lru_cache(maxsize=64)
def window_gains(window: int) -> tuple[int, ...]:
    """Return the square root of the power series of a window's sum, (1 - x^W) / (1 - x), cut off after BANDS windows.

    In units of 2^-GAIN_BITS.
    """
    number = BANDS * window
    falls = np.cumprod([1.0] + [(2 * k - 1) / (2 * k) for k in range(1, number)])
    gains, part = np.zeros(number), 1.0
    for times in range(BANDS):
        gains[times * window :] += part * falls[: number - times * window]
        part *= (times - 0.5) / (times + 1)
    return tuple(np.round(gains * (1 << GAIN_BITS)).astype(np.int64).tolist())


RANK_SOURCE = (
    "discrete Gaussian (Canonne, Kamath, Steinke 2020), factorized over values and over ticks"
)
MOST_RHO = 1000


@wire("rank-window-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class RankWindowState:
    """After `updates` updates (public). `noises`: the last w, private. `sums`: the sums of all v so far, of the last
    ticks, in 64 bits without what is above.
    """

    updates: int
    noises: Ring
    sums: Ring


@wire("rank-window", 1)
@dataclass(frozen=True)
class RankWindow(CountRows, Additive):
    """Answers of shape (width,): estimates of the buckets' counts in the last `window` updates, for any number of them.

    They are in units of 2^-FRACTION_BITS. A window holds fewer than 2^34 events.

    Privacy claim: `rho`-zCDP for one-hot rows under `neighbors`, at every prefix, adaptively; the proof is at the top.
    """

    width: int
    rho: Fraction
    neighbors: Neighbors
    window: int
    levels: RankLevels

    ever: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.levels.leaves != self.width:
            raise NotDerivable(
                f"the weights are for {self.levels.leaves} buckets, but there are {self.width}"
            )
        if not 0 < self.rho <= MOST_RHO:
            raise NotDerivable("noisy ranks need a rho in (0, 1000]")
        require_held((BANDS * self.window,), self.width + 1, self.window)
        if self.variance > LARGEST_VARIANCE:
            raise NotDerivable(
                "ranks with so small a rho need more noise than 64 bits hold; give them a larger "
                "rho"
            )

    @property
    def forest(self) -> Self:
        return self

    @property
    def windows(self) -> tuple[int, ...]:
        return (self.window,)

    @cached_property
    def gains(self) -> IntArray:
        return np.array(window_gains(self.window), dtype=np.int64)

    @cached_property
    def shifts(self) -> int:
        """The most by which one event shifts z, in the sum of all squares."""
        gains = sum(gain**2 for gain in window_gains(self.window))
        return self.levels.squares(self.neighbors) * gains

    @cached_property
    def variance(self) -> Fraction:
        """The variance of z, in units of S 2^-GAIN_BITS."""
        return Fraction(math.ceil(self.shifts / (2 * self.rho)))

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(ZCDP(self.rho), self.neighbors, fresh=True)  # z is drawn at each step

    @of_the_exact_class
    def derivation(self) -> Derivation:
        paid = self.shifts / (2 * self.variance)
        why = f"squared shifts of {self.shifts}, divided by twice the variance: {text(paid)}, at most {text(self.rho)}"
        subject = f"{how_many(self.width, 'Gaussian count')} for ranks over {how_many(self.window, 'update')}"
        drawn = Condition("noise", paid <= self.rho, why)
        return leaf(subject, self.guarantee, RANK_SOURCE, (drawn,))

    @cached_property
    def _growth(self) -> Floats:
        """After n updates, at index n - 1, the variance of a window of w over that of z."""
        gains, window = self.gains / (1 << GAIN_BITS), self.window
        falling, number = gains[:0:-1].copy(), len(gains) - 1
        response = np.zeros(SETTLED * window + number)
        for tick in range(number, len(response)):
            fed = float(falling @ response[tick - number : tick])
            response[tick] = (tick - number < window) - fed
        growth: Floats = np.cumsum(response[number:] ** 2)
        return growth

    def view_public(self, place: int, updates: int, state: object) -> int:
        return min(updates, SETTLED * self.window)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise of the widest bucket, in counts."""
        if not public:
            return NOTHING
        growth = float(self._growth[min(public, SETTLED * self.window) - 1])
        row = float(self.variance) * growth / (1 << 2 * GAIN_BITS)
        return NoiseLaw((), row * self.levels.widest, 1.0)

    def band(self, public: int, confidence: float) -> int:
        """Return the half-width of an answer, in its units."""
        return self.noise(public).band(confidence) << FRACTION_BITS

    def view_band(self, place: int, public: int, confidence: float) -> int:
        return self.band(public, confidence)

    def init(self, noise: Noise) -> RankWindowState:
        zeros = np.zeros(self.width + 1, dtype=np.int64)
        return RankWindowState(0, (), pushed((), zeros, 1))

    def step(self, state: RankWindowState, message: Message, noise: Noise) -> Step[RankWindowState]:
        if isinstance(message, Query):
            back = min(self.window, state.updates)
            inside = row_back(state.sums, 0) - row_back(state.sums, back)
            less = GAIN_BITS - BELOW
            return state, self.levels.decoded((inside + ((1 << less) >> 1)) >> less)
        rows = self.levels.strategy @ self.checked_row(message.row)
        number = len(self.gains) - 1
        held = np.concatenate([np.zeros((0, self.width + 1), dtype=np.int64), *state.noises])
        held = held[max(0, len(held) - number) :]
        fed = self.gains[len(held) : 0 : -1] @ held
        step = noise.gaussian(self.variance, self.width + 1)
        step = step - ((fed + ((1 << GAIN_BITS) >> 1)) >> GAIN_BITS)
        if max(int(step.max()), -int(step.min())) >= LIMIT:
            raise FailClosed(
                "a noise sample is too large for its lattice: the noise source is broken"
            )
        noises = pushed(state.noises, step, max(1, number))
        so_far = row_back(state.sums, 0) + (rows << GAIN_BITS) + step
        return RankWindowState(
            state.updates + 1, noises, pushed(state.sums, so_far, self.window + 1)
        ), None
