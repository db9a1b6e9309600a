"""Clients, settings, topics and rights: how to reach a cluster, and how its errors become ours."""
