"""Watches of the file that end: nothing counts in their columns from then on, after a crash neither."""

import pytest
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.live_series_worlds import HORIZON
from unit.live.monitor_worlds import MonitorWorld, message, no_noise

PLACES = {"large": range(1, 2), "by": range(2, 5), "quiet": range(5, 6)}
"""The columns of the file's watches: behind that of `orders`, in their order; `by` has one for each country."""
ENDS = {"quiet": 2, "by": 4, "large": 6}


@pytest.mark.parametrize("left", [None, 12, 25, 38])
async def test_each_watch_counts_until_its_own_end_and_no_further(left: int | None) -> None:
    script = [
        message(tick, f"u-{name}", "unwatch", series="m", watch=name) for name, tick in ENDS.items()
    ]
    world = MonitorWorld(script=script, noise=no_noise)
    if left is not None:
        with pytest.raises(Crash):
            await world.live(Fuse(left))
    await world.live()
    rows = {t: row for c in world.commits() for t, row in zip(c.ticks, c.rows, strict=True)}
    assert sorted(rows) == list(range(HORIZON))
    for name, places in PLACES.items():
        end = world.replies()[f"u-{name}"]["answer"]["end"]
        assert end > ENDS[name]
        for column in places:
            counted = [tick for tick, row in rows.items() if row[column]]
            assert counted == [tick for tick in counted if tick < end], name
        assert all(any(rows[tick][column] for column in places) for tick in range(end)), name
