"""Lanes: who reads the source beside the engine, and how rows come from there: by pipes, or by a topic."""
