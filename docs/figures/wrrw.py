"""Figures 1a, 1b, 2 and 3 of [WRRW] (Whitehouse, Ramdas, Rogers, Wu: Fully-Adaptive Composition), drawn anew.

Run: python docs/figures/wrrw.py. Writes wrrw-1a.svg, -1b, -2 and -3 beside this file, the same bytes each
time with one version of matplotlib. Rules: all odometers, filters and tunings come from `stream_dp.accounting`; only
the older odometer they are compared with (Lemma 3) is written here. All mechanisms are pure and delta' is 10^-6, as in
the paper's Figure 2; its other parameters are not in its text, so they are ours (see README.md).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from stream_dp.accounting.conversions import bits_float
from stream_dp.accounting.filters.filter import SQUARED
from stream_dp.core.guarantee import PureDP
from stream_dp.verify.odometers import (
    Boundary,
    FilterBoundary,
    MixtureBoundary,
    Odometer,
    OneSidedMixtureBoundary,
    StitchedBoundary,
)

DELTA = Fraction(1, 10**6)
TARGET = Fraction(3)  # the epsilon the filter odometer is tuned to; it is reached at V = .2945
GAMMA = START = Fraction(1, 100)
RECORDS = 10**6  # |x| of Lemma 3
POINTS = 80
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#AA4499", "#666666"
SOLID, DASHED, DOTTED = "-", "--", ":"


@dataclass(frozen=True)
class Curve:
    """A line of a panel; where it is infinite there is no point."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str
    style: str = SOLID


@dataclass(frozen=True)
class Panel:
    """One pair of axes: intrinsic time V against a bound on the privacy loss, or what `across` and `up` say."""

    title: str
    curves: tuple[Curve, ...]
    top: float
    across: str = "V, the sum of squared epsilons"
    up: str = "bound on the privacy loss"


def times(end: float) -> list[Fraction]:
    """Values of V up to `end`, closer together at the beginning."""
    return [Fraction(end) * n * n / POINTS**2 for n in range(1, POINTS + 1)]


def curve(
    name: str,
    at: Callable[[Fraction], float | None],
    end: float,
    colour: str,
    style: str = SOLID,
) -> Curve:
    """The curve of a function of V."""
    found = ((float(v), at(v)) for v in times(end))
    return Curve(name, tuple((v, y) for v, y in found if y is not None), colour, style)


