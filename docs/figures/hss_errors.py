"""Where HSS has the smaller error than a tree: typical errors against the number of events.

Run: python docs/figures/hss_errors.py. Writes hss-errors.svg beside this file. Rules: every number is what `method:
typical` compares (`stream_dp.statistics.parts.predicted_errors`), for Zipf-like categories at epsilon 1 under
add_remove and 2^16 ticks; nothing is simulated here (tests/benchmarks/bench_hss.py measures).
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from stream_dp.core.neighbors import Neighbors
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.parts.choose_hss import BINS, JOINT, TREE, Demand, form_errors

TICKS = 1 << 16
EPSILON = Fraction(1)
EVENTS = tuple(round(10 ** (2 + n / 8)) for n in range(41))
COLOURS = {"tree": "#666666", "HSS, joint": "#0072B2", "HSS, bin by bin": "#D55E00"}
WIDTHS = (10, 100)


@dataclass(frozen=True)
class Panel:
    """Errors for so many categories, by form, at each of EVENTS."""

    width: int
    errors: dict[str, tuple[float, ...]]


@cache
def panel(width: int) -> Panel:
    """The errors of the three forms."""
    setting = Setting(width, Neighbors.ADD_REMOVE, TICKS, 0.95)
    forms = {"tree": TREE, "HSS, joint": JOINT, "HSS, bin by bin": BINS}
    found = [
        form_errors(Demand(setting, None, EPSILON, events, "zipf"), tuple(forms.values()))
        for events in EVENTS
    ]
    return Panel(
        width, {name: tuple(each[form][0] for each in found) for name, form in forms.items()}
    )


def draw(path: Path) -> None:
    """Write the panels side by side; every line's id in the SVG is `hss/width/form`."""
    settings = {"svg.hashsalt": "hss", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(8.4, 3.4))
        figure.subplots_adjust(0.07, 0.14, 0.98, 0.91, wspace=0.16)
        for number, width in enumerate(WIDTHS):
            axes = figure.add_subplot(1, len(WIDTHS), number + 1)
            for form, errors in panel(width).errors.items():
                axes.plot(
                    EVENTS, errors, color=COLOURS[form], label=form, linewidth=1.4,
                    gid=f"hss/{width}/{form}",
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set(title=f"{width} categories", xlabel="events in 65,536 ticks", ylim=(0, 40))
            axes.legend(frameon=False, fontsize=8)
            if number == 0:
                axes.set_ylabel("typical error (RMSE)")
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(__file__).parent / "hss-errors.svg")
