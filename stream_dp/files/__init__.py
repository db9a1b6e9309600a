"""Adapters for what lies on this machine: data files, SQLite, memory, the system's clock.

They implement ports and nothing else.
"""
