"""Mechanisms as the papers print them: HSS and its sparse vector, multi-dimensional SVT, local protocols.

`PaperHSS` is HSS as [HSV] prints it (Alg. 4): a running threshold, a noisy check at each crossing, counters at epsilon
/ d. docs/hss.md compares it with the variants in `hss`, which have smaller errors. The paper leaves some choices open:
here with probability 1 - beta no answer errs by more than 4 a_S + 5 alpha + L + 1, h is clipped at 0 where q is applied
(q is defined on N^d), SVT-init copies h, and all noise is discrete. A query is a step. Rules are those of `hss`.

Local protocols have users who each hold a part of the data, and a server that receives only their private answers. M_P
= S_P o* ExtConComp of [HSV] section 8 as one continual mechanism. A row of event counts is split among the users: user
i gets the columns views[i]. A query lets the server play one round: it asks some users and receives their answers.
Rules: at each tick every user gets its part, even if all entries are 0, so that no destination depends on data (Claim
8.4). The server is deterministic and sees nothing but answers (Remark 8.3: its coins would be a separate mechanism).
For programs, not for pipelines: the users of a pipeline send events.

A user of the k-core example runs the multi-dimensional sparse vector: many counts, each compared until it first lies
below a public threshold. A coordinate is a fixed set of columns and has one sparse vector instance. A query names a
threshold and, if it is a `SubsetQuery`, the columns that count; each armed coordinate answers whether its count over
these columns lies below the threshold, and halts with its first 1. Rules: the columns of a coordinate are fixed for
ever, so the sensitivity D = sum over coordinates of max over queries |change| can be computed from the shape. If each
query assigned the columns anew, the max over queries of the sum would stay 1 while the loss grew with the number of
coordinates. Pipelines use a `monitor` instead.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Composite, Fixed, Parallel, Touched
from stream_dp.core.composition import Ask, CompositionState, ConcurrentComposition, Create, Halt
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Mechanism, Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.core.wire import wire
from stream_dp.core.wording import how_many
from stream_dp.errors import NotDerivable, RejectedMessage, UsageError
from stream_dp.mechanisms.checks import checked, of_the_exact_class
from stream_dp.mechanisms.hss.hss import COUNTER, SUITE, InnerCounter, Lagging, error_bound
from stream_dp.mechanisms.hss.sparse_vector import ErrorLaw, Quantity, SparseVector
from stream_dp.mechanisms.linear.counter import HandOverCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.noise_law import index_probability
from stream_dp.mechanisms.serving import CountRows, Sides, Word

SOURCE = "[HSV] Lemma 7.4, discrete Laplace noise"


@wire("paper-sparse-vector", 1)
@dataclass(frozen=True, slots=True)
class PaperSparseVector(SparseVector):
    """Alg. 3 at its parameter e = threshold_epsilon = query_epsilon: Lap(D / e) once, Lap(2 D / e) at each query.

    Answers as `SparseVector` does, with noise that is two-sided and twice as wide.

    Privacy claim: 2e-DP for such event streams under `neighbors`, adaptively ([HSV] Lemma 7.4, where e is epsilon / 6
    and the claim epsilon / 3).
    """

    def derivation(self) -> Derivation:
        """Derive the guarantee as `SparseVector` does; the overrides below only exchange the noise and its scales."""
        return SparseVector.derivation(self)

    @property
    def _source(self) -> str:
        return SOURCE

    @property
    def _signs(self) -> int:
        """2: the paper uses only the sensitivity of q."""
        return 2

    def _drawn(self, noise: Noise, scale: Fraction) -> int:
        return int(noise.laplace(scale, 1)[0])


NOISY_QUANTITY_SOURCE = "discrete Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009)"


@wire("noisy-quantity-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class NoisyQuantityState:
    """`count`: exact sums since the last answer, private."""

    count: IntArray


@wire("noisy-quantity", 1)
@dataclass(frozen=True, slots=True)
class NoisyQuantity(CountRows):
    """q(offset + sum of rows) plus discrete Laplace noise of scale D / epsilon; answers of shape (1,).

    Alg. 4 checks a crossing with it. Rows are forgotten once they were in an answer. `offset` is a released value.

    Privacy claim: `epsilon`-DP under `neighbors`, adaptively, for events of at most `ones` ones: an event is in one
    answer, and changes q by at most D there.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    offset: tuple[int, ...]
    quantity: Quantity
    ones: int = 1

    def __post_init__(self) -> None:
        self.quantity.checked(self.neighbors, self.width, self.ones)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def _most(self) -> int:
        """D: the most by which one event changes the quantity."""
        return self.quantity.sensitivity(self.neighbors, self.width, self.ones)

    @property
    def scale(self) -> Fraction:
        return self._most / self.epsilon

    @of_the_exact_class
    def derivation(self) -> Derivation:
        most = self._most
        known = Condition("quantity", True, f"{self.quantity.words}: {self.quantity.why}")
        why = f"an event changes it by at most {most}, in one answer: scale {most}/e"
        drawn = Condition("noise", self.scale * self.epsilon >= most, why)
        return leaf("one noisy check", self.guarantee, NOISY_QUANTITY_SOURCE, (known, drawn))

    def init(self, noise: Noise) -> NoisyQuantityState:
        return NoisyQuantityState(np.zeros(self.width, dtype=np.int64))

    def step(
        self, state: NoisyQuantityState, message: Message, noise: Noise
    ) -> Step[NoisyQuantityState]:
        if not isinstance(message, Query):
            return NoisyQuantityState(state.count + checked(message.row, self.width)), None
        value = self.quantity.of(state.count + np.array(self.offset, dtype=np.int64))
        answer = np.array([value], dtype=np.int64) + noise.laplace(self.scale, 1)
        return self.init(noise), answer


