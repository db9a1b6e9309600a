"""The choice of a partition for each record, by the programs that feed a topic.

Rules: the partition is a function of the record and of the partitions, so it is the same on every attempt, and
adding a record moves no other. This file knows no field.
"""

import zlib
from collections.abc import Sequence
from typing import Protocol


class Placement(Protocol):
    """Maps the payloads of records to their partitions."""

    def __call__(self, payloads: Sequence[bytes], partitions: Sequence[int]) -> Sequence[int]:
        """Return the partition of each payload, one of `partitions`; without payloads, only check `partitions`.

        Raises:
            UsageError: it cannot choose among so many partitions.
        """
        ...


def by_content(payloads: Sequence[bytes], partitions: Sequence[int]) -> list[int]:
    """Return a partition for each payload, by all that it holds.

    >>> by_content([b"a", b"b", b"a"], (3, 5))
    [5, 5, 5]
    """
    return [partitions[zlib.crc32(payload) % len(partitions)] for payload in payloads]
