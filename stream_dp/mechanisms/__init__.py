"""Continual mechanisms, each with its claim, derivation and error band. Begin with `linear.counter`.

They are sans-I/O: `init(noise)` and `step(state, message, noise)`. They know neither names nor ticks of the
clock, no series and no file. Here: what all of them share. `states` lists the types that a snapshot may hold.
"""
