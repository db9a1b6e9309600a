"""Continual mechanisms, one file each: synchronous, state in, state out."""
