"""From a time to its tick, in every form: exact at both ends of a tick and of the grid, and remembered without harm."""

from zoneinfo import ZoneInfo

import pytest

from stream_dp.core.time import TickGrid, TimeForm
from stream_dp.records import decoder
from stream_dp.records.decoder import NO_TIME, OUTSIDE, OwnTicks

GRID = TickGrid(origin=10_000, step=2_000, horizon=2)  # ticks of 10 s to 12 s and to 14 s
AT = {
    "iso": ("1970-01-01T00:00:10Z", "1970-01-01T00:00:11.999999Z", "1970-01-01T00:00:12Z"),
    "epoch_ms": (10_000, 11_999, 12_000),
    "epoch_s": (10, 11, 12),
    "epoch_us": (10_000_000, 11_999_999, 12_000_000),
}
OFF = {
    "iso": ("1970-01-01T00:00:09.999999Z", "1970-01-01T00:00:14Z"),
    "epoch_ms": (9_999, 14_000),
    "epoch_s": (9, 14),
    "epoch_us": (9_999_999, 14_000_000),
}


@pytest.mark.parametrize("form", AT)
def test_a_tick_holds_its_start_and_all_before_its_end_in_every_form(form: str) -> None:
    """Asked twice, for what is remembered is told as it was found; the order is that of the times."""
    ticks = OwnTicks(GRID, TimeForm(form))
    for _ in range(2):
        assert ticks.of(AT[form], 3).tolist() == [0, 0, 1]
        assert ticks.of(OFF[form], 2).tolist() == [OUTSIDE, OUTSIDE]


def test_what_is_no_time_is_told_apart_from_what_lies_outside() -> None:
    ticks = OwnTicks(GRID, TimeForm())
    assert ticks.of(["never", "1970-01-01T00:00:13Z", "2070-01-01T00:00:13Z"], 3).tolist() == [
        NO_TIME, 1, OUTSIDE,
    ]  # fmt: skip


def test_grids_and_zones_remember_for_themselves() -> None:
    """The same text on another grid, and in another zone."""
    text = ["1970-01-01T00:00:13"]
    later = TickGrid(GRID.origin, GRID.step * 2, 9)
    paris = TimeForm(zone=ZoneInfo("Europe/Paris"))
    there = TickGrid(GRID.origin - 3_600_000, GRID.step, 2)
    told = [
        (GRID, TimeForm(zone=ZoneInfo("UTC"))),
        (later, TimeForm(zone=ZoneInfo("UTC"))),
        (there, paris),
    ]
    assert [OwnTicks(*one).of(text, 1).tolist() for one in told] == [[1], [0], [1]]


def test_what_is_remembered_is_bounded_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts alone, so many of them, and no integers."""
    monkeypatch.setattr(decoder, "_CACHED_TIMES", 4)
    ticks, found = OwnTicks(GRID, TimeForm()), list[int]()
    remembered = ticks._tick_of
    for n in range(20):
        assert ticks.of([f"1970-01-01T00:00:11.{n:03d}Z", "x" * 41, "x" * 10**5], 3).tolist() == [
            0, NO_TIME, NO_TIME,
        ]  # fmt: skip
        found.append(len(remembered))
        assert max(map(len, remembered)) <= 40
    assert max(found) == 4
    for form in ("epoch_ms", "epoch_s", "epoch_us"):
        counted = OwnTicks(GRID, TimeForm(form))
        counted.of(range(100), 100)
        assert len(counted._tick_of) == 0


@pytest.mark.parametrize("cached", [1, 3, 1 << 14])
@pytest.mark.parametrize("at_once", [1, 5, 1 << 12])
def test_many_times_have_the_ticks_of_each_alone(
    monkeypatch: pytest.MonkeyPatch, cached: int, at_once: int
) -> None:
    """New ones, repeated ones, those of other lengths and no times, in readings and memories of every size."""
    monkeypatch.setattr(decoder, "_CACHED_TIMES", cached)
    monkeypatch.setattr(decoder, "_AT_ONCE", at_once)
    form = TimeForm(zone=ZoneInfo("UTC"))
    times = [
        f"1970-01-01 00:00:{second:02d}.{n % 4:03d}" for n in range(7) for second in range(8, 16)
    ]
    times += ["never", "1970-01-01T00:00:13", "x" * 50, "1970-01-01T00:00:11.9+00:00"] * 2
    alone = [OwnTicks(GRID, form).of([time], 1).item() for time in times]
    ticks = OwnTicks(GRID, form)
    for _ in range(2):
        assert ticks.of(iter(times), len(times)).tolist() == alone
        assert len(ticks._tick_of) <= cached
        assert min(ticks._tick_of.values()) >= NO_TIME
    assert set(alone) == {0, 1, OUTSIDE, NO_TIME}
    assert ticks.of([], 0).tolist() == []


def test_a_reading_that_breaks_off_leaves_no_false_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = OwnTicks(GRID, TimeForm())
    with monkeypatch.context() as patch:
        patch.setattr(decoder, "parse_moments", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            ticks.of(AT["iso"], 3)
    assert ticks.of(AT["iso"], 3).tolist() == [0, 0, 1]
