"""Small plots of weeks as one SVG: what was released with its band, and what is exact beside it.

Rules: no library, for the example must run where stream_dp does. Whoever draws exact figures says so in the warning;
this file knows neither customers nor privacy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from itertools import groupby
from math import ceil, floor, log10

WIDTH, HEIGHT, GAP, HEAD = 520, 250, 20, 104
LEFT, RIGHT, UPPER, LOWER = 58, 510, 36, 226  # of a plot's inside
LEGEND = (
    ("private", "released, with its band"),
    ("exact", "exact (NOT PRIVATE)"),
    ("counted", "exact, of what counts within cap and clamp (NOT PRIVATE)"),
)
STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #171a26; --muted: #5d6478; --grid: #e6e8f0; --private: #3b5bdb;
  --band: rgb(59 91 219 / 20%); --exact: #d9480f; --counted: #868e96; --warn: #9a5b00; --soft: #fff0d6; }
@media (prefers-color-scheme: dark) { :root { --page: #0f121b; --text: #e9ebf3; --muted: #9aa2b8; --grid: #252b3b;
  --private: #8ca5ff; --band: rgb(140 165 255 / 26%); --exact: #ff8a4c; --counted: #adb5bd; --warn: #f0b95c;
  --soft: #3a2d14; } }
text { font: 12px system-ui, sans-serif; fill: var(--muted); }
text { paint-order: stroke; stroke: var(--page); stroke-width: 3; }
.title { font-size: 20px; font-weight: 700; fill: var(--text); }
.panel { font-size: 14px; font-weight: 600; fill: var(--text); }
.warn { font-weight: 700; fill: var(--warn); stroke: none; } .soft { fill: var(--soft); } .page { fill: var(--page); }
.grid { stroke: var(--grid); } .band { fill: var(--band); } polyline { fill: none; stroke-linejoin: round; }
.private { stroke: var(--private); stroke-width: 1.8; } .exact { stroke: var(--exact); stroke-width: 1.3; }
.counted { stroke: var(--counted); stroke-width: 1.2; stroke-dasharray: 3 3; }
"""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One figure over time: what was released from `low` to `high`, what is exact, what was counted of it."""

    released: Values
    low: Values
    high: Values
    exact: Values
    counted: Values
    name: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A plot with a title, of one or several figures."""

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Axes:
    """Where a day and a value lie within a plot: so many `days` from left to right, values from 0 to `most`."""

    days: int
    most: float

    @classmethod
    def of(cls, panel: Panel, days: int) -> "Axes":
        """Return axes that hold all of a plot's values and bands."""
        values = [each for line in panel.lines for each in (*line.high, *line.exact) if each]
        most = max(values, default=1.0)
        return cls(days, ceil(most / _step(most)) * _step(most))

    def x(self, place: int) -> float:
        """Where a day lies."""
        return LEFT + (RIGHT - LEFT) * place / max(1, self.days - 1)

    def y(self, value: float) -> float:
        """Where a value lies; nothing is drawn below 0."""
        return LOWER - (LOWER - UPPER) * max(0.0, value) / self.most

    def levels(self) -> Iterator[float]:
        """The values of the grid lines."""
        step = _step(self.most)
        yield from (number * step for number in range(round(self.most / step) + 1))

    def at(self, place: int, value: float) -> str:
        """A point of a line."""
        return f"{self.x(place):.1f},{self.y(value):.1f}"


def svg(title: str, warning: str, days: Sequence[date], panels: Sequence[Panel]) -> str:
    """Return the whole picture: two plots beside each other, under a title, a warning and what the lines mean."""
    wide, high = 2 * WIDTH + 3 * GAP, HEAD + ceil(len(panels) / 2) * (HEIGHT + GAP)
    drawn = []
    for place, panel in enumerate(panels):
        down, across = divmod(place, 2)
        moved = f"translate({GAP + across * (WIDTH + GAP)} {HEAD + down * (HEIGHT + GAP)})"
        drawn.append(f'<g transform="{moved}">{"".join(_panel(panel, days))}</g>')
    said = escape(f"{title}. {warning}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" aria-label="{said}">'
        f'<style>{STYLE}</style><rect class="page" width="{wide}" height="{high}"/>'
        f'<text class="title" x="{GAP}" y="34">{escape(title)}</text>'
        f'<rect class="soft" x="{GAP}" y="46" rx="6" width="{wide - 2 * GAP}" height="22"/>'
        f'<text class="warn" x="{GAP + 10}" y="61">{escape(warning)}</text>'
        f"{''.join(_legend())}{''.join(drawn)}</svg>\n"
    )


def _legend() -> Iterator[str]:
    left = GAP
    for kind, words in LEGEND:
        yield f'<polyline class="{kind}" points="{left},86 {left + 26},86"/>'
        yield f'<text x="{left + 32}" y="90">{words}</text>'
        left += 60 + 7 * len(words)


def _panel(panel: Panel, days: Sequence[date]) -> Iterator[str]:
    axes = Axes.of(panel, len(days))
    yield f'<text class="panel" x="0" y="16">{escape(panel.title)}</text>'
    for value in axes.levels():
        level = axes.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{value:,.10g}</text>'
    yield from _months(axes, days)
    for line in panel.lines:
        yield from _line(axes, line)


def _months(axes: Axes, days: Sequence[date]) -> Iterator[str]:
    """The first of each quarter that is drawn."""
    before = None
    for place, day in enumerate(days):
        if day.month % 3 == 1 and before != day.month and axes.x(place) < RIGHT - 30:
            yield f'<text x="{axes.x(place):.1f}" y="{LOWER + 18}" text-anchor="middle">{day:%b %Y}</text>'
        before = day.month


def _line(axes: Axes, line: Line) -> Iterator[str]:
    ends = [
        (place, low, high)
        for place, (low, high) in enumerate(zip(line.low, line.high, strict=True))
        if low is not None and high is not None
    ]
    around = [axes.at(place, high) for place, _, high in ends]
    around += [axes.at(place, low) for place, low, _ in reversed(ends)]
    yield f'<polygon class="band" points="{" ".join(around)}"/>'
    drawn = (("counted", line.counted), ("exact", line.exact), ("private", line.released))
    for kind, values in drawn:
        for known, run in groupby(enumerate(values), key=lambda pair: pair[1] is not None):
            if known:
                points = " ".join(axes.at(place, value or 0.0) for place, value in run)
                yield f'<polyline class="{kind}" points="{points}"/>'
    if line.name and ends:
        place, _, high = ends[0]
        yield f'<text x="{axes.x(place):.1f}" y="{axes.y(high) - 12:.1f}">{escape(line.name)}</text>'


def _step(most: float) -> float:
    """A round distance of grid lines, of which there are five at most."""
    size = 10.0 ** floor(log10(most / 5))
    return next(size * part for part in (1, 2, 2.5, 5, 10) if size * part * 5 >= most)
