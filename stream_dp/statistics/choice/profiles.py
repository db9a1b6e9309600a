"""How the events of a histogram may fall: how many each category gets, and whether they come steadily or in bursts.

What typical errors are predicted for. Rules: a profile is made from the specification alone: the number of categories
and of events, how many entries an event may set, and the declared shape. This file knows no mechanism and no data.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ExpectedShape: TypeAlias = Literal["even", "zipf", "bursts"]
SUPPOSED: tuple[ExpectedShape, ...] = ("zipf", "even")  # all of them, where no shape is declared
BURSTS = 8  # ticks that the events of a bursty stream are taken to come in
SAMPLED = 64  # ranks of categories that stand for all
HALVINGS = 80


@dataclass(frozen=True, slots=True)
class Profile:
    """Final counts of some ranks of categories, how many categories each stands for, and the number of events.

    `bursts`: in how many ticks all events come; None: steadily.
    """

    ranks: Floats
    counts: Floats
    weights: Floats
    events: int
    bursts: int | None = None

    @classmethod
    def of(cls, width: int, events: int, shape: ExpectedShape = "zipf", ones: int = 1) -> "Profile":
        """The categories of so many events, each of which sets up to `ones` entries: half of these, on average.

        `even`: all alike; else the i-th has 1/i of the events of the first, but none more than there are.
        """
        return _profile(width, events, shape, min(ones, width))


@lru_cache(maxsize=256)
def _profile(width: int, events: int, shape: ExpectedShape, ones: int) -> Profile:
    """See `Profile.of`; series of one width share it, so its arrays are not written to."""
    edges = np.unique(np.geomspace(1, width + 1, SAMPLED).astype(np.int64))
    edges = np.append(edges[edges <= width], width + 1)
    weights = np.diff(edges).astype(np.float64)
    ranks = np.sqrt(edges[:-1] * (edges[1:] - 1).astype(np.float64))
    chances = np.ones_like(ranks) if shape == "even" else 1 / ranks
    entries = events * (ones + 1) / 2
    counts = np.minimum(events, _factor(chances, weights, entries, events) * chances)
    for each in (ranks, counts, weights):
        each.setflags(write=False)
    return Profile(ranks, counts, weights, events, BURSTS if shape == "bursts" else None)


def _factor(chances: Floats, weights: Floats, entries: float, most: int) -> float:
    """By what chances are to be multiplied, so that counts of `most` at most add up to `entries`; by bisection."""
    low, high = 0.0, 2 * most / float(chances.min())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(np.minimum(most, middle * chances) @ weights) < entries:
            low = middle
        else:
            high = middle
    return high