RELATION = Neighbors.REPLACE  # with `ones` = width: ~_H, one whole row is another


@wire("paper-hss-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class PaperHSSState:
    """`steps`, `intervals` (closed), `threshold` (Thresh), `released` (h) and `watcher`, the index of the live
    instance, are public; `pending` (c) is private.
    """

    steps: int
    intervals: int
    threshold: int
    released: IntArray
    pending: IntArray
    watcher: int
    parts: CompositionState


@wire("paper-hss", 1, rests_on=(HandOverCounter, PaperSparseVector, NoisyQuantity))
@dataclass(frozen=True)
class PaperHSS(Lagging):
    """The `quantity` of `width` columns by Alg. 4 with parameters `epsilon` and `beta`.

    Answers: shape (1,), never negative. `horizon` is the number of steps where it is known. The error bounds are
    for rows in {0, 1}^width: after a burst of many events in one step, intervals without events close too, until
    Thresh has caught up.

    Privacy claim: `epsilon`-DP for ~_H, adaptively: one whole row is replaced (`replace` with as many ones as
    columns). [HSV] Thm 6.1 over {sparse vector instances at epsilon / 3: Cor 5.5, k = 1; noisy checks at epsilon /
    3: Cor 5.5, k = 1; d counters at epsilon / 3d each: Cor 5.5, k = d}, joined by Thm 4.10.
    """

    width: int
    quantity: Quantity
    epsilon: Fraction
    horizon: int | None
    beta: Fraction = Fraction(1, 20)
    composition: ConcurrentComposition = field(
        default_factory=ConcurrentComposition, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.quantity.checked(RELATION, self.width, self.width)
        sensitive = self.quantity.sensitivity(RELATION, self.width, self.width)
        if sensitive != 1 or self.quantity.error(self.width) is None:
            raise UsageError(
                f"paper_hss: {self.quantity.words} is not 1-sensitive if a replacement may change "
                f"all {self.width} entries of a row ([HSV] Def 7.3). Use method hss"
            )

    @property
    def neighbors(self) -> Neighbors:  # type: ignore[override]  # no parameter
        return RELATION

    @property
    def ones(self) -> int:  # type: ignore[override]  # no parameter
        return self.width

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), RELATION)

    @cached_property
    def counter(self) -> InnerCounter:
        """The counter of all d columns: epsilon / 3 in total, a d-th of it for each column."""
        return HandOverCounter(self.width, self.epsilon / 3, RELATION, self.width)

    @cached_property
    def _law(self) -> ErrorLaw:
        law = self.quantity.error(self.width)
        if law is None:
            raise TypeError("a quantity without a law was not refused")
        return law

    def instance(self, released: IntArray) -> PaperSparseVector:
        """Return SVT-init(epsilon / 6, q, h); h is copied."""
        h, sixth = tuple(released.tolist()), self.epsilon / 6
        return PaperSparseVector(self.width, sixth, sixth, RELATION, h, self.quantity, self.width)

    def check(self, released: IntArray) -> NoisyQuantity:
        """Return the check of a crossing, with noise Lap(3 / epsilon)."""
        h = tuple(released.tolist())
        return NoisyQuantity(self.width, self.epsilon / 3, RELATION, h, self.quantity, self.width)

    def gamma(self, step: int, interval: int) -> int:
        """Return gamma(t, j) = 2 a_S(t, j) + 2 alpha(j - 1) + L + 1, for j >= 1; nondecreasing in t and j."""
        return 2 * self._slack(step, interval) + 2 * self.alpha(interval - 1) + self._most + 1

    def xi(self, step: int, interval: int) -> int:
        """Return xi(t, j) = a_S(t, j) + a_G(j); while the noises keep their bounds, every check passes."""
        share = index_probability(float(self.beta) / 6, interval, None)
        return self._slack(step, interval) + laplace_tail(3 / self.epsilon, share)

    def alpha(self, updates: int) -> int:
        """Return a bound on q's error from the counters over the first `updates` updates; total failure beta / 3."""
        return error_bound(self.counter, updates.bit_length(), self._law, float(self.beta) / 3)

    def _slack(self, step: int, interval: int) -> int:
        """Return a_S(t, j), which |nu_t - tau_j| exceeds with total probability beta / 3 + beta / 6."""
        beta = float(self.beta)
        query = laplace_tail(12 / self.epsilon, index_probability(beta / 3, step, self.horizon))
        return query + laplace_tail(6 / self.epsilon, index_probability(beta / 6, interval, None))

    @cached_property
    def _most(self) -> int:
        """L: the most by which a row in {0, 1}^d raises the quantity."""
        return self.quantity.lipschitz(self.width)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: instances and checks one after the other, and the counters, all inside Alg. 4."""
        zeros = np.zeros(self.width, dtype=np.int64)
        intervals = Touched.intervals(
            RELATION,
            "intervals are disjoint and their ends are released: an event reaches one instance and one check",
            SUITE,
        )
        instance, check = self.instance(zeros).derivation(), self.check(zeros).derivation()
        watchers = derive((instance,), Parallel("sparse vector instances", intervals))
        checks = derive((check,), Parallel("noisy checks", intervals))
        parts = derive((watchers, checks, self.counter.derivation()), Fixed("sub-mechanisms"))
        composite = Composite(
            "HSS of [HSV] Alg. 4",
            "rows and interval sums are only added and forwarded; crossings, checks, released values, indices decide",
            "one event changes one row of one instance, one check's sum and one interval sum, each entry by at most 1",
            SUITE,
        )
        return derive((parts,), composite)

    def public(self, updates: int, state: PaperHSSState | None) -> tuple[int, int, int] | None:
        """Return the numbers of steps and of closed intervals, and how far Thresh lies above the released value."""
        if state is None:
            return None
        behind = state.threshold - self.quantity.of(state.released)
        return self.horizon or max(1, state.steps), state.intervals, max(0, behind)

    def band(self, public: tuple[int, int, int], confidence: float) -> int:
        """Return a bound on |released - true|.

        The growth that is not yet released is at most Thresh - q(h) + tau - nu. For the instance alive now the law
        of tau - nu is bounded as in `HSS.lag`: P(tau - nu > z) <= a^(z + 1) E[a^-tau] / (1 + a), a = e^(-epsilon /
        12), divided among the possible numbers of intervals: a geometric of that scale, moved up.
        """
        step, intervals, behind = public
        moved = self._moved(step, intervals)
        return self._lagging(behind + moved, 12 / self.epsilon, intervals, confidence)

    @property
    def words(self) -> tuple[Word, Word | None]:
        return "calibrated", "calibrated"

    def sides(self, state: PaperHSSState, confidence: float) -> Sides:
        step, intervals, behind = self.public(0, state) or (1, 0, 0)
        moved = self._moved(step, intervals)
        return self._sides(behind + moved, 12 / self.epsilon, intervals, confidence)

    def at_once(self, query: int, intervals: int) -> int:
        """Return 4 a_S + 5 alpha + L + 1, for rows in {0, 1}^width; beta is FAILURE by default."""
        open_interval = intervals + 1
        return (
            4 * self._slack(query, open_interval) + 5 * self.alpha(open_interval) + self._most + 1
        )

    def _moved(self, step: int, intervals: int) -> int:
        return _moved_up(12 / self.epsilon, self._survival(step, intervals))

    def opening(self) -> tuple[int, int]:
        """Return event counts at which the event decides a crossing, or a lead where other columns would hide it."""
        return self.quantity.opening(self.gamma(1, 1))

    def init(self, noise: Noise) -> PaperHSSState:
        zeros = np.zeros(self.width, dtype=np.int64)
        parts, _ = self.composition.step(self.composition.init(), Create(self.counter), noise)
        parts, _ = self.composition.step(parts, Create(self.instance(zeros)), noise)
        return PaperHSSState(0, 0, self.gamma(1, 1), zeros, zeros, COUNTER + 1, parts)

    def step(self, state: PaperHSSState, message: Message, noise: Noise) -> Step[PaperHSSState]:
        """Add a row, or do the rest of Hist-update and answer `out`."""
        if not isinstance(message, Query):
            parts, _ = self.composition.step(state.parts, Ask(state.watcher, message), noise)
            return replace(state, parts=parts, pending=state.pending + message.row), None
        now = state.steps + 1
        asked = Ask(state.watcher, Query(state.threshold))
        parts, above = self.composition.step(state.parts, asked, noise)
        after = replace(state, steps=now, parts=parts)
        if above is not None and above[0]:
            after = self._close(after, noise)
        interval = after.intervals + 1
        threshold = after.threshold - self.gamma(now, interval) + self.gamma(now + 1, interval)
        after = replace(after, threshold=threshold)
        return after, np.array([self.quantity.of(after.released)], dtype=np.int64)

    def _close(self, state: PaperHSSState, noise: Noise) -> PaperHSSState:
        """Check the crossing, raise Thresh, count the interval's sum, and arm a new instance."""
        step, parts, now, j = self.composition.step, state.parts, state.steps, state.intervals + 1
        parts, _ = step(parts, Halt(state.watcher), noise)
        place = parts.created
        parts, _ = step(parts, Create(self.check(state.released)), noise)
        parts, _ = step(parts, Ask(place, Update(state.pending)), noise)
        parts, noisy = step(parts, Ask(place, Query()), noise)
        parts, _ = step(parts, Halt(place), noise)
        parts, _ = step(parts, Ask(COUNTER, Update(state.pending)), noise)
        parts, counted = step(parts, Ask(COUNTER, Query()), noise)
        if noisy is None or counted is None:
            raise TypeError("a check and a counter answer every query")
        threshold = state.threshold
        if int(noisy[0]) > threshold - self.xi(now, j):
            threshold += self.gamma(now, j)
        threshold += self.gamma(now, j + 1) - self.gamma(now, j)
        released = np.maximum(counted, 0)
        watcher = parts.created
        parts, _ = step(parts, Create(self.instance(released)), noise)
        zeros = np.zeros(self.width, dtype=np.int64)
        return PaperHSSState(now, j, threshold, released, zeros, watcher, parts)


