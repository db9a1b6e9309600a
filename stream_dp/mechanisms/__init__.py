"""Continual mechanisms, each with its claim, derivation and error band. Begin with `linear.counter`.

They are sans-I/O: `init(noise)` and `step(state, message, noise)`. They know no names, no clock, no series and no
file. This folder holds the code that all mechanisms share. `states` lists the types that a snapshot may hold.
"""
