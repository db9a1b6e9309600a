"""Mechanisms that run alone, in any program, on any iterator: a budget, and what is created from it.

Rules: what is charged is charged before it exists, and nothing is given back: mechanisms that run alone share no clock,
so no tick of one is known to lie behind a tick of another. One tick, one release. The building blocks are those of the
pipeline; what is taken from there is named in `blocks`. This folder opens no file and no socket.
"""