def shown(boundary: Boundary) -> Callable[[Fraction], float | None]:
    """What the plain odometer with this boundary shows at V: pure mechanisms whose squared epsilons sum to V."""

    def at(variance: Fraction) -> float | None:
        units = math.ceil(variance * SQUARED)
        bound = Odometer(boundary, variance=units, drift=-(-units // 2)).bound()
        return None if bound is None else float(bound)

    return at


def shown_tight(boundary: Boundary, step: Fraction) -> Callable[[Fraction], float | None]:
    """What the tight odometer shows after V / step^2 mechanisms that are step-DP."""
    per_step = float(step) * math.tanh(float(step) / 2) / float(step) ** 2

    def at(variance: Fraction) -> float | None:
        drift = math.ceil(variance * Fraction(per_step) * SQUARED)
        bound = Odometer(boundary, tight=True, variance=2 * drift, drift=drift).bound()
        return None if bound is None else float(bound)

    return at


def advanced(variance: Fraction) -> float:
    """Advanced composition, valid at one V that is fixed before: the inverse of the filter of [WRRW] Thm 2."""
    v = float(variance)
    return math.sqrt(2 * bits_float(DELTA) * v) + v / 2


def printed(epsilon: Fraction) -> FilterBoundary:
    """The filter odometer as [WRRW] print its tuning, epsilon in place of 2 epsilon: it touches at epsilon / 2."""
    twice = 2 * bits_float(DELTA)
    return FilterBoundary(
        DELTA, Fraction((math.sqrt(twice + float(epsilon)) - math.sqrt(twice)) ** 2)
    )


def original(variance: Fraction) -> float:
    """The odometer of Rogers, Roth, Ullman, Vadhan (2016) as [WRRW] Lemma 3 states it, for `RECORDS` records."""
    v, n, delta = float(variance), RECORDS, float(DELTA)
    if 1 / n**2 <= v <= 1:
        return (
            math.sqrt(2 * v * (math.log(110 * math.e) + 2 * math.log(math.log(n) / delta))) + v / 2
        )
    inner = (1 / n**2 + v) * (1 + math.log(1 + n * n * v) / 2)
    return math.sqrt(2 * inner * math.log(math.log(4 / delta * math.log2(n)))) + v / 2


def ours(end: float) -> tuple[Curve, ...]:
    """The three odometers of Thm 3."""
    return (
        curve("filter", shown(FilterBoundary.tuned(TARGET, DELTA)), end, BLUE),
        curve("mixture", shown(MixtureBoundary(DELTA, GAMMA)), end, ORANGE),
        curve("stitched", shown(StitchedBoundary(DELTA, START)), end, GREEN),
    )


def drift(*, tight: bool) -> Callable[[Fraction], float]:
    """What one mechanism adds to the drift of the privacy loss, by its epsilon."""

    def at(epsilon: Fraction) -> float:
        empty = Odometer.of(MixtureBoundary(DELTA, GAMMA), tight=tight)
        return empty.observe(PureDP(epsilon)).drift / SQUARED

    return at


def figure_1a() -> tuple[Panel, ...]:
    """The lower order terms: e (e^e - 1) / (e^e + 1) of advanced composition, e^2 / 2 of the filter, e = epsilon."""
    curves = (
        curve("advanced composition", drift(tight=True), 2, GREY, DASHED),
        curve("filter", drift(tight=False), 2, BLUE),
    )
    title = "Lower order terms"
    return (Panel(title, curves, 2, "epsilon of one mechanism", "added to the bound"),)


def figure_1b() -> tuple[Panel, ...]:
    """The original odometer against the three of Thm 3."""
    old = curve("original", original, 1, GREY, DASHED)
    return (Panel("Privacy odometers, old and new", (old, *ours(1)), 10),)


def figure_2() -> tuple[Panel, ...]:
    """Each odometer under several tunings; the filter's also as printed; the mixture's also in its tight form."""
    filters, mixtures, stitches = [], [], []
    for number, style in zip((1, 3, 5), (DOTTED, SOLID, DASHED), strict=True):
        e = Fraction(number)
        line = shown(FilterBoundary.tuned(e, DELTA))
        filters.append(curve(f"epsilon {number}", line, 1, BLUE, style))
        filters.append(curve(f"epsilon {number}, as printed", shown(printed(e)), 1, GREY, style))
    for power, style in zip((3, 2, 1), (DOTTED, SOLID, DASHED), strict=True):
        small = Fraction(1, 10**power)
        name = f"{float(small):g}"
        mixtures.append(
            curve(f"gamma {name}", shown(MixtureBoundary(DELTA, small)), 1, ORANGE, style)
        )
        stitches.append(
            curve(f"start {name}", shown(StitchedBoundary(DELTA, small)), 1, GREEN, style)
        )
    one_sided = shown_tight(OneSidedMixtureBoundary(DELTA, GAMMA), Fraction(1, 2))
    mixtures.append(curve("gamma 0.01, tight, steps of .5", one_sided, 1, PURPLE))
    return (
        Panel("Filter odometer", tuple(filters), 10),
        Panel("Mixture odometer", tuple(mixtures), 10),
        Panel("Stitched odometer", tuple(stitches), 10),
    )


def figure_3() -> tuple[Panel, ...]:
    """3a: the original one also beyond V = 1. 3b: advanced composition at one time, which the filter's line touches."""
    old = curve("original", original, 2, GREY, DASHED)
    pointwise = curve("advanced composition", advanced, 0.6, GREY, DASHED)
    as_printed = curve("filter, as printed", shown(printed(TARGET)), 0.6, PURPLE, DOTTED)
    return (
        Panel("Against the original odometer", (old, *ours(2)), 14),
        Panel("Against advanced composition", (pointwise, as_printed, *ours(0.6)), 6),
    )


FIGURES: dict[str, Callable[[], tuple[Panel, ...]]] = {
    "wrrw-1a": figure_1a,
    "wrrw-1b": figure_1b,
    "wrrw-2": figure_2,
    "wrrw-3": figure_3,
}


def draw(name: str, panels: Iterable[Panel], path: Path) -> None:
    """Write the panels side by side; every line's id in the SVG is `name/panel/curve`."""
    panels = tuple(panels)
    settings = {
        "svg.hashsalt": "wrrw",
        "svg.fonttype": "none",
        "path.simplify": False,
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(settings):
        width = 4.2 * len(panels)
        figure = Figure(figsize=(width, 3.4))
        figure.subplots_adjust(0.55 / width, 0.14, 1 - 0.15 / width, 0.91, wspace=0.16)
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), number + 1)
            for line in panel.curves:
                x, y = zip(*line.points, strict=True)
                axes.plot(
                    x, y, line.style, color=line.colour, label=line.name, linewidth=1.4,
                    gid=f"{name}/{number}/{line.name}",
                )  # fmt: skip
            axes.set(title=panel.title, xlabel=panel.across, xlim=(0, None))
            axes.set_ylim(0, panel.top)
            axes.legend(frameon=False, fontsize=8)
            if number == 0:
                axes.set_ylabel(panel.up)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def main(folder: Path) -> None:
    """Write all figures."""
    for name, panels in FIGURES.items():
        draw(name, panels(), folder / f"{name}.svg")


if __name__ == "__main__":
    main(Path(__file__).parent)
