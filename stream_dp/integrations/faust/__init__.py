"""stream_dp in a Faust app: the engine as a service, lanes in agents, messages, releases, enriched events.

Rules: safety never depends on Faust, which delivers at least once. Only one engine runs because there is one lease.
Records that agents feed count once because each partition's head is part of the transaction that feeds them.
Releases are checked by their sequence numbers. Only importing this folder imports Faust.
"""

from stream_dp.integrations.faust.asking import FaustQueries, Reply
from stream_dp.integrations.faust.attached import Attached, attach, from_agent, releases
from stream_dp.integrations.faust.hosted_lanes import HostedLanes, lanes
from stream_dp.integrations.faust.release_stream import EngineStopped, ReleaseStream

__all__ = [
    "Attached",
    "EngineStopped",
    "FaustQueries",
    "HostedLanes",
    "ReleaseStream",
    "Reply",
    "attach",
    "from_agent",
    "lanes",
    "releases",
]
