"""The engine: ticks, actors, gate, journal and recovery on one event loop."""
