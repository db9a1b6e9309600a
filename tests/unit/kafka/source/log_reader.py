"""A consumer of whole batches over a log on paper, for what reads one partition and never waits."""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from unit.kafka.source.record_worlds import Log

from stream_dp.kafka.source.record_batches import RecordBatch

PLACE = ("topic", 0)
T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits; much cheaper than an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


class LogReader:
    """Gives `most` bytes of the log or one batch at a time, each time behind what it gave before."""

    def __init__(self, log: Log, most: int) -> None:
        self.assigned: list[Any] = []
        self.position: int | None = None
        self._log = log
        self._most = most

    def assign(self, places: Sequence[Any]) -> None:
        self.assigned = list(places)

    def unsubscribe(self) -> None:
        self.assigned = []

    def seek(self, place: Any, offset: int) -> None:
        assert self.assigned == [place]
        self.position = offset

    async def getmany(self, place: Any, **_: Any) -> dict[Any, Sequence[RecordBatch]]:
        assert self.assigned == [place]
        assert self.position is not None
        found = self._log.parsed(self.position, self._most)
        if found:
            self.position = found[-1].next
        return {place: found} if found else {}
