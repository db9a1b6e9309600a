"""Bands that `stream-dp plan` predicts: before windows that end and caps that fit, now, the aim; other libraries'.

`before` are figures of commit 08f44029, of the keys that a file had there (`was`); in a checkout of it, with this file
and the argument `was`, they are printed anew. A year of hours; users have at most 20 events a day. Bands follow from
the file alone; those over the error that was seen (`HSS`) are of runs with fixed seeds.

A peer answers once, when all is over, unless its name says otherwise. Where it is not installed, its row says so:
`make bench-peers` installs jax-privacy and OpenDP beside the environment of this repository.
Run: PYTHONPATH=tests python tests/benchmarks/bench_bands.py [was]
"""

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import NormalDist, mean
from typing import Any

import numpy as np
from statistical.band_runs import Shape, errors

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.serving import Bands
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.parts.choose_hss import Demand, bins_hss, joint_hss

FILE = """\
version: 1
name: bands
source: {{kind: file, path: events.jsonl}}
schema:
  time: {{type: time}}
  who: {{type: text}}
  amount: {{type: number}}
  kind: {{type: category, domain: [{kinds}]}}
clock: {{kind: replay, field: time, start: 2026-01-01T00:00:00Z, step: 1h, horizon: {horizon}}}
privacy: {{epsilon: 2, {privacy}}}
series: [{{name: it, {series}}}]
"""
YEAR, CONFIDENCE, POINTS = 8_760, 0.95, 200
USERS = "unit: user, user: who, max_events: 20, per: 1d, neighbors: add_remove"
DELTA = "unit: event, delta: 1e-6, filter: zcdp"
DAY, EACH_DAY = "windows: [24h]", "every: 24h"
COUNT, HALF = "statistic: count, epsilon: 1", "statistic: count, epsilon: 0.5"
SUM = "statistic: sum, of: amount, clamp: [0, 240], step: 1, epsilon: 0.5"
ALL = f"{COUNT}, windows: [24h, 7d, ever]"
RANKS = "statistic: quantiles, of: amount, clamp: [0, 400], at: [0.25, 0.5, 0.75], epsilon: 0.3"
TWENTY = f"{RANKS}, buckets: 20"
ENDING = f"{TWENTY}, every: 24h"


# --- what other libraries have ---------------------------------------------------------------------

Peer = Callable[[Any, int], float]  # of the mechanism that is taken now, and the place of its view


def opendp_noise(most: int, epsilon: float) -> Peer:
    """The integer Laplace noise of OpenDP on a number that a user changes by so much, found by its own search."""

    def band(mechanism: Any, place: int) -> float:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
        scale = dp.binary_search_param(lambda s: dp.m.make_laplace(*space, scale=s), most, epsilon)
        return float(dp.discrete_laplacian_scale_to_accuracy(scale, 1 - CONFIDENCE))

    return band


RUNS = 400


def opendp_tree(mechanism: Any, place: int) -> float:
    """RMSE of a view read off OpenDP's tree over all ticks of the year, decoded by its least squares."""
    windows = (*mechanism.windows, YEAR)
    so_far = np.concatenate((np.zeros((RUNS, 1)), np.cumsum(_opendp_ticks(), axis=1)), axis=1)
    past = np.array([_tick(YEAR, at) + 1 for at in range(POINTS)])
    off = so_far[:, past] - so_far[:, np.maximum(0, past - windows[place])]
    return math.sqrt(float((off**2).mean()))


@cache
def _opendp_ticks() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    arity = dp.t.choose_branching_factor(YEAR)
    space = dp.vector_domain(dp.atom_domain(T=int), YEAR), dp.l1_distance(T=int)
    cut: Any = dp.t.make_b_ary_tree(*space, leaf_count=YEAR, branching_factor=arity)
    noisy = cut >> dp.m.then_laplace(scale=float(cut.map(1)))
    decoded = dp.t.make_consistent_b_ary_tree(branching_factor=arity, TIA=int, TOA=float)
    return np.array([decoded(noisy([0] * YEAR))[:YEAR] for _ in range(RUNS)])


