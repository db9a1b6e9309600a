"""The last rows of a sequence, in blocks, so that a state keeps a window without a full copy at each step.

Rules: rings are values. A new row makes a new ring, which shares all blocks but the last with the ring before.
Blocks are arrays of shape (rows, width); all but the last are full. This file knows no noise and no ticks.
"""

from typing import TypeAlias

import numpy as np

from stream_dp.core.messages import IntArray

BLOCK = 64

Ring: TypeAlias = tuple[IntArray, ...]


def pushed(ring: Ring, row: IntArray, keep: int) -> Ring:
    """Return the ring with one more row; drop the oldest block where `keep` rows remain without it."""
    if ring and len(ring[-1]) < BLOCK:
        blocks = (*ring[:-1], np.concatenate([ring[-1], row[None]]))
    else:
        blocks = (*ring, row[None].copy())
    enough = BLOCK * (len(blocks) - 2) + len(blocks[-1]) >= keep
    return blocks[1:] if len(blocks) > 1 and enough else blocks


def row_back(ring: Ring, back: int) -> IntArray:
    """Return the row that came `back` rows before the last one."""
    last = ring[-1]
    if back < len(last):
        found: IntArray = last[len(last) - 1 - back]
        return found
    block, place = divmod(back - len(last), BLOCK)
    earlier: IntArray = ring[-2 - block][BLOCK - 1 - place]
    return earlier
