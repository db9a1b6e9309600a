"""Clients of an engine that runs elsewhere."""
