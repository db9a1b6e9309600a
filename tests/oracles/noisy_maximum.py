"""Exact law of choosing one of several candidates by their integer losses, and the losses of value buckets.

`a` = e^(-1/scale) is the decay of a geometric noise Z, P[Z = z] = (1 - a) a^z. The largest Z - loss is chosen, the
first of equal ones. Nothing is truncated: with y = a^z the chance that no other is above is a polynomial in y.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction

Law = tuple[Fraction, ...]
Counts = tuple[int, ...]


def noisy_maximum(losses: Sequence[int], a: Fraction) -> Law:
    """P[candidate i has the largest Z - loss, and is the first of those that have]."""
    return tuple(_wins(losses, i, a) for i in range(len(losses)))


def _wins(losses: Sequence[int], i: int, a: Fraction) -> Fraction:
    """With Z_i = z, candidate j stays behind with chance 1 - a^(z + gap), where that is positive; else never."""
    gaps = [loss - losses[i] + int(j > i) for j, loss in enumerate(losses) if j != i]
    start = max([0, *(-gap for gap in gaps)])
    poly = [Fraction(1)]
    for gap in gaps:
        shifted = [Fraction(0), *(c * a**gap for c in poly)]
        poly = [c - d for c, d in itertools.zip_longest(poly, shifted, fillvalue=Fraction(0))]
    return (1 - a) * sum(
        c * a ** ((k + 1) * start) / (1 - a ** (k + 1)) for k, c in enumerate(poly)
    )


def rank_losses(counts: Sequence[int], quantile: Fraction) -> tuple[int, ...]:
    """Return s times the distance, in events, of the rank q * n from the ranks that each bucket holds; q = p / s."""
    p, s = quantile.as_integer_ratio()
    asked = p * sum(counts)
    found = []
    for bucket, count in enumerate(counts):
        first = s * sum(counts[:bucket])
        last = first + s * count
        found.append(first - asked if asked < first else max(0, asked - last))
    return tuple(found)


def joint_losses(
    counts: Sequence[int], at: Sequence[Fraction], moved: Sequence[int], unit: int
) -> dict[tuple[int, ...], int]:
    """Return by tuple of buckets, one for each quantile and none before the one before, the largest of their losses.

    Each loss is in units of its own largest move by one event, times `unit`. Tuples are in lexicographic order.
    """
    losses = [
        [Fraction(unit * loss, most) for loss in rank_losses(counts, q)]
        for q, most in zip(at, moved, strict=True)
    ]
    found = {}
    for buckets in itertools.product(range(len(counts)), repeat=len(at)):
        if list(buckets) == sorted(buckets):
            worst = max(loss[b] for loss, b in zip(losses, buckets, strict=True))
            assert worst.denominator == 1
            found[buckets] = int(worst)
    return found


def histograms(buckets: int, values: Sequence[int]) -> list[Counts]:
    """All counts of so many buckets with entries from `values`."""
    return list(itertools.product(values, repeat=buckets))


def added(counts: Counts) -> list[Counts]:
    return [tuple(c + int(i == at) for i, c in enumerate(counts)) for at in range(len(counts))]


def worst_ratio(pairs: Sequence[tuple[Law, Law]]) -> Fraction:
    """The largest ratio of the probabilities of an outcome, either way; it is e^eps of the pairs."""
    return max(max(x / y, y / x) for p, q in pairs for x, y in zip(p, q, strict=True))
