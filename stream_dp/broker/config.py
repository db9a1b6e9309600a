"""The text of server.properties, for one node or three.

Rules: this file only makes text; it uses no files and no sockets. Every path is relative to the node's folder, the
working directory of its Java process, so no path needs escaping and a data folder may be moved. Both sizes use
static `controller.quorum.voters`: the ports are only in this text, so a restart over old data may change them. A
local broker keeps everything: records, offsets and transactional ids do not expire.
"""

from collections.abc import Sequence
from dataclasses import dataclass

HOST = "127.0.0.1"
_INT_MAX = 2**31 - 1
_TWO_MIB = 2 * 1024 * 1024  # a 1 MiB value plus its framing exceeds Kafka's default of 1 MiB
_INTERNAL_PARTITIONS = 4


@dataclass(frozen=True)
class NodePorts:
    """The ports of one node: for clients and for the controllers' quorum."""

    node: int
    broker: int
    controller: int


def bootstrap(cluster: Sequence[NodePorts]) -> str:
    """Return the address list for clients.

    >>> bootstrap([NodePorts(1, 9092, 9093), NodePorts(2, 9094, 9095)])
    '127.0.0.1:9092,127.0.0.1:9094'
    """
    return ",".join(f"{HOST}:{ports.broker}" for ports in cluster)


def server_properties(own: NodePorts, cluster: Sequence[NodePorts]) -> str:
    """Return the configuration of one node of the cluster."""
    settings = _identity(own, cluster) | _replication(len(cluster)) | _behaviour()
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def controller_properties(own: NodePorts, cluster: Sequence[NodePorts]) -> str:
    """Return the configuration of one node without its broker, for `fence_former_life`; it fences fast."""
    settings = _identity(own, cluster)
    settings["process.roles"] = "controller"
    settings["listeners"] = f"CONTROLLER://{HOST}:{own.controller}"
    settings["broker.session.timeout.ms"] = 500
    settings["broker.heartbeat.interval.ms"] = 100
    del settings["advertised.listeners"]
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _identity(own: NodePorts, cluster: Sequence[NodePorts]) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": own.node,
        "controller.quorum.voters": ",".join(f"{n.node}@{HOST}:{n.controller}" for n in cluster),
        "listeners": f"PLAINTEXT://{HOST}:{own.broker},CONTROLLER://{HOST}:{own.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{own.broker}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": "data",
    }


def _replication(nodes: int) -> dict[str, object]:
    in_sync = 2 if nodes > 1 else 1
    settings: dict[str, object] = {
        "default.replication.factor": nodes,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": nodes,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": nodes,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
    # A node without CPU time for this long is fenced. In a cluster of three, the others then lead its partitions; a
    # single node only refuses topics and writers. `fence_former_life` fences the brokers of a former run.
    return settings | {"broker.session.timeout.ms": 60_000 if nodes == 1 else 6000}


def _behaviour() -> dict[str, object]:
    return {
        "broker.heartbeat.interval.ms": 500,
        "auto.create.topics.enable": "false",
        "num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": _INTERNAL_PARTITIONS,
        "transaction.state.log.num.partitions": _INTERNAL_PARTITIONS,
        "share.coordinator.state.topic.num.partitions": 1,
        "offsets.retention.minutes": _INT_MAX,
        "transactional.id.expiration.ms": _INT_MAX,
        "log.message.timestamp.type": "CreateTime",
        "log.retention.ms": -1,
        "log.retention.bytes": -1,
        "message.max.bytes": _TWO_MIB,
        "replica.fetch.max.bytes": _TWO_MIB,
        "log.cleaner.dedupe.buffer.size": 16 * _TWO_MIB,
    }
