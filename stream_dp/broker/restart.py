"""After `kill -9`: let the controllers forget the brokers' former life before the brokers start.

Why: a node that starts again is, for its controller, still the old one until that times out. In
that time it leads its partitions without taking connections; when the time-out takes the leadership
away, Kafka 4.3.1 (seen in 4 of 9 kills right after a commit) takes a partition without a leader for
a deleted one and books the pending commit as complete without writing its marker. The commit was
acknowledged, and readers of committed records then wait for ever. So the controllers run alone
first, without a broker that could do this, until they have fenced all of them and written so.
"""

from collections.abc import Sequence

from stream_dp.broker import node_waits
from stream_dp.broker.config import NodePorts, controller_properties
from stream_dp.broker.node import Node, NodeRuntime

_FENCING_SECONDS = 15.0  # reached only if a broker was not registered or fenced already
_GRACE_SECONDS = 10.0


async def fence_former_life(
    nodes: Sequence[Node], cluster: Sequence[NodePorts], machine: NodeRuntime
) -> None:
    """Run the controllers alone until every broker is fenced."""
    for node, own in zip(nodes, cluster, strict=True):
        node.write_config(controller_properties(own, cluster))
        node.launch(machine)
    await node_waits.until_ready(nodes)
    await node_waits.until_fenced(nodes, _FENCING_SECONDS)
    await node_waits.stop(nodes, _GRACE_SECONDS)
