"""The engine of a monitor against the theory: asks and watches that come and go are messages of the trace."""

from unit.live.live_series_worlds import HORIZON, SEALER
from unit.live.monitor_worlds import MonitorWorld
from unit.operate.audit.trace_worlds import blobs
from unit.statistics.parts.test_monitor_messages import SCRIPT

from stream_dp.journal.commit import Asked
from stream_dp.operate.audit.trace_check import compared


async def test_the_engine_is_the_composition_also_where_watches_come_and_go() -> None:
    """Byte for byte; and one event more passes the verifier of the claimed relation, two in two ticks do not."""
    world = MonitorWorld(script=SCRIPT)
    await world.live()
    found = await compared(world.built, SEALER, blobs(world))
    changes = [change for commit in world.commits() for change in commit.changes]
    assert (found.releases, found.answers) == (
        2 * HORIZON,
        sum(isinstance(c, Asked) for c in changes),
    )
    assert found.counts.asks == 2 * found.releases + len(changes)
    assert found.apart is True
