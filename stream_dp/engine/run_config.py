"""The configuration of a run: what an engine runs, fixed before the first event and public."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from stream_dp.core.time import TickGrid
from stream_dp.engine.series import MadeSeries, Registry, Series
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Applied, Charge, Header

GROUP = 100
"""How many ticks at most share a private commit when the engine is behind."""
PUBLIC_BYTES = 512 * 1024
"""The largest size of a public block of overdue ticks, roughly; a larger declared block is a block of its own."""
COMMIT_BYTES = 4_000_000
"""The largest size of a private commit of several ticks, roughly; a larger tick gets a commit of its own."""
READ_AGAIN_MS = 10_000
"""The longest tick whose records are read again for a change, so that the change begins with the open tick."""
_COUNT_BYTES = 9


@dataclass(frozen=True, slots=True)
class PublicBlocks:
    """The ticks with which public blocks end: every `size`-th one, and the last one before the horizon.

    Ticks up to `overdue` should have been public when the engine started (-1: none). Before it a block ends with every
    n-th tick (`together`), a multiple of `size`; the last of these larger blocks ends with `overdue`, which ends a
    declared one too.

    What decides is public before such a tick is: the moment of the start, the file, and the answers that created,
    changed or halted series. So neighbouring streams have the same blocks, whatever waits and however fast it is read.
    """

    size: int = 1
    horizon: int | None = None
    overdue: int = -1

    def ends(
        self, ticks: Iterable[int], releasing: Callable[[], Iterable[Series | MadeSeries]]
    ) -> list[int]:
        """Return those of these ticks with which a block ends; `releasing` returns the series that have releases."""
        ticks = list(ticks)
        overdue = bool(ticks) and ticks[0] < self.overdue
        together = self.together(releasing()) if overdue else self.size
        return [
            tick
            for tick in ticks
            if (tick + 1) % (together if tick < self.overdue else self.size) == 0
            or tick + 1 == self.horizon
        ]

    def together(self, series: Iterable[Series | MadeSeries]) -> int:
        """Return n for overdue ticks with releases of `series`: so many as take at most `PUBLIC_BYTES`, by the largest
        sizes of releases. All n divide one number of ticks, so that a block is never longer, whatever series come.
        """
        bytes_ = self.size * sum(released.most_bytes for released in series)
        room, most = PUBLIC_BYTES // max(1, bytes_), max(1, GROUP // self.size)
        fits = (blocks for blocks in range(most, 0, -1) if most % blocks == 0 and blocks <= room)
        return self.size * next(fits, 1)


@dataclass(frozen=True, slots=True)
class FileChange:
    """A changed pipeline file that a start applies, if the journal is still that of the file with fingerprint `before`.

    `applied` is what the journal records of it, at whichever tick; the live series `halted` end, and those of the
    definitions `created` begin, all paid by the main ledger. Those of the definitions `changed` begin too, each as the
    version of a name that a series which ends had until then.
    """

    before: str
    applied: Applied
    halted: tuple[str, ...] = ()
    created: tuple[bytes, ...] = ()
    changed: tuple[tuple[bytes, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The series of the first start with their charges, on a tick grid; times in ms.

    A public block has `block` ticks and waits for `hold` after its end. `parts` are fingerprints that say what changed.
    `accepted` names a new guarantee on a source that was seen before. At most `group` ticks share a commit when the
    engine is behind. `made` are series made of the releases of `series`. Where a tick is longer than `read_again`, a
    created series, and a watch that begins or ends, does so with the next tick. `file` is the fingerprint of the
    pipeline file as it is now, `first_file` of that with which the journal begins ("" of both: any), and `text` returns
    what the file says; `change` is to be applied first, and `applied` the
    fingerprint of a file that an attempt before has applied ("": none).
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
    file: str = ""
    first_file: str = ""
    text: Callable[[], bytes] = bytes
    change: FileChange | None = None
    applied: str = ""

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

    def blocks(self, grid: TickGrid, now: int) -> PublicBlocks:
        """Return the public blocks of an engine that starts at the moment `now`. No tick of a replay is overdue: its
        times are those of its records.
        """
        passed = -1 if self.hold is None else grid.passed(now - self.hold)
        if self.horizon is not None and passed + 1 >= self.horizon:
            overdue = self.horizon - 1
        else:
            overdue = max(-1, (passed + 1) // self.block * self.block - 1)
        return PublicBlocks(self.block, self.horizon, overdue)

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

    def pending(self, applied: Applied | None) -> FileChange | None:
        """Return the change that is still to be applied, where the journal's last one is `applied`; raise `FailClosed`
        if the journal is of another file than this one.
        """
        now, change = self.first_file if applied is None else applied.fingerprint, self.change
        if now in (self.file, self.applied):
            return None
        if change is not None and now == change.before:
            return change
        raise another_file(self.pipeline)


def another_file(pipeline: str) -> FailClosed:
    return FailClosed(
        f"the journal of {pipeline} goes on with another pipeline file, which was applied to it: start it with that "
        "one. `stream-dp plan FILE --against running` says what this one would change, `stream-dp run FILE --apply` "
        "applies it"
    )