def laplace_tail(scale: Fraction, probability: float) -> int:
    """Return the least m that |discrete Laplace| of this scale exceeds with at most this probability.

    P(|X| > m) = 2 a^(m + 1) / (1 + a).
    """
    a = math.exp(-1 / float(scale))
    return max(0, math.ceil(float(scale) * math.log(2 / ((1 + a) * probability)) - 1))


def _moved_up(scale: Fraction, share: float) -> int:
    """Return the least z0 such that z0 + geometric of nu's scale dominates min(1, P(tau - nu > z) / share).

    E[a^-tau] = (1 - t)^2 / ((1 - t / a)(1 - t a)), t = a^2 the decay of tau.
    """
    a = math.exp(-1 / float(scale))
    moment = (1 - a * a) ** 2 / ((1 - a) * (1 - a**3))
    return max(0, math.ceil(float(scale) * math.log(moment / (1 + a) / share)))


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


S = TypeVar("S")


class Server(Protocol[S]):
    """The server's rules: its next questions, as a function of the answers so far."""

    def init(self) -> S:
        """Return the state before the first round; it consists of plain values, so it can be saved."""
        ...

    def questions(self, state: S) -> tuple[Ask, ...]:
        """Return the queries of the next round, where `index` is the user; empty once the server has halted."""
        ...

    def hear(self, state: S, answers: tuple[IntArray, ...]) -> S:
        """Return the state after the answers of the round, given in the order of the queries."""
        ...


