"""The figures of [WRRW]: every curve against its closed form in floats, and the pictures against the code.

Coordinates are compared, not bytes: other versions of matplotlib write the same lines in other words.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded_script

FOLDER = Path(__file__).parents[3] / "docs" / "figures"
NAMES = ("wrrw-1a", "wrrw-1b", "wrrw-2", "wrrw-3")
BITS = math.log(1e6)


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """The script, as a module."""
    return loaded_script(FOLDER / "wrrw.py")


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
def test_every_curve_is_its_closed_form(figures: ModuleType, name: str) -> None:
    panels = figures.FIGURES[name]()
    assert len(panels) == len(EXPECTED[name])
    for panel, expected in zip(panels, EXPECTED[name], strict=True):
        assert {c.name for c in panel.curves} == set(expected)
        for curve in panel.curves:
            start = float(curve.name.removeprefix("start ")) if "start " in curve.name else 0.01
            late = curve.name == "stitched" or "start " in curve.name  # infinite before v0
            assert len(curve.points) == figures.POINTS or late
            assert min(v for v, _ in curve.points) >= (start if late else 0)
            for v, y in curve.points:
                assert y == pytest.approx(expected[curve.name](v), rel=1e-9)


def test_what_the_figures_show(figures: ModuleType) -> None:
    """All but the original are above advanced composition, which the filter touches at 3, or at 1.5 as printed."""
    _, panel = figures.figure_3()
    heights = {c.name: dict(c.points) for c in panel.curves}
    pointwise = heights.pop("advanced composition")
    for curve in heights.values():
        assert all(y >= pointwise[v] for v, y in curve.items())
    touched = {name: min(c, key=lambda v: c[v] - pointwise[v]) for name, c in heights.items()}
    assert pointwise[touched["filter"]] == pytest.approx(3, abs=0.05)
    assert pointwise[touched["filter, as printed"]] == pytest.approx(1.5, abs=0.05)
    old, *new = (dict(c.points) for c in figures.figure_1b()[0].curves)
    assert all(curve[v] < old[v] for curve in new for v in curve if v > 0.05)


def lines(svg: str) -> dict[str, list[float]]:
    """The coordinates of every line that has a name."""
    found = re.findall(r'<g id="(wrrw[^"]+)">\s*<path d="([^"]+)"', svg)
    return {name: [float(x) for x in re.findall(r"-?\d+\.?\d*", path)] for name, path in found}


def same(left: dict[str, list[float]], right: dict[str, list[float]]) -> bool:
    """Whether they have the same lines, to a hundredth of a point."""
    return left.keys() == right.keys() and all(
        left[name] == pytest.approx(right[name], abs=0.01) for name in left
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_picture_is_what_the_code_makes(
    figures: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panels = figures.FIGURES[name]()
    figures.draw(name, panels, tmp_path / "new.svg")
    committed = (FOLDER / f"{name}.svg").read_text()
    drawn = lines(committed)
    assert same(drawn, lines((tmp_path / "new.svg").read_text()))
    assert len(drawn) == sum(len(panel.curves) for panel in panels)
    assert len(committed) < 65_000
    monkeypatch.setattr(figures, "TARGET", figures.TARGET + 1)
    figures.draw(name, figures.FIGURES[name](), tmp_path / "other.svg")
    if name not in ("wrrw-1a", "wrrw-2"):  # another tuning is another picture
        assert not same(drawn, lines((tmp_path / "other.svg").read_text()))
    assert (FOLDER / "README.md").read_text().count(f"({name}.svg)") == 1
