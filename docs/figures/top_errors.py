"""What a top list misses: names ranked by noisy counts, beside names that are only selected, anew at each release.

Run: python docs/figures/top_errors.py. Writes top-errors.svg beside this file. Measured: RUNS runs of each, all seeds
fixed. Ranking is by the product's own `Counter`. Selection peels: ten times permute-and-flip, in its form with
exponential noise (Ding, Kifer et al. 2021), each at an equal share of epsilon, for pure selections of all releases add
up; it tells names and no values. What is missed: by how many events the ten names that are told fall short of the ten
greatest.
"""

import hashlib
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.noise import NoiseStream

NAMES, K, EVENTS, EPSILON, RUNS = 100, 10, 20_000, Fraction(1, 10), 60
RELEASES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
COLOURS = {"ranked by noisy counts": "#0072B2", "selected anew": "#D55E00"}

Floats = NDArray[np.float64]


def counts() -> Floats:
    """The counts of the names, Zipf-like, the greatest first."""
    weights = 1 / np.arange(1, NAMES + 1)
    return np.rint(EVENTS * weights / weights.sum())


def missed(noise: Floats) -> float:
    """What is missed on average where `noise`, shape (runs, NAMES), is added and the greatest are taken."""
    chosen = np.argsort(-(counts() + noise), axis=1)[:, :K]
    return float(counts()[:K].sum() - counts()[chosen].sum(axis=1).mean())


@lru_cache(maxsize=16)
def ranked(releases: int) -> float:
    """By the noise of a counter at the last of so many releases."""
    counter = Counter(NAMES * RUNS, EPSILON, Neighbors.ADD_REMOVE, releases)
    noise = NoiseStream(hashlib.sha256(f"top {releases}".encode()).digest(), 0)
    state, row = counter.init(noise), Update(np.zeros(NAMES * RUNS, dtype=np.int64))
    for _ in range(releases):
        state, _ = counter.step(state, row, noise)
    answer: Any = counter.step(state, Query(), noise)[1]
    return missed(answer.reshape(RUNS, NAMES).astype(np.float64))


@lru_cache(maxsize=16)
def selected(releases: int) -> float:
    """By K selections, each of one name more, at the last of so many releases."""
    rng, total = np.random.default_rng(releases), 0.0
    for _ in range(RUNS):
        left = list(range(NAMES))
        for _ in range(K):
            noisy = counts()[left] + rng.exponential(float(K * releases / EPSILON), len(left))
            total += float(counts()[left.pop(int(noisy.argmax()))])
    return float(counts()[:K].sum()) - total / RUNS


def draw(path: Path) -> None:
    """Write the picture; every line's id in the SVG is `top/form`."""
    settings = {"svg.hashsalt": "top", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(5.6, 3.4))
        figure.subplots_adjust(0.13, 0.14, 0.97, 0.91)
        axes = figure.add_subplot()
        for (name, colour), measure in zip(COLOURS.items(), (ranked, selected), strict=True):
            found = [1 + measure(releases) for releases in RELEASES]
            axes.plot(
                RELEASES, found, color=colour, label=name, linewidth=1.4, gid=f"top/{measure.__name__}"
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="releases")
        axes.set_ylabel("1 + events that the told ten names miss")
        axes.set_title("top 10 of 100 names, 20,000 events, epsilon 0.1")
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(__file__).parent / "top-errors.svg")
