"""The memory of what was there before: a window's identifiers are forgotten, and recorded no more, when it is over."""

import msgspec
import numpy as np

from stream_dp.engine.tick_assembler import ClosedTick
from stream_dp.engine.user_memory import SeenMemory
from stream_dp.journal.dead_letters import DeadLetters

COLUMN = 0


def closed(tick: int, *identifiers: int) -> ClosedTick:
    """A tick in which these came."""
    came = np.array([[each, each] for each in identifiers], np.uint64).reshape(-1, 2)
    row = np.zeros(1, np.int64)
    return ClosedTick(tick, row, {}, {}, {}, DeadLetters(), 0, 0, arrived={COLUMN: came})


def test_a_window_is_recorded_until_its_last_tick_and_then_forgotten() -> None:
    memory, told = SeenMemory({COLUMN: 2}), []
    for tick, identifiers in enumerate([(1, 2), (2, 3), (2,), ()]):
        (counted,), written = memory.record([closed(tick, *identifiers)])
        held = memory.content()[COLUMN]
        arrived = msgspec.msgpack.decode(written) if written else {}
        told.append((int(counted.row[COLUMN]), list(arrived.get(COLUMN, {})), list(held)))
    assert told == [(2, [0], [0]), (1, [], []), (1, [1], [1]), (0, [], [])]
