"""An export: writes new releases to a target, group by group."""

from collections.abc import Callable
from pathlib import Path

from stream_dp import __version__
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.public_sequence import RELEASES
from stream_dp.operate.export.rows import Row, rows_of
from stream_dp.operate.export.targets import (
    CsvFolder,
    DuckdbTable,
    Newest,
    ParquetFolder,
    PostgresqlTable,
    RowTarget,
)
from stream_dp.operate.observe.lifecycle_log import TellEvent, silent
from stream_dp.operate.published_bodies import published
from stream_dp.pipeline.yaml import load

_ROWS = 10_000
FORMS = "postgresql://USER@HOST/DATABASE, duckdb:FILE, parquet:FOLDER or csv:FOLDER"


def target_named(address: str, pipeline: str) -> RowTarget:
    """Return the target at an address.

    Raises:
        UsageError: the address has none of the `FORMS`.
    """
    kind, _, rest = address.partition(":")
    if kind in ("postgresql", "postgres") and rest.startswith("//"):
        return PostgresqlTable(address, pipeline)
    if rest and kind == "duckdb":
        return DuckdbTable(Path(rest), pipeline)
    if rest and kind == "parquet":
        return ParquetFolder(Path(rest), pipeline)
    if rest and kind == "csv":
        return CsvFolder(Path(rest), pipeline)
    raise UsageError(f"--to: must be {FORMS}")


async def export_releases(
    pipeline: Path,
    address: str,
    every: float | None = None,
    told: Callable[[str, int, int], None] = lambda place, releases, rows: None,
    tell: TellEvent = silent,
) -> None:
    """Write the releases of PIPELINE.yaml to the target at `address`, continuing after the target's last release.

    With `every`, continue for ever and look for new releases after that many seconds. After each group, `told`
    receives the target's place and the numbers of releases and rows written so far; `tell` receives phases only.

    Raises:
        UsageError: the address is not a target, or the pipeline has no releases yet.
        FailClosed: the target holds other releases than the published ones; or as `published`.
        WorldError: as `published` and `RowTarget`.
    """
    spec = load(pipeline)
    target = target_named(address, spec.name)
    try:
        tell("starting", pipeline=spec.name, version=__version__)
        beyond = await target.open()
        group, continued = _Group(target, told), Continued(target, spec.name, beyond)
        async for bodies in published(spec, beyond - 1, every):
            for body in bodies:
                number = await continued.taken(body)
                if number > beyond:
                    group.add(rows_of(spec.name, body), Newest.at(number, body))
            if not bodies:
                continued.all_seen()
            if not bodies or len(group.rows) >= _ROWS:
                await group.hand_over()
    finally:
        await target.close()


class Continued:
    """Checks that the published releases continue the target's: a topic may be made again, or a name used twice."""

    def __init__(self, target: RowTarget, pipeline: str, beyond: int) -> None:
        self._target, self._pipeline, self._beyond = target, pipeline, beyond
        self._last = -1

    async def taken(self, body: bytes) -> int:
        """Return the sequence number of the next body.

        Raises:
            FailClosed: the body does not come after the one before, or the target has another release of its
            sequence.
        """
        number = RELEASES.number_of(body, self._pipeline)
        known = number == self._beyond
        if number <= self._last or (known and not await self._target.holds(number, body)):
            raise self._other()
        self._last = number
        return number

    def all_seen(self) -> None:
        """Note that all published releases were read.

        Raises:
            FailClosed: the target is ahead of all that was published.
        """
        if 0 <= self._last < self._beyond:
            raise self._other()

    def _other(self) -> FailClosed:
        return FailClosed(
            f"{self._target.place}: its releases of {self._pipeline} are not those that are published now: they are of "
            "another pipeline of this name, or of a topic that was made anew; choose another target, or move that away"
        )


class _Group:
    """Rows that are written together."""

    def __init__(self, target: RowTarget, told: Callable[[str, int, int], None]) -> None:
        self._target, self._told = target, told
        self._releases = self._rows = 0
        self._empty()

    def _empty(self) -> None:
        self.rows: list[Row] = []
        self.releases, self._last = 0, Newest()

    def add(self, rows: list[Row], last: Newest) -> None:
        """Add the rows of the next release."""
        self.rows += rows
        self.releases += 1
        self._last = last

    async def hand_over(self) -> None:
        """Write the collected rows, if there are any."""
        if self.releases:
            await self._target.write(self.rows, self._last)
        self._releases += self.releases
        self._rows += len(self.rows)
        self._told(self._target.place, self._releases, self._rows)
        self._empty()
