"""The model of [HSV]: messages, mechanisms, neighbours, guarantees, derivations, composition; and the codec and
time beneath.

It knows no event loop, clock, file, socket or global randomness, and no mechanism. Begin with `mechanism`, then
`composition`.
"""