def opendp_quantiles(mechanism: Any, place: int) -> float:
    """The band of a quartile by OpenDP's permute-and-flip among the ends of 20 buckets and one beyond.

    On the data that are worst for it: one candidate is right, all others are wrong by as many ranks. Each of three
    quantiles has a third of epsilon, and of what may fail.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    ends = [20.0 * number for number in range(22)]
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    scores: Any = dp.t.make_quantile_score_candidates(*space, candidates=ends, alpha=0.25)

    def chosen(scale: float) -> Any:
        return scores >> dp.m.then_noisy_max(dp.max_divergence(), scale=scale, negate=True)

    scale = dp.binary_search_param(chosen, 1, 0.3 / 3, T=float)
    right, next_one = (scores([10.0] * low + [30.0] * (100 - low))[1] for low in (25, 26))

    def lost(ranks: int) -> float:
        """With which chance a wrong candidate is taken before the right one comes."""
        flip = math.exp(-ranks * (next_one - right) / scale)
        return 1 - (1 - (1 - flip) ** len(ends)) / (len(ends) * flip)

    return float(next(ranks for ranks in count() if lost(ranks) <= (1 - CONFIDENCE) / 3))


@cache
def _jax_inverse(ticks: int) -> tuple[Any, float]:
    """The coefficients of jax-privacy's C^-1 for running sums, and the squared sensitivity of C."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from benchmarks.bench_peers import BUFFERS, OPTIMISER_STEPS, _scanned
    from jax_privacy.matrix_factorization import buffered_toeplitz

    sizes = {"min_buffers": BUFFERS, "max_buffers": BUFFERS}
    made = buffered_toeplitz.optimize(n=ticks, max_optimizer_steps=OPTIMISER_STEPS, **sizes)
    impulse = np.zeros(ticks)
    impulse[0] = 1
    inverse = _scanned(jax, made.inverse_as_streaming_matrix(), impulse)
    return np.asarray(inverse), float(buffered_toeplitz.sensitivity_squared(made, ticks))


def jax_live(mechanism: Any, place: int) -> float:
    """The band of a window as a sum of the ticks of jax-privacy's noise stream, at the rho of ours, as it runs."""
    inverse, squared = _jax_inverse(YEAR)
    so_far = np.concatenate(([0.0], np.cumsum(inverse)))
    window = (*mechanism.windows, YEAR)[place]
    at = np.arange(1, YEAR + 1)
    parts = so_far[at] - so_far[np.maximum(0, at - window)]
    deviations = np.sqrt(squared / (2 * float(mechanism.counter.rho)) * np.cumsum(parts**2))
    ticks = [_tick(YEAR, point) for point in range(POINTS)]
    return NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * float(deviations[ticks].mean())


OPENDP, JAX = "opendp", "jax_privacy"


