"""Exact output law of AboveThreshold with one-sided geometric noise, and its worst-case loss.

tau ~ Geom(decay a), drawn once; nu_t ~ Geom(decay b), fresh each tick; top at t, then halt, iff
query_t + nu_t > threshold_t + tau. With scales 1/e1 and s/e2 the decays are e^(-e1) and e^(-e2/s).
Sources: Lyu, Su, Li: Understanding the Sparse Vector Technique (2017) for the rule and the monotone
case; Liu et al. 2024 for one-sided noise; [HSV] Algorithm 3. Infinite supports are summed in closed
form, nothing is truncated: given tau = x every factor is b^(margin + x) or 1 - b^(margin + x), a
polynomial in b^x.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracles.exact import decay, log_ratio

Pair: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Decays:
    """The two noise decays: `tau` = e^(-e1), `nu` = e^(-e2/s)."""

    tau: Fraction
    nu: Fraction

    @classmethod
    def of(cls, e1: float, e2: float, s: int = 1) -> "Decays":
        """From the two budgets and the noise factor s (1: one-signed changes, 2: general)."""
        return cls(decay(e1), decay(e2 / s))


def margins(
    queries: Sequence[int], thresholds: Sequence[int] | int, *, strict: bool = True
) -> tuple[int, ...]:
    """m_t with: top at t iff nu_t >= m_t + tau."""
    level = [thresholds] * len(queries) if isinstance(thresholds, int) else thresholds
    return tuple(g - q + int(strict) for q, g in zip(queries, level, strict=True))


@lru_cache(maxsize=1 << 18)
def pattern_probability(margin: tuple[int, ...], tops: tuple[bool, ...], noise: Decays) -> Fraction:
    """P[the comparisons come out as `tops`], all with the same tau (no halting): exact.

    Whole numbers over one common denominator, reduced once at the end: a hundred reductions take seconds.
    """
    a, (p, q) = noise.tau, noise.nu.as_integer_ratio()
    start = max([0, *(-m for m in margin)])
    head = sum((a**x * _given_tau(margin, tops, noise.nu, x) for x in range(start)), Fraction(0))
    poly, scale = [1], 1  # coefficients of y^k times `scale`, y = b^(tau - start)
    for m, top in zip(margin, tops, strict=True):
        above, whole = p ** (m + start), q ** (m + start)
        raised = [0, *(c * above for c in poly)]
        poly = raised if top else [c * whole - r for c, r in zip([*poly, 0], raised, strict=True)]
        scale *= whole
    tail, below = 0, 1  # sum of c / (1 - a b^k), the tail of a geometric series each
    for k, c in enumerate(poly):
        whole = a.denominator * q**k
        rest = whole - a.numerator * p**k
        tail, below = tail * rest + c * whole * below, below * rest
    return (1 - a) * (head + a**start * Fraction(tail, below * scale))


def _given_tau(margin: tuple[int, ...], tops: tuple[bool, ...], b: Fraction, tau: int) -> Fraction:
    """P[the comparisons come out as `tops` | tau]."""
    part, whole = 1, 1
    for m, top in zip(margin, tops, strict=True):
        above, every = b.numerator ** max(m + tau, 0), b.denominator ** max(m + tau, 0)
        part, whole = part * (above if top else every - above), whole * every
        if part == 0:
            break
    return Fraction(part, whole)


def transcript_probabilities(
    queries: Sequence[int], thresholds: Sequence[int] | int, noise: Decays, *, strict: bool = True
) -> tuple[Fraction, ...]:
    """P[first top at tick t] for t = 1..T, then P[no top]; they sum to exactly 1."""
    m = margins(queries, thresholds, strict=strict)
    halts = [pattern_probability(m[: t + 1], (*[False] * t, True), noise) for t in range(len(m))]
    return (*halts, pattern_probability(m, (False,) * len(m), noise))


def directional_loss(
    queries_a: Sequence[int],
    queries_b: Sequence[int],
    thresholds: Sequence[int] | int,
    noise: Decays,
    *,
    strict: bool = True,
) -> float:
    """max over transcripts of ln(P_a / P_b): one direction only."""
    law_a = transcript_probabilities(queries_a, thresholds, noise, strict=strict)
    law_b = transcript_probabilities(queries_b, thresholds, noise, strict=strict)
    return max(log_ratio(p, q) for p, q in zip(law_a, law_b, strict=True))


def loss(
    queries_a: Sequence[int],
    queries_b: Sequence[int],
    thresholds: Sequence[int] | int,
    noise: Decays,
    *,
    strict: bool = True,
) -> float:
    """max over transcripts of |ln(P_a / P_b)|."""
    return max(
        directional_loss(queries_a, queries_b, thresholds, noise, strict=strict),
        directional_loss(queries_b, queries_a, thresholds, noise, strict=strict),
    )


def monotone_pairs(
    horizon: int, values: Sequence[int], events: int = 1, start: int = 0
) -> Iterator[Pair]:
    """Running counts with increments from `values`, and with `events` more from one tick on."""
    for increments in itertools.product(values, repeat=horizon):
        base = tuple(start + c for c in itertools.accumulate(increments))
        for tick in range(horizon):
            yield base, tuple(q + (events if t >= tick else 0) for t, q in enumerate(base))


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst pair a search met and its exact loss."""

    loss: float
    pair: Pair


