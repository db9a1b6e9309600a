"""From a journal back to the engine's state, byte for byte, or a refusal that says why.

Begin with `history`, then `recovery`.
"""
