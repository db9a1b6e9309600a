"""stream_dp in a Faust app: the engine as a service, messages, releases, and events that agents have enriched.

Rules: safety never rests on Faust. One engine runs because the lease is one; what agents feed counts once because
each partition's head lies in the transaction that feeds it; releases are checked by their sequence. Faust delivers at
least once, and nothing here asks more of it. Loading this folder loads Faust; nothing else does.
"""

from stream_dp.integrations.faust.asking import FaustQueries, Reply
from stream_dp.integrations.faust.attached import Attached, attach, from_agent, releases
from stream_dp.integrations.faust.release_stream import ReleaseStream
from stream_dp.integrations.faust.stopping import EngineStopped

__all__ = [
    "Attached",
    "EngineStopped",
    "FaustQueries",
    "ReleaseStream",
    "Reply",
    "attach",
    "from_agent",
    "releases",
]
