"""What `read_releases` returns of a file and a pipeline file, and that what is missing in between is found."""

import json
from pathlib import Path

import pytest
from unit.operate.export.export_worlds import FORMS, bodies, changed, published

import stream_dp as sdp
from stream_dp.client.frames import Row, rows_of
from stream_dp.python.released import _require_ticks

ALL = bodies(range(3))


def rows(found: list[bytes]) -> list[Row]:
    return [row for body in found for row in rows_of("shop", body)]


def test_a_file_of_releases_and_its_pipeline_file_are_read(tmp_path: Path) -> None:
    path = published(tmp_path, ALL)
    assert list(sdp.read_releases(tmp_path / "shop.releases.jsonl")) == rows(ALL)
    assert list(sdp.read_releases(str(path))) == rows(ALL)
    alone = [body for body in ALL if json.loads(body)["series"] == "s1"]
    assert list(sdp.read_releases(path, series="s1")) == rows(alone)


async def test_it_is_read_where_an_event_loop_runs_as_in_a_notebook(tmp_path: Path) -> None:
    assert list(sdp.read_releases(published(tmp_path, ALL))) == rows(ALL)


@pytest.mark.parametrize("lost", [range(4, 5), range(1, 12)])
def test_a_gap_says_where_it_is(lost: range, tmp_path: Path) -> None:
    kept = [body for at, body in enumerate(ALL) if at not in lost]
    with pytest.raises(sdp.ReleasesMissing, match=r"releases of shop: releases: .* missing") as gap:
        sdp.read_releases(published(tmp_path, kept), series="s0")
    assert (gap.value.first, gap.value.last) == (lost.start, lost.stop - 1)
    later = sdp.read_releases(published(tmp_path, ALL[5:]))
    assert list(later) == rows(ALL[5:])  # what was pruned before is no gap


def test_what_is_no_release_or_comes_twice_is_refused(tmp_path: Path) -> None:
    path = published(tmp_path, [ALL[0], ALL[1], ALL[1]])
    with pytest.raises(sdp.FailClosed, match="release 1 comes after release 1"):
        sdp.read_releases(path)
    (tmp_path / "a.txt").write_text("no release\n")
    with pytest.raises(sdp.FailClosed, match=r"a.txt: a line is no release"):
        sdp.read_releases(tmp_path / "a.txt")
    for wrong in ("kafka://", "kafka://host:9092", "mysql://host/database"):
        with pytest.raises(sdp.UsageError, match="source: must be a file of releases"):
            sdp.read_releases(wrong)


def test_a_table_without_a_tick_is_found() -> None:
    """But alerts have no row where none fired, and a series may begin late."""
    kept = [row for row in rows(ALL) if not (row.series == "s2" and row.tick == 1)]
    _require_ticks([row for row in kept if not (row.series == "s1" and row.tick == 0)], "a table")
    for number in set(range(len(FORMS))) - {2, 3}:
        broken = [row for row in kept if not (row.series == f"s{number}" and row.tick == 1)]
        with pytest.raises(sdp.ReleasesMissing, match=f"a table: ticks of s{number}: 1 missing"):
            _require_ticks(broken, "a table")


def test_ticks_between_two_versions_are_no_gap() -> None:
    found = rows(changed(bodies(range(7)), 4))
    between = [row for row in found if (row.series, row.tick) != ("s0", 3)]
    _require_ticks(between, "a table")
    for tick in (1, 5):
        broken = [row for row in between if (row.series, row.tick) != ("s0", tick)]
        with pytest.raises(sdp.ReleasesMissing, match=f"a table: ticks of s0: {tick} missing"):
            _require_ticks(broken, "a table")