@wire("local-protocol-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class LocalProtocolState:
    """`server` is public: a function of the answers so far. `parts` holds the states of the users, private."""

    server: Any
    parts: CompositionState


@wire("local-protocol", 1)
@dataclass(frozen=True)
class LocalProtocol:
    """`users` answer `server`; user i holds the columns views[i] of each row.

    An answer has the users' answers of one round, concatenated; shape (0,) once the server has halted. Because the
    server is deterministic, the answers so far determine its whole view ([HSV] Def 8.1) and contain nothing more.

    Privacy claim ([HSV] Thm 8.7, Cor 8.8): with users that are pure epsilon'-DP, k * epsilon'-DP for one-hot event
    streams under `neighbors`, where an event lies in the parts of at most k users (Cor 5.5), as in Remark 8.10 also
    while their data grows. For (epsilon', delta')-DP users whose data comes whole in one first message, the rule of Cor
    8.8 in the accounting has the price; with growing data no price exists (Thm 5.2).
    """

    users: tuple[Mechanism[Any], ...]
    views: tuple[tuple[int, ...], ...]
    server: Server[Any]
    composition: ConcurrentComposition = field(
        default_factory=ConcurrentComposition, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.users or len(self.users) != len(self.views):
            raise UsageError(
                f"each user must hold one part of the data: got {how_many(len(self.users), 'user')} and "
                f"{how_many(len(self.views), 'part')}"
            )
        for number, (user, view) in enumerate(zip(self.users, self.views, strict=True)):
            if len(set(view)) < len(view) or min(view, default=0) < 0 or user.width != len(view):
                raise UsageError(
                    f"user {number} needs rows of {user.width} column(s), so its part must name as many "
                    f"distinct columns; got {len(view)}"
                )
        if len({user.guarantee.neighbors for user in self.users}) > 1:
            raise UsageError("all users must have the same neighbour relation")

    @cached_property
    def width(self) -> int:
        return 1 + max((column for view in self.views for column in view), default=-1)

    @property
    def rows(self) -> RowLaw:
        return RowLaw(self.width, self.guarantee.neighbors)

    @cached_property
    def sparsity(self) -> int:
        """k: the most users one event can touch."""
        holders = Counter(column for view in self.views for column in view)
        changed = self.users[0].guarantee.neighbors.l0(self.width)
        return min(len(self.users), changed * max(holders.values(), default=0))

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at k times the largest epsilon among the users (NotDerivable: a user is not pure)."""
        measures = [user.guarantee.measure for user in self.users]
        pure = [measure.epsilon for measure in measures if isinstance(measure, PureDP)]
        if len(pure) < len(measures):
            raise NotDerivable(
                "no guarantee is known for users with delta > 0 whose data grows ([HSV] Thm 5.2). "
                "Use users with delta = 0, or [HSV] Cor 8.8, where all data comes first"
            )
        return Guarantee(PureDP(self.sparsity * max(pure)), self.users[0].guarantee.neighbors)

    def init(self, noise: Noise) -> LocalProtocolState:
        parts = self.composition.init()
        for user in self.users:
            parts, _ = self.composition.step(parts, Create(user), noise)
        return LocalProtocolState(self.server.init(), parts)

    def step(
        self, state: LocalProtocolState, message: Message, noise: Noise
    ) -> Step[LocalProtocolState]:
        """Pass every user its part of a row, or play one round (RejectedMessage: a user refuses the query)."""
        if isinstance(message, Query):
            return self._round(state, noise)
        row, parts = self._whole(message.row), state.parts
        for user, view in enumerate(self.views):
            handed = Ask(user, Update(row[list(view)]))
            parts, _ = self.composition.step(parts, handed, noise)
        return LocalProtocolState(state.server, parts), None

    def _round(
        self, state: LocalProtocolState, noise: Noise
    ) -> tuple[LocalProtocolState, IntArray]:
        parts, answers = state.parts, []
        for question in self.server.questions(state.server):
            parts, answer = self.composition.step(parts, question, noise)
            if answer is None:
                raise TypeError("a server sends only queries; the data comes from the users")
            answers.append(answer)
        if not answers:
            return state, np.zeros(0, dtype=np.int64)
        heard = self.server.hear(state.server, tuple(answers))
        return LocalProtocolState(heard, parts), np.concatenate(answers)

    def _whole(self, row: IntArray) -> IntArray:
        """Return the checked row; tainted rows of the test kit hide their shape, and the users check their parts."""
        hidden = not isinstance(row, np.ndarray) and hasattr(row, "__array_ufunc__")
        return row if hidden else checked(row, self.width)


@dataclass(frozen=True, slots=True)
class SubsetQuery(Query):
    """A query that counts only these columns, which are a public choice; None means all columns."""

    columns: tuple[int, ...] | None = None


@wire("multi-sparse-vector-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class MultiSparseVectorState:
    """`count`: exact sums, (width,), private. `lift`: noise on the thresholds, `halted`: 0 or 1; (coordinates,)."""

    count: IntArray
    lift: IntArray
    halted: IntArray


@wire("multi-sparse-vector", 1)
@dataclass(frozen=True)
class MultiSparseVector(CountRows):
    """Is the sum of rows over views[j] and the query's columns < threshold, for each armed coordinate j?

    Answers of shape (coordinates,): 1 below (and the coordinate halts), 0 not below or halted before.

    Privacy claim: (threshold_epsilon + query_epsilon)-DP for one-hot event streams under `neighbors`, adaptively. Each
    coordinate is an AboveThreshold instance on minus its count ([HSV] Alg. 3, one-sided geometric noise: Liu et al.,
    arXiv 2407.20068); one event changes all its answers in one direction, so its query noise needs no factor of 2. The
    whole is their concurrent parallel composition, asked in rounds ([HSV] section 9, Cor 5.5 with k = D).
    """

    width: int
    views: tuple[tuple[int, ...], ...]
    threshold_epsilon: Fraction
    query_epsilon: Fraction
    neighbors: Neighbors

    def __post_init__(self) -> None:
        for view in self.views:
            if len(set(view)) < len(view) or not set(view) <= set(range(self.width)):
                raise UsageError(
                    f"a coordinate must name distinct columns from 0 to {self.width - 1}; got {view}"
                )
        if not self.views:
            raise UsageError("a multi-sparse-vector needs at least one coordinate")

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.threshold_epsilon + self.query_epsilon), self.neighbors)

    @cached_property
    def sensitivity(self) -> int:
        """D: the number of coordinates that look at one column; twice that where an event may change two columns."""
        most = int(self._incidence.sum(axis=0).max(initial=0))
        return max(1, most * self.neighbors.l0(self.width))

    @property
    def lift_scale(self) -> Fraction:
        return self.sensitivity / self.threshold_epsilon

    @property
    def query_scale(self) -> Fraction:
        return self.sensitivity / self.query_epsilon

    @cached_property
    def _incidence(self) -> IntArray:
        """1 where a coordinate looks at a column, shape (coordinates, width)."""
        table = np.zeros((len(self.views), self.width), dtype=np.int64)
        for place, view in enumerate(self.views):
            table[place, list(view)] = 1
        return table

    def init(self, noise: Noise) -> MultiSparseVectorState:
        lift = noise.geometric(self.lift_scale, len(self.views))
        count = np.zeros(self.width, dtype=np.int64)
        return MultiSparseVectorState(count, lift, np.zeros_like(lift))

    def step(
        self, state: MultiSparseVectorState, message: Message, noise: Noise
    ) -> Step[MultiSparseVectorState]:
        """Add a row, or compare the count of every armed coordinate."""
        if not isinstance(message, Query):
            count = state.count + checked(message.row, self.width)
            return MultiSparseVectorState(count, state.lift, state.halted), None
        counts = self._counts(state.count, message)
        if message.threshold is None:
            raise RejectedMessage("a sparse vector query needs a public threshold")
        armed = state.halted == 0
        if not armed.any():
            raise RejectedMessage(
                "every coordinate of this sparse vector has halted; create a new one"
            )
        lowered = message.threshold - state.lift[armed]
        lowered += noise.geometric(self.query_scale, int(armed.sum()))
        below = np.zeros_like(state.halted)
        below[armed] = counts[armed] < lowered
        return MultiSparseVectorState(state.count, state.lift, state.halted + below), below

    def _counts(self, count: IntArray, query: Query) -> IntArray:
        columns = query.columns if isinstance(query, SubsetQuery) else None
        if columns is None:
            return self._incidence @ count
        if not set(columns) <= set(range(self.width)):
            raise RejectedMessage(f"the columns of a query must lie from 0 to {self.width - 1}")
        chosen = np.zeros(self.width, dtype=np.int64)
        chosen[list(columns)] = 1
        return self._incidence @ (count * chosen)
