"""How far quantiles are off: bands in ranks by the length of the window, sliding and tumbling, one quantile or three.

Run: python docs/figures/quantile_errors.py. Writes quantile-errors.svg beside this file. Rules: every number is the
band that a release carries, at epsilon 0.3, confidence 0.95, 200 buckets and `add_remove`; nothing is simulated here.
"""

from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from stream_dp.core.neighbors import Neighbors
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.quantiles import sliding_choice, tumbling_choice

EPSILON = Fraction(3, 10)
WINDOWS = (1, 2, 4, 8, 16, 24, 36, 48, 64, 96, 168, 336, 720)
SETTING = Setting(203, Neighbors.ADD_REMOVE, 8_760, 0.95, step=3_600_000)
MEDIAN, THREE = (Fraction(1, 2),), (Fraction(1, 2), Fraction(9, 10), Fraction(99, 100))
ASKED = {"the median": MEDIAN, "0.5, 0.9 and 0.99": THREE}
COLOURS = {"the median": "#0072B2", "0.5, 0.9 and 0.99": "#D55E00"}


def sliding(at: tuple[Fraction, ...]) -> tuple[float, ...]:
    """The bands of a sliding window of each length, once it is full."""
    return tuple(
        sliding_choice(SETTING, EPSILON, (f"{hours}h",), at).expected(2_000) for hours in WINDOWS
    )


def tumbling(at: tuple[Fraction, ...]) -> tuple[float, ...]:
    """The bands of tumbling windows, of each length."""
    return tuple(
        tumbling_choice(SETTING, EPSILON, (f"{hours}h",), at).expected(0) for hours in WINDOWS
    )


def draw(path: Path) -> None:
    """Write the picture; every line's id in the SVG is `quantiles/kind/asked`."""
    settings = {"svg.hashsalt": "quantiles", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(5.6, 3.4))
        axes = figure.add_subplot(1, 1, 1)
        figure.subplots_adjust(0.12, 0.14, 0.97, 0.95)
        for name, at in ASKED.items():
            for kind, bands, line in (
                ("sliding", sliding(at), "-"),
                ("tumbling", tumbling(at), "--"),
            ):
                axes.plot(
                    WINDOWS, bands, line, color=COLOURS[name], label=f"{kind}: {name}", linewidth=1.4,
                    gid=f"quantiles/{kind}/{name}",
                )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set(xlabel="ticks in a window", ylabel="band, in ranks", ylim=(10, 5_000))
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(__file__).parent / "quantile-errors.svg")