# --- the targets -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The keys of a series before and now, the figure then, and the one that is aimed at.

    `square`: the figure is the root of the mean square error, of the view at index `place`.
    """

    was: str
    now: str
    before: float
    aim: float
    privacy: str = "unit: event"
    horizon: int = YEAR
    place: int = -1
    kinds: int = 4
    square: bool = False
    peer: tuple[str, Peer] | None = None

    def figure(self, folder: Path, series: str) -> tuple[float, Any]:
        """Return the half-width, or the error, on average over the ticks, and the mechanism of these keys."""
        file, kinds = folder / "bands.yaml", ", ".join(f"k{n}" for n in range(self.kinds - 1))
        filled = {"series": series, "privacy": self.privacy, "horizon": self.horizon}
        file.write_text(FILE.format(**filled, kinds=kinds))
        (chosen,) = build(load(file)).chosen
        made: Any = chosen.mechanism
        ticks = [_tick(self.horizon, at) for at in range(POINTS)]
        if not self.square:
            bands = list(chosen.choice.windows.values()) or [chosen.choice.expected]
            return mean(map(bands[self.place], ticks)), made
        place = self.place
        laws = [made.noise(made.view_public(place, tick + 1, None), place) for tick in ticks]
        return math.sqrt(mean(law.spread for law in laws)), made


@dataclass(frozen=True, slots=True)
class Seen:
    """An HSS: its mean band, or half the distance of its ends, where it has them, over the 0.95 quantile of the errors
    that were seen. `share`: of the joint form, with the counter's share that `split: band` takes of its shares.
    """

    shape: Shape
    before: float
    aim: float
    share: Fraction | None = None
    epsilon: Fraction = Fraction(1)

    def figure(self, which: str) -> float:
        shape = self.shape
        setting = Setting(
            shape.width, Neighbors.ADD_REMOVE, shape.ticks, CONFIDENCE, ones=shape.ones
        )
        demand = Demand(setting, None, self.epsilon, shape.events)
        shares = () if which == "was" else (self.share,)
        made = bins_hss(demand) if self.share is None else joint_hss(demand, *shares)
        band: Any = Bands(made, CONFIDENCE)
        if self.share is None and hasattr(made, "sides"):

            def band(tick: int, state: Any) -> float:
                return sum(float(side.mean()) for side in made.sides(state, CONFIDENCE)) / 2

        found = errors(made, shape, "bands", band)
        return found.ratio if self.share is None else float(found.bands.mean())


def beside(was: str, now: str, figures: Sequence[tuple[float, float]], **more: Any) -> list[Target]:
    """The views of one series, with (before, aim) of each."""
    return [Target(was, now, *each, place=at, **more) for at, each in enumerate(figures)]


def ranked(kinds: int, horizon: int, epsilon: float, aim: float, *before: float) -> list[Target]:
    """The largest count and the second largest, by an HSS before."""
    named = "maximum", "largest, rank: 2"
    keys = [f"statistic: {each}, by: kind, epsilon: {epsilon}" for each in named]
    return [
        Target(f"{own}, method: hss", own, figure, aim, horizon=horizon, kinds=kinds)
        for own, figure in zip(keys, before, strict=True)
    ]


PURE = [(1.9, 2.8), (9.2, 10.5), (24.3, 12.5), (62.3, 19)]  # tick, 24 h, 7 d, ever
HSS = [
    Seen(Shape(20, 300, 6_000, 60), 2.7, 1.8),
    Seen(Shape(1, 1_000, 500, 60), 2.4, 1.8),
    Seen(Shape(1, 300, 3_000, 60), 2.0, 1.15),
    Seen(Shape(100, 240, 1_000, 60), 282, 107, Fraction(1, 2), Fraction(1, 2)),
    Seen(Shape(100, YEAR, 1_000, 10), 196, 78, Fraction(1, 2)),
    Seen(Shape(20, 200, 6_000, 60, ones=3), 176, 79, Fraction(3, 5)),
]
TARGETS: dict[str, Sequence[Target | Seen]] = {
    "daily count": [
        Target(f"{COUNT}, {DAY}", f"{COUNT}, {EACH_DAY}", 13, 3, peer=(OPENDP, opendp_noise(1, 1)))
    ],
    "daily count of users": [
        Target(
            f"{HALF}, {DAY}", f"{HALF}, {EACH_DAY}", 544, 120, USERS, peer=(OPENDP, opendp_noise(20, 0.5))
        )
    ],
    "daily sum of users": [
        Target(
            f"{SUM}, {DAY}", f"{SUM}, {EACH_DAY}, user_total: 600", 130_438, 3_700, USERS,
            peer=(OPENDP, opendp_noise(600, 0.5)),
        )
    ],
    "HSS: zipf / steady / dense; joint": HSS,
    "1st / 2nd of 4, eps 0.3": ranked(4, 1_000, 0.3, 92, 412, 435),
    "1st / 2nd of 20": ranked(20, YEAR, 1, 47, 165, 173),
    "1st / 2nd of 100, 2^16 ticks": ranked(100, 1 << 16, 1, 72, 215, 225),
    "Gaussian: tick / 24 h / 7 d / ever": beside(
        f"{ALL}, method: gaussian", f"{ALL}, method: correlated",
        [(12.9, 12), (38.1, 27), (59.2, 36), (67.2, 46)], privacy=DELTA, peer=(JAX, jax_live),
    ),
    "pure, RMSE: the same": beside(
        f"{ALL}, method: tree", f"{ALL}, method: nested", PURE, square=True, peer=(OPENDP, opendp_tree)
    ),
    "quartiles of each day": [
        Target(ENDING, f"{ENDING}, method: together", 91, 65, peer=(OPENDP, opendp_quantiles))
    ],
    "quartiles, sliding": [Target(f"{TWENTY}, {DAY}", f"{RANKS}, buckets: 10, {DAY}", 219, 200)],
    "quartiles, a hop of 12 h": [Target(f"{TWENTY}, {DAY}", f"{TWENTY}, {DAY}, hop: 12h", 219, 130)],
    "quartiles of 100 buckets, a delta": [
        Target(
            f"{RANKS}, buckets: 100, {DAY}", f"{RANKS}, buckets: 100, {DAY}, method: correlated, delta: 1e-6",
            340, 190, "unit: event, delta: 2e-6, filter: optimal",
        )
    ],
}  # fmt: skip


def _tick(horizon: int, point: int) -> int:
    """The tick of a point, of which POINTS are spread over all."""
    return horizon * point // POINTS


def _of_peer(target: Target, mechanism: Any) -> str:
    if target.peer is None:
        return ""
    name, figure = target.peer
    if find_spec(name) is None:
        return f"{name}: not installed"
    return f"{name} {figure(mechanism, target.place):,.1f}"


def lines(folder: Path, which: str) -> Iterator[str]:
    """Yield the lines of the table; `which` are the keys that are measured."""
    for name, targets in TARGETS.items():
        for place, target in enumerate(targets):
            figure, peer = 0.0, ""
            if isinstance(target, Seen):
                figure = target.figure(which)
            else:
                figure, made = target.figure(folder, getattr(target, which))
                peer = _of_peer(target, made) if which == "now" else ""
            met = "" if figure <= target.aim else " *"
            title = "" if place else name
            yield f"{title:36}{target.before:11,.1f}{figure:11,.1f}{target.aim:9,.2f}{met:3}{peer}"


def main(which: str = "now") -> None:
    print(f"{'':36}{'before':>11}{which:>11}{'aim':>9}   peer    (*: the aim is missed)")
    with tempfile.TemporaryDirectory() as folder:
        for line in lines(Path(folder), which):
            print(line.rstrip(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
