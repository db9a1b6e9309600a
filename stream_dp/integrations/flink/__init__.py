"""stream_dp in Flink: jobs whose subtasks read lanes of a topic for its engine, as workers do (docs/flink.md).

Rules: only what is called imports PyFlink.
"""

from stream_dp.integrations.flink.hosts import HostedWorker, host_lanes, lanes_of

__all__ = ["HostedWorker", "host_lanes", "lanes_of"]
