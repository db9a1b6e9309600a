"""The figures of the statistics' pages are what their code makes; what runs were off lies on the lines."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded_script

FOLDER = Path(__file__).parents[3] / "docs" / "figures"
PAGES = {
    "counts": "histograms", "windows": "windows", "sums": "sums", "means": "mean", "ratios": "ratio",
    "distinct": "distinct", "gauges": "gauges", "alerts": "alerts", "monitors": "monitors",
}  # fmt: skip


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """The script."""
    return loaded_script(FOLDER / "statistic_errors.py")


def drawn(svg: str) -> dict[str, list[float]]:
    """The coordinates of all lines and points that have a name."""
    shapes = re.findall(r'<g id="([a-z]+/(?:line|points)/[^"]+)">(.*?)</g>', svg, re.DOTALL)
    found = {}
    for name, shape in shapes:
        places = " ".join(re.findall(r'<path d="([^"]+)" clip-path', shape))
        places += " ".join(re.findall(r'<use [^>]*x="[^"]+" y="[^"]+"', shape))
        found[name] = [float(x) for x in re.findall(r"-?\d+\.\d+|-?\d+", places)]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_picture_of_a_statistic_is_what_the_code_makes(
    figures: ModuleType, name: str, tmp_path: Path
) -> None:
    assert tuple(figures.PICTURES) == tuple(PAGES)
    figures.draw(name, tmp_path / "new.svg")
    committed, new = (
        drawn(path.read_text()) for path in (FOLDER / f"{name}-errors.svg", tmp_path / "new.svg")
    )
    assert committed.keys() == new.keys()
    assert len(committed) >= 3
    for shape, places in committed.items():
        assert len(places) >= 6, shape
        assert places == pytest.approx(new[shape], abs=0.01), shape
    page = (FOLDER.parent / f"{PAGES[name]}.md").read_text()
    assert page.count(f"(figures/{name}-errors.svg)") == 1
    assert "## When to use it" in page


@pytest.mark.parametrize("name", [name for name in PAGES if name not in ("alerts", "monitors")])
def test_what_runs_were_off_lies_on_the_lines(figures: ModuleType, name: str) -> None:
    """All seeds are fixed; a quantile of 400 runs is itself about a tenth unsure, and integers add to that."""
    picture = figures.PICTURES[name]()
    assert picture.points
    for label, points in picture.points.items():
        for across, found in points.items():
            assert 0.75 < found / picture.lines[label][across] < 1.25, (label, across)
