"""The configuration of a run: what an engine runs, fixed before the first event and public."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stream_dp.core.time import TickGrid
from stream_dp.engine.series import MadeSeries, Registry, Series
from stream_dp.journal.commit import Charge, Header, Release

GROUP = 100
"""How many ticks at most share a private commit when the engine is behind."""
COMMIT_BYTES = 4_000_000
"""The largest size of a private commit of several ticks, roughly; a larger tick gets a commit of its own."""
READ_AGAIN_MS = 10_000
"""The longest tick whose records are read again for a change, so that the change begins with the open tick."""
_COUNT_BYTES = 9


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The series of the first start with their charges, on a tick grid; times in ms.

    A public block has `block` ticks and waits for `hold` after its end. `parts` are fingerprints that say what changed.
    `accepted` names a new guarantee on a source that was seen before. At most `group` ticks share a commit when the
    engine is behind. `made` are series made of the releases of `series`. Where a tick is longer than `read_again`, a
    created series, and a watch that begins or ends, does so with the next tick.
    """

    pipeline: str
    fingerprint: str
    origin: int
    step: int
    horizon: int | None
    block: int
    hold: int | None
    private: bool
    series: tuple[Series, ...]
    charges: tuple[Charge, ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    accepted: str = ""
    group: int = GROUP
    made: tuple[MadeSeries, ...] = ()
    read_again: int = READ_AGAIN_MS

    @property
    def lead(self) -> int:
        """How many ticks after the open one a change begins: 0 or 1, decided by the declared step alone."""
        return int(self.step > self.read_again)

    @property
    def marked(self) -> "RunConfig":
        """This configuration; under the test kit's noise, one whose releases say that they are not private."""
        if self.private:
            return self
        return replace(
            self,
            series=tuple(replace(series, private=False) for series in self.series),
            made=tuple(replace(series, private=False) for series in self.made),
        )

    def registry(self) -> Registry:
        return Registry(self.series, self.made)

    def due(self, durable: Sequence[Release]) -> bool:
        return due(durable, self.block, self.horizon)

    def grid(self, origin: int) -> TickGrid:
        return TickGrid(origin, self.step, self.horizon)

    def ticks_together(self, width: int, series: Iterable[Series | MadeSeries]) -> int:
        """Return how many ticks at most share a commit, for rows of `width` entries and releases of `series`.

        Only public values decide: a row of zeros takes as much room as any other. The rest of a commit is small (dead
        letters, `dead_letters.DETAIL`) or there once (snapshot, pending rows).
        """
        size = _COUNT_BYTES * width + sum(released.most_bytes for released in series)
        return max(1, min(self.group, COMMIT_BYTES // max(1, size)))

    def header(
        self, source: str, partitions: tuple[int, ...], origin: int, key_id: str, identity: str = ""
    ) -> Header:
        return Header(
            self.pipeline, self.fingerprint, source, partitions, origin, self.private, key_id,
            parts=dict(self.parts), accepted=self.accepted, identity=identity,
        )  # fmt: skip


def end_of_block(tick: int, block: int, horizon: int | None) -> int:
    """Return the last tick of the public block that contains `tick`."""
    end = (tick // block + 1) * block - 1
    return end if horizon is None else min(end, horizon - 1)


def due(durable: Sequence[Release], block: int, horizon: int | None) -> bool:
    """Return whether durable releases, sorted by tick, hold a whole block, which should be public by now."""
    return bool(durable) and durable[-1].tick >= end_of_block(durable[0].tick, block, horizon)
