"""Releases as frames and plots: the same rows in every library, each form drawn, and nothing that a page could run."""

import json
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
from unit.operate.export.export_worlds import FORMS, ROWS, bodies, changed

import stream_dp as sdp
from stream_dp.client import frames
from stream_dp.client.frames import COLUMNS, Label, ReleaseTable, rows_of


@pytest.fixture
def table() -> ReleaseTable:
    rows = [row for body in bodies(range(3)) for row in rows_of("shop", body)]
    return ReleaseTable(rows, {"s0": Label("Orders", "parcels")})


@pytest.fixture(autouse=True)
def no_screen() -> Iterator[None]:
    from matplotlib import pyplot

    mpl.use("Agg")
    yield
    pyplot.close("all")


def test_every_library_has_the_same_rows(table: ReleaseTable) -> None:
    assert (len(table), len(list(table))) == (3 * ROWS, 3 * ROWS)
    rows = [tuple(row) for row in table]
    assert [tuple(row[name] for name in COLUMNS) for row in table.to_arrow().to_pylist()] == rows
    assert table.to_polars().rows() == rows
    pandas = table.to_pandas()
    plain = pandas.astype(object).where(pandas.notna(), None)
    assert list(plain.itertuples(index=False, name=None)) == rows
    assert str(pandas.dtypes["tick_end"]) == "datetime64[ms, UTC]"
    empty = ReleaseTable([])
    assert list(empty.to_pandas().columns) == list(empty.to_polars().columns) == list(COLUMNS)
    assert empty.to_arrow().num_rows == 0


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_every_form_is_drawn(number: int, table: ReleaseTable) -> None:
    shown = ReleaseTable([row for row in table if row.series == f"s{number}"], table.labels)
    axes = shown.plot()
    axes.figure.canvas.draw()
    if shown.rows:
        assert axes.has_data()
    if number == 0:
        assert (axes.get_title(), axes.get_ylabel()) == ("Orders (95% confidence)", "parcels")
        [band] = axes.collections
        assert band.get_paths()[0].get_extents().y0 == 8  # value 12, band 4
    if number == 7:
        assert [text.get_text() for text in axes.texts] == ["or DE", "or AT"]


def test_a_window_and_keys_are_chosen(table: ReleaseTable) -> None:
    windows = table["s8"]
    assert windows.plot().get_title().startswith("s8, 24h")
    assert windows.plot(window="tick").get_title().startswith("s8, tick")
    assert len(table["s1"].plot(keys=["AT"]).lines) == 1
    with pytest.raises(sdp.UsageError, match="window: '2h' is no window of s8: tick, 24h"):
        windows.plot(window="2h")
    with pytest.raises(sdp.UsageError, match="there is no 'ATT'; did you mean AT"):
        table["s1"].plot(keys=["ATT"])
    with pytest.raises(sdp.UsageError, match="a plot shows one series"):
        table.plot()
    with pytest.raises(sdp.UsageError, match="no row belongs to series 's99'"):
        table["s99"]


def test_a_changed_series_is_told_apart_and_its_newest_version_drawn() -> None:
    found = [row for body in changed(bodies(range(3)), 1) for row in rows_of("shop", body)]
    table = ReleaseTable(found)["s0"]
    versions = [1, 2, 2]
    assert table.to_arrow()["version"].to_pylist() == versions
    assert table.to_pandas()["version"].tolist() == versions
    assert table.to_polars()["version"].to_list() == versions
    [line] = table.plot().lines
    assert np.size(line.get_xdata()) == 2


def test_of_many_keys_the_largest_are_drawn() -> None:
    said = {"values": {f"k{n}": n for n in range(12)}, "band": 1}
    head = {"v": 1, "sequence": 1, "series": "many", "tick": 0, "end": "2024-01-01T01:00:00Z"}
    rows = rows_of("shop", json.dumps({**head, **said, "confidence": 0.95}).encode())
    axes = ReleaseTable(rows).plot()
    assert [line.get_label() for line in axes.lines] == [f"k{n}" for n in range(2, 12)]
    assert "10 of 12 keys" in axes.get_title()


def test_what_a_notebook_shows_is_escaped(table: ReleaseTable) -> None:
    assert "D&quot;E," in table["s1"]._repr_html_()
    assert "12 ± 4" in table["s0"]._repr_html_()
    assert "0.125 (0.1 to open)" in table["s4"]._repr_html_()


def test_a_library_that_is_not_there_is_named_with_its_extra() -> None:
    with pytest.raises(sdp.UsageError, match=r"needs nowhere: pip install 'stream_dp\[frames\]'"):
        frames.library("nowhere.at.all", "frames")
