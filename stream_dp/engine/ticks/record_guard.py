"""What stands between the source and the rows: which records of a batch count at all.

Rules: a guard decides by a record's user, by that user's own records and by what is public. Its memory stands at the
cut. This file knows no field and no hash.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stream_dp.engine.memories.identifiers import ByColumn
from stream_dp.engine.memories.user_memory import Used, UserMemory
from stream_dp.engine.ports import Batch


@dataclass(frozen=True, slots=True, repr=False)
class Admitted:
    """A batch without the records that do not count; what the others use of their users' caps; how many were capped.

    What cannot say whose it is stands among the batch's refused records. `users` are, by tick, those who are counted in
    columns of their own: who had an event, and whose was capped.
    """

    batch: Batch
    used: Sequence[Used] = ()
    capped: int = 0
    users: Mapping[int, ByColumn] = field(default_factory=dict)


class RecordGuard(Protocol):
    """Decides which records count; nothing that a payload holds raises."""

    @property
    def memory(self) -> UserMemory:
        """What it remembers."""
        ...

    def begin(self, partitions: Sequence[int]) -> None:
        """Guard a source which had these partitions at the first start.

        Raises:
            UsageError: it cannot tell a user's records there.
        """
        ...

    def admit(self, batch: Batch, passed: int) -> Admitted:
        """Decide a batch of a partition where the ticks up to `passed` are over: records of those are late."""
        ...


class EveryRecord:
    """Admits every record: where single events are protected."""

    def __init__(self) -> None:
        self.memory = UserMemory(1, None)

    def begin(self, partitions: Sequence[int]) -> None:
        """Do nothing."""

    def admit(self, batch: Batch, passed: int) -> Admitted:
        """Admit all of it."""
        return Admitted(batch)
