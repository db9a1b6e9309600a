"""Metrics for a monitoring system, as `prometheus_client` writes them: of what is public, from the public view alone.

Rules: nothing here knows an event, a count, an offset or a process. No registry but our own is shown, and no collector
but those here: what a process takes of memory or time is private.
"""