def worst_pair(pairs: Iterable[Pair], pair_loss: Callable[[Pair], float]) -> Worst:
    """The pair of greatest loss."""
    return max((Worst(pair_loss(p), p) for p in pairs), key=lambda w: w.loss)


def search_add_remove(
    horizon: int,
    threshold: int,
    noise: Decays,
    *,
    increments: Sequence[int] = (0, 1, 2),
    events: int = 1,
    strict: bool = True,
) -> Worst:
    """Worst exact loss over running counts where one copy holds `events` more from some tick on."""
    pairs = monotone_pairs(horizon, increments, events)
    return worst_pair(pairs, lambda p: loss(*p, threshold, noise, strict=strict))


def search_replace(
    horizon: int,
    noise: Decays,
    *,
    values: Sequence[int] = (-2, -1, 0, 1, 2),
    changes: Sequence[int] = (-1, 0, 1),
) -> Worst:
    """Worst loss over all queries from `values` (threshold 0), each changed by one of `changes`.

    All pairs are scanned in floating point; the worst one is computed again exactly.
    """
    low, high = min(values) + min(changes), max(values) + max(changes)
    radix = (high - low + 1) ** np.arange(horizon - 1, -1, -1)
    every = np.array(list(itertools.product(range(low, high + 1), repeat=horizon)), dtype=np.int64)
    parts = np.array_split(every, len(every) // 10_000 + 1)
    logs = np.concatenate([_log_laws(part, noise) for part in parts])
    base = np.array(list(itertools.product(values, repeat=horizon)), dtype=np.int64)
    place = (base - low) @ radix
    worst, pair = -1.0, (base[0], base[0])
    for change in itertools.product(changes, repeat=horizon):
        gap = np.abs(logs[place] - logs[place + np.array(change) @ radix]).max(axis=1)
        at = int(gap.argmax())
        if gap[at] > worst:
            worst, pair = float(gap[at]), (base[at], base[at] + np.array(change))
    exact = (tuple(map(int, pair[0])), tuple(map(int, pair[1])))
    return Worst(loss(*exact, 0, noise), exact)


def _log_laws(queries: NDArray[np.int64], noise: Decays) -> NDArray[np.float64]:
    """Log transcript probabilities in floats; queries (n, T), result (n, T + 1)."""
    ea, eb = -math.log(noise.tau), -math.log(noise.nu)
    m = 1 - queries
    start = np.maximum(0, (-m).max(axis=1))[:, None]
    taus = np.arange(int(start.max()) + math.ceil(45 / ea))[None, :]
    alive = np.broadcast_to(np.exp(-ea * taus) * -math.expm1(-ea), (len(m), taus.size)).copy()
    result = np.empty((len(m), m.shape[1] + 1))
    for t in range(m.shape[1]):
        above = np.exp(-eb * np.maximum(m[:, t : t + 1] + taus, 0))
        result[:, t] = (alive * above).sum(axis=1)
        alive *= 1 - above
    result[:, -1] = alive.sum(axis=1)
    return np.log(result)
