"""The figure of docs/quantiles.md is what the code makes, and shows what the page says of it."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded_script

FOLDER = Path(__file__).parents[3] / "docs" / "figures"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """The script."""
    return loaded_script(FOLDER / "quantile_errors.py")


def lines(svg: str) -> dict[str, list[float]]:
    """The coordinates of every line that has a name."""
    found = re.findall(r'<g id="(quantiles/[^"]+)">\s*<path d="([^"]+)"', svg)
    return {name: [float(x) for x in re.findall(r"-?\d+\.?\d*", path)] for name, path in found}


def test_the_committed_picture_is_what_the_code_makes(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = lines((FOLDER / "quantile-errors.svg").read_text())
    figures.draw(tmp_path / "new.svg")
    new = lines((tmp_path / "new.svg").read_text())
    assert committed.keys() == new.keys()
    assert len(committed) == 4
    for name, places in committed.items():
        assert places == pytest.approx(new[name], abs=0.01)
    monkeypatch.setattr(figures, "EPSILON", figures.EPSILON / 2)
    figures.draw(tmp_path / "other.svg")
    assert lines((tmp_path / "other.svg").read_text()) != committed
    assert (FOLDER / "README.md").read_text().count("(quantile-errors.svg)") == 1


def test_the_tables_of_the_page_are_the_bands(figures: ModuleType) -> None:
    """Each cell of a day that slides, of all so far at its worst and of a day that ends."""
    page = (FOLDER.parent / "quantiles.md").read_text()
    for asked, at in figures.ASKED.items():
        for kind in ("24h", "7d", "every"):
            cells = [
                str(round(_band(figures, kind, at, epsilon)))
                for epsilon in ("1/10", "3/10", "1", "3")
            ]
            row = f"| {_NAMES[kind]} | {asked} | {' | '.join(cells)} |"
            assert row in page, row


_NAMES = {"24h": "sliding, 24 ticks", "7d": "sliding, 168 ticks", "every": "ending, any length"}


def _band(figures: ModuleType, kind: str, at: tuple[object, ...], epsilon: str) -> float:
    share = type(figures.EPSILON)(epsilon)
    if kind == "every":
        return float(figures.tumbling_choice(figures.SETTING, share, ("24h",), at).expected(0))
    return float(figures.sliding_choice(figures.SETTING, share, (kind,), at).expected(8_000))
