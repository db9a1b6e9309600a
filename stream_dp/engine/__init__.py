"""The engine: source, guard, ticks, actors, gate, on one event loop. Begin with `ports`, then `engine`.

It runs what a `RunConfig` says and talks to the world through ports; it knows no pipeline file, statistic or adapter.
"""
