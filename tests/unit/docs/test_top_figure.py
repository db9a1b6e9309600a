"""The figure of the page on top lists is what its code makes, and says what the page says."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded_script

FOLDER = Path(__file__).parents[3] / "docs" / "figures"


@pytest.fixture
def figures() -> ModuleType:
    """Return the module that draws, afresh."""
    return loaded_script(FOLDER / "top_errors.py")


def lines(svg: str) -> dict[str, list[float]]:
    """The coordinates of every line that has a name."""
    found = re.findall(r'<g id="(top/[^"]+)">\s*<path d="([^"]+)"', svg)
    return {name: [float(x) for x in re.findall(r"-?\d+\.?\d*", path)] for name, path in found}


def test_the_committed_picture_of_top_lists_is_what_the_code_makes(
    figures: ModuleType, tmp_path: Path
) -> None:
    committed = lines((FOLDER / "top-errors.svg").read_text())
    figures.draw(tmp_path / "new.svg")
    new = lines((tmp_path / "new.svg").read_text())
    assert sorted(committed) == sorted(new) == ["top/ranked", "top/selected"]
    for name, line in committed.items():
        assert line == pytest.approx(new[name], abs=0.01)
    assert (FOLDER / "README.md").read_text().count("(top-errors.svg)") == 1


def test_the_page_has_what_was_measured(figures: ModuleType) -> None:
    page = (FOLDER.parent / "top.md").read_text()
    once, often = (
        (round(figures.ranked(n)), round(figures.selected(n))) for n in (1, figures.RELEASES[-1])
    )
    assert f"misses {once[0]} of the" in page
    assert f"selection {once[1]};" in page
    assert f"releases {often[0]}, and selection {often[1]:,}" in page
    for releases in figures.RELEASES:
        assert figures.ranked(releases) < figures.selected(releases)
