"""Clients, settings, topics and rights: how a cluster is reached, and how its errors become ours.

Begin with `clients`.
"""
