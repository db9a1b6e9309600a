"""The distinguishing game of [HSV] Def 3.7: verifier, identifier, mechanism, adversary. Begin with `game`."""
