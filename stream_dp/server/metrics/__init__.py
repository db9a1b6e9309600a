"""Metrics for a monitoring system in `prometheus_client`'s formats, from the public view alone.

Rules: nothing here knows an event, a count, an offset or a process. Only our own registry and the collectors of
this folder are shown, because a process's memory and time are private.
"""
