"""The guard between the source and the rows: which records of a batch count at all.

Rules: a guard decides by a record's user, by that user's own records and by public values. Its memory stands at the
cut. This file knows no field and no hash.
"""

from collections.abc import Sequence
from typing import Protocol

from stream_dp.engine.memories.user_memory import UserMemory
from stream_dp.engine.ports import Batch


class RecordGuard(Protocol):
    """Decides which records count; nothing that a payload holds raises."""

    @property
    def memory(self) -> UserMemory:
        """The guard's memory of users."""
        ...

    def begin(self, partitions: Sequence[int]) -> None:
        """Start to guard a source that had these partitions at the first start.

        Raises:
            UsageError: it cannot tell which partition holds a user's records.
        """
        ...

    def admit(self, batch: Batch, passed: int) -> Batch:
        """Return the batch without records that do not count, and with the cap that the others use.

        The ticks up to `passed` are over in the batch's partition, so their records are late.
        """
        ...


class EveryRecord:
    """Admits every record; for pipelines that protect single events."""

    def __init__(self) -> None:
        self.memory = UserMemory(1, None)

    def begin(self, partitions: Sequence[int]) -> None:
        """Do nothing."""

    def admit(self, batch: Batch, passed: int) -> Batch:
        """Return the batch unchanged."""
        return batch
