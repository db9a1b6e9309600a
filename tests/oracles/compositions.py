"""Exact composition of randomized response, by enumeration, in floats: what the filters are measured against.

RR_e answers its bit with odds e^e : 1. Every pure mechanism is a post-processing of it, so the worst loss of any
strategy over RR is the worst of all.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache

Admits = Callable[[tuple[int, ...]], bool]


def closed_form(epsilon: float, delta: float, k: int, target: float) -> float:
    """Kairouz, Oh, Viswanath: the delta at `target` of k-fold composition of RR_(epsilon, delta)."""
    inner = 0.0
    for low in range(k + 1):
        gap = (k - 2 * low) * epsilon - target
        if gap > 0:
            ways = math.log(math.comb(k, low)) - k * math.log1p(math.exp(epsilon))
            inner -= math.exp(ways + (k - low) * epsilon) * math.expm1(-gap)
    return 1 - (1 - delta) ** k * (1 - inner)


def brute_force(parts: Sequence[tuple[float, float]], target: float) -> float:
    """The delta at `target` of RR_(e, d) for all (e, d) of `parts`: all answers are enumerated."""
    found = 0.0
    for signs in itertools.product((1, -1), repeat=len(parts)):
        p = q = 1.0
        for sign, (e, _) in zip(signs, parts, strict=True):
            heads = math.exp(e) / (1 + math.exp(e))
            p *= heads if sign > 0 else 1 - heads
            q *= 1 - heads if sign > 0 else heads
        found += max(p - math.exp(target) * q, 0.0)
    kept = math.prod(1 - d for _, d in parts)
    return 1 - kept * (1 - found)


def adaptive(menu: Sequence[float], admits: Admits, target: float, depth: int) -> float:
    """The largest delta at `target` over all adversaries who choose each next epsilon from `menu` by past answers.

    `admits` is the filter, told how often each item was taken.
    """

    @cache
    def best(taken: tuple[int, ...], net: tuple[int, ...]) -> float:
        ratio = sum(n * e for n, e in zip(net, menu, strict=True))
        found = max(math.exp(ratio) - math.exp(target), 0.0)
        if sum(taken) == depth:
            return found
        for i, e in enumerate(menu):
            after = _plus(taken, i, 1)
            if admits(after):
                heads = math.exp(e) / (1 + math.exp(e))
                up, down = best(after, _plus(net, i, 1)), best(after, _plus(net, i, -1))
                found = max(found, (1 - heads) * up + heads * down)
        return found

    zero = (0,) * len(menu)
    return best(zero, zero)


def _plus(counts: tuple[int, ...], i: int, step: int) -> tuple[int, ...]:
    return (*counts[:i], counts[i] + step, *counts[i + 1 :])


def adaptive_renyi(menu: Sequence[float], admits: Admits, order: float, depth: int) -> float:
    """The largest Renyi divergence at this order over all adversaries of `adaptive`: backward, one moment at a time."""

    @cache
    def best(taken: tuple[int, ...]) -> float:
        found = 1.0
        if sum(taken) == depth:
            return found
        for i, e in enumerate(menu):
            after = _plus(taken, i, 1)
            if admits(after):
                heads = math.exp(e) / (1 + math.exp(e))
                tails = (1 - heads) * math.exp(-(order - 1) * e)
                found = max(found, (heads * math.exp((order - 1) * e) + tails) * best(after))
        return found

    return math.log(best((0,) * len(menu))) / (order - 1)
