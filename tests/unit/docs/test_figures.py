"""The figures of docs/ are what their scripts make, and the pages say what they show.

Coordinates are compared, not bytes: other versions of matplotlib write the same lines in other words. The curves of
[WRRW] are compared with their closed forms in floats.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from loaded_script import loaded_script

FOLDER = Path(__file__).parents[3] / "docs" / "figures"
INDEX = (FOLDER / "README.md").read_text()
Lines = dict[str, list[float]]


@cache
def script(name: str) -> Any:
    return loaded_script(FOLDER / f"{name}.py")


def lines(svg: str) -> Lines:
    found = re.findall(r'<g id="([a-z0-9]+[^"]*/[^"]+)">\s*<path d="([^"]+)"', svg)
    return {name: [float(x) for x in re.findall(r"-?\d+\.?\d*", path)] for name, path in found}


def same(left: Lines, right: Lines) -> bool:
    """Whether they have the same lines, to a hundredth of a point."""
    return left.keys() == right.keys() and all(
        left[name] == pytest.approx(right[name], abs=0.01) for name in left
    )


@pytest.mark.parametrize(
    ("name", "picture", "number"),
    [
        ("epsilon_gain", "epsilon-gain.svg", 6),
        ("hss_errors", "hss-errors.svg", 6),
        ("quantile_errors", "quantile-errors.svg", 4),
        ("top_errors", "top-errors.svg", 2),
    ],
)
def test_the_committed_picture_is_what_the_code_makes(
    name: str, picture: str, number: int, tmp_path: Path
) -> None:
    script(name).draw(tmp_path / "new.svg")
    committed = lines((FOLDER / picture).read_text())
    assert same(committed, lines((tmp_path / "new.svg").read_text()))
    assert len(committed) == number
    assert INDEX.count(f"({picture})") == 1


def test_pictures_differ_by_a_fiftieth_of_a_point_or_a_line() -> None:
    committed = lines((FOLDER / "hss-errors.svg").read_text())
    name, (first, *rest) = next(iter(committed.items()))
    assert same(committed, dict(committed))
    assert not same(committed, {**committed, name: [first + 0.02, *rest]})
    assert not same(committed, {**committed, name: rest})
    assert not same(committed, {**committed, "another": rest})


def test_bin_by_bin_wins_until_the_largest_categories_cross_all_the_time() -> None:
    figures = script("hss_errors")
    for width in figures.WIDTHS:
        errors = figures.panel(width).errors
        first = {form: values[0] for form, values in errors.items()}
        assert min(first, key=lambda form: first[form]) != "tree"
        assert errors["HSS, bin by bin"] == tuple(sorted(errors["HSS, bin by bin"]))
        assert errors["HSS, bin by bin"][-1] > errors["tree"][-1]


def test_the_tables_of_the_page_on_quantiles_are_the_bands() -> None:
    """A day that slides, a week that slides, a day that ends, and a day in hops."""
    figures, page = script("quantile_errors"), (FOLDER.parent / "quantiles.md").read_text()

    def band(kind: str, at: tuple[object, ...], epsilon: str) -> float:
        share = type(figures.EPSILON)(epsilon)
        if kind == "every":
            return float(figures.tumbling_choice(figures.SETTING, share, ("24h",), at).expected(0))
        return float(figures.sliding_choice(figures.SETTING, share, (kind,), at).expected(8_000))

    names = {
        "24h": "sliding, 24 ticks",
        "7d": "sliding, 168 ticks",
        "every": "tumbling, any length",
    }
    for asked, at in figures.ASKED.items():
        for kind, name in names.items():
            cells = [str(round(band(kind, at, epsilon))) for epsilon in ("1/10", "3/10", "1", "3")]
            row = f"| {name} | {asked} | {' | '.join(cells)} |"
            assert row in page, row
    for hop, asked in ((12, "the median"), (12, "0.5, 0.9 and 0.99"), (24, "0.5, 0.9 and 0.99")):
        own = figures.SETTING, ("24h",), figures.ASKED[asked], f"{hop}h"
        errors = [
            figures.sliding_choice(own[0], Fraction(epsilon), *own[1:]).expected(8_000)
            for epsilon in ("1/10", "3/10", "1", "3")
        ]
        row = f"| 24 ticks, hop of {hop} | {asked} | {' | '.join(map(str, errors))} |"
        assert row in page, row


def test_the_page_on_top_lists_has_what_was_measured() -> None:
    figures, page = script("top_errors"), (FOLDER.parent / "top.md").read_text()
    ends = (1, figures.RELEASES[-1])
    once, often = [(round(figures.ranked(n)), round(figures.selected(n))) for n in ends]
    words = " ".join(page.split())
    assert f"found by noisy counts have {once[0]} events less" in words
    assert f"found by selections have {once[1]} events less" in words
    assert f"found by noisy counts have {often[0]} events less" in words
    assert f"found by selections have {often[1]:,} events less" in words
    for releases in figures.RELEASES:
        assert figures.ranked(releases) < figures.selected(releases)


PAGES = {
    "counts": "histograms", "windows": "windows", "sums": "sums", "means": "mean", "ratios": "ratio",
    "distinct": "distinct", "gauges": "gauges", "alerts": "alerts", "monitors": "monitors",
}  # fmt: skip


def drawn(svg: str) -> Lines:
    """The coordinates of all lines and points of a statistic that have a name."""
    shapes = re.findall(r'<g id="([a-z]+/(?:line|points)/[^"]+)">(.*?)</g>', svg, re.DOTALL)
    found = {}
    for name, shape in shapes:
        places = " ".join(re.findall(r'<path d="([^"]+)" clip-path', shape))
        places += " ".join(re.findall(r'<use [^>]*x="[^"]+" y="[^"]+"', shape))
        found[name] = [float(x) for x in re.findall(r"-?\d+\.\d+|-?\d+", places)]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_the_picture_of_a_statistic_is_what_the_code_makes(name: str, tmp_path: Path) -> None:
    """What runs were off lies on the lines; seeds are fixed, a quantile of 400 runs is about a tenth unsure."""
    figures = script("statistic_errors")
    assert tuple(figures.PICTURES) == tuple(PAGES)
    picture = figures.PICTURES[name]()
    figures.draw(name, picture, tmp_path / "new.svg")
    committed = drawn((FOLDER / f"{name}-errors.svg").read_text())
    assert same(committed, drawn((tmp_path / "new.svg").read_text()))
    assert len(committed) >= 3
    assert min(map(len, committed.values())) >= 6
    page = (FOLDER.parent / f"{PAGES[name]}.md").read_text()
    assert page.count(f"(figures/{name}-errors.svg)") == 1
    assert "## When to use it" in page
    assert bool(picture.points) or name in ("alerts", "monitors")
    for label, points in picture.points.items() if name not in ("alerts", "monitors") else ():
        for across, off in points.items():
            assert 0.75 < off / picture.lines[label][across] < 1.25, (label, across)


NAMES = ("wrrw-1a", "wrrw-1b", "wrrw-2", "wrrw-3")
BITS = math.log(1e6)


def line(touching: float) -> Callable[[float], float]:
    """The filter odometer that touches advanced composition at V = `touching`."""
    root = math.sqrt(touching)
    return lambda v: math.sqrt(2 * BITS) / 2 * (root + v / root) + v / 2


def tuned(epsilon: float) -> Callable[[float], float]:
    """As corrected: it passes through epsilon where advanced composition does."""
    return line((math.sqrt(2 * BITS + 2 * epsilon) - math.sqrt(2 * BITS)) ** 2)


def printed(epsilon: float) -> Callable[[float], float]:
    """[WRRW] Thm 3.1 letter by letter."""
    return line((-math.sqrt(2 * BITS) + math.sqrt(2 * BITS + epsilon)) ** 2)


def mixture(gamma: float) -> Callable[[float], float]:
    """[WRRW] Thm 3.2."""
    return lambda v: (
        math.sqrt(2 * math.log(1e6 * math.sqrt((v + gamma) / gamma)) * (gamma + v)) + v / 2
    )


def stitched(start: float) -> Callable[[float], float]:
    """[WRRW] Thm 3.3."""
    return lambda v: (
        1.7 * math.sqrt(v * (math.log(math.log(2 * v / start)) + 0.72 * math.log(5.2e6))) + v / 2
    )


def tight_mixture(gamma: float, step: float) -> Callable[[float], float]:
    """The half-normal mixture over the exact zCDP cost."""

    def at(v: float) -> float:
        drift = v / step * math.tanh(step / 2)
        total = 2 * drift + gamma
        return drift + math.sqrt(2 * total * math.log(1 + 5e5 * math.sqrt(total / gamma)))

    return at


def original(v: float) -> float:
    """[WRRW] Lemma 3 for 10^6 records."""
    if v <= 1:
        constant = math.log(110) + 1 + 2 * (math.log(math.log(1e6)) + BITS)
        return math.sqrt(2 * v * constant) + v / 2
    growth = (1 + math.log1p(1e12 * v) / 2) * math.log(
        math.log(4) + BITS + math.log(6 / math.log10(2))
    )
    return math.sqrt(2 * (1e-12 + v) * growth) + v / 2


def advanced(v: float) -> float:
    """Advanced composition at one time."""
    return math.sqrt(2 * BITS * v) + v / 2


OURS = {"filter": tuned(3), "mixture": mixture(0.01), "stitched": stitched(0.01)}
EXPECTED: dict[str, tuple[dict[str, Callable[[float], float]], ...]] = {
    "wrrw-1a": (
        {
            "advanced composition": lambda e: e * (math.exp(e) - 1) / (math.exp(e) + 1),
            "filter": lambda e: e * e / 2,
        },
    ),
    "wrrw-1b": ({"original": original, **OURS},),
    "wrrw-2": (
        {
            **{f"epsilon {e}": tuned(e) for e in (1, 3, 5)},
            **{f"epsilon {e}, as printed": printed(e) for e in (1, 3, 5)},
        },
        {
            **{f"gamma {g:g}": mixture(g) for g in (0.001, 0.01, 0.1)},
            "gamma 0.01, tight, steps of .5": tight_mixture(0.01, 0.5),
        },
        {f"start {s:g}": stitched(s) for s in (0.001, 0.01, 0.1)},
    ),
    "wrrw-3": (
        {"original": original, **OURS},
        {"advanced composition": advanced, "filter, as printed": printed(3), **OURS},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_curve_is_its_closed_form(name: str) -> None:
    wrrw = script("wrrw")
    panels = wrrw.FIGURES[name]()
    assert len(panels) == len(EXPECTED[name])
    for panel, expected in zip(panels, EXPECTED[name], strict=True):
        assert {c.name for c in panel.curves} == set(expected)
        for curve in panel.curves:
            start = float(curve.name.removeprefix("start ")) if "start " in curve.name else 0.01
            late = curve.name == "stitched" or "start " in curve.name  # infinite before v0
            assert len(curve.points) == wrrw.POINTS or late
            assert min(v for v, _ in curve.points) >= (start if late else 0)
            for v, y in curve.points:
                assert y == pytest.approx(expected[curve.name](v), rel=1e-9)


def test_what_the_figures_show() -> None:
    """All but the original are above advanced composition, which the filter touches at 3, or at 1.5 as printed."""
    wrrw = script("wrrw")
    _, panel = wrrw.figure_3()
    heights = {c.name: dict(c.points) for c in panel.curves}
    pointwise = heights.pop("advanced composition")
    for curve in heights.values():
        assert all(y >= pointwise[v] for v, y in curve.items())
    touched = {name: min(c, key=lambda v: c[v] - pointwise[v]) for name, c in heights.items()}
    assert pointwise[touched["filter"]] == pytest.approx(3, abs=0.05)
    assert pointwise[touched["filter, as printed"]] == pytest.approx(1.5, abs=0.05)
    old, *new = (dict(c.points) for c in wrrw.figure_1b()[0].curves)
    assert all(curve[v] < old[v] for curve in new for v in curve if v > 0.05)


@pytest.mark.parametrize("name", NAMES)
def test_wrrws_pictures_are_what_the_code_makes(name: str, tmp_path: Path) -> None:
    wrrw = script("wrrw")
    panels = wrrw.FIGURES[name]()
    wrrw.draw(name, panels, tmp_path / "new.svg")
    committed = (FOLDER / f"{name}.svg").read_text()
    assert same(lines(committed), lines((tmp_path / "new.svg").read_text()))
    assert len(lines(committed)) == sum(len(panel.curves) for panel in panels)
    assert len(committed) < 65_000
    assert INDEX.count(f"({name}.svg)") == 1
