"""The engine: source, guard, ticks, actors, gate, on one event loop.

asyncio begins here. Begin with `ports`, then `engine`.

It runs what a `RunConfig` says and talks to the world through ports. It knows no pipeline file, no statistic
and no adapter.
"""
