"""The model of [HSV]: messages, mechanisms, neighbours, guarantees, derivations, composition; the codec and time.

This package knows no event loop, clock, file, socket or global randomness, and no mechanism. Begin with
`mechanism`, then `composition`.
"""
