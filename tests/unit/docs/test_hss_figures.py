"""The figure of docs/hss.md is what the code makes, and shows what the page says of it."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded_script

FOLDER = Path(__file__).parents[3] / "docs" / "figures"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """The script."""
    return loaded_script(FOLDER / "hss_errors.py")


def lines(svg: str) -> dict[str, list[float]]:
    """The coordinates of every line that has a name."""
    found = re.findall(r'<g id="(hss/[^"]+)">\s*<path d="([^"]+)"', svg)
    return {name: [float(x) for x in re.findall(r"-?\d+\.?\d*", path)] for name, path in found}


def same(left: dict[str, list[float]], right: dict[str, list[float]]) -> bool:
    """Whether they have the same lines, to a hundredth of a point."""
    return left.keys() == right.keys() and all(
        left[name] == pytest.approx(right[name], abs=0.01) for name in left
    )


def test_the_committed_picture_is_what_the_code_makes(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = lines((FOLDER / "hss-errors.svg").read_text())
    figures.draw(tmp_path / "new.svg")
    assert same(committed, lines((tmp_path / "new.svg").read_text()))
    assert len(committed) == 6
    monkeypatch.setattr(figures, "EPSILON", figures.EPSILON / 2)
    figures.draw(tmp_path / "other.svg")
    assert not same(committed, lines((tmp_path / "other.svg").read_text()))
    assert (FOLDER / "README.md").read_text().count("(hss-errors.svg)") == 1


def test_bin_by_bin_wins_until_the_largest_categories_cross_all_the_time(
    figures: ModuleType,
) -> None:
    for width in figures.WIDTHS:
        errors = figures.panel(width).errors
        first = {form: values[0] for form, values in errors.items()}
        assert min(first, key=lambda form: first[form]) != "tree"
        assert errors["HSS, bin by bin"] == tuple(sorted(errors["HSS, bin by bin"]))
        assert errors["HSS, bin by bin"][-1] > errors["tree"][-1]
