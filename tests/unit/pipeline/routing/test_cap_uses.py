"""Who was active and who was cut off: each user once in a tick, of records that would count."""

import numpy as np

from stream_dp.pipeline.layout import Slot
from stream_dp.pipeline.user_guard import CapUses

RECORDS = [
    # high, low, tick, whether it would count, and whether it does
    (1, 1, 4, True, True), (1, 2, 4, True, False), (1, 1, 4, True, True), (2, 1, 4, True, True),
    (3, 3, 4, False, False), (1, 2, 5, True, False), (1, 2, 5, True, False), (1, 1, 5, False, False),
]  # fmt: skip


def test_each_user_is_told_once_by_tick_and_column() -> None:
    high, low, ticks, counting, kept = (np.array(column) for column in zip(*RECORDS, strict=True))
    users = np.stack([high, low], axis=1).astype(np.uint64)
    found = CapUses([Slot(3, ("active", "cut"))]).of(users, ticks, counting, kept)
    assert {
        tick: {column: hashes.tolist() for column, hashes in columns.items()}
        for tick, columns in found.items()
    } == {4: {3: [[1, 1], [1, 2], [2, 1]], 4: [[1, 2]]}, 5: {3: [[1, 2]], 4: [[1, 2]]}}
