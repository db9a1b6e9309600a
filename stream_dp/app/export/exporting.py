"""An export: what is published and not yet in the target goes there, group by group."""

from collections.abc import Callable
from pathlib import Path

from stream_dp.app.export.databases import DuckdbTable, PostgresqlTable
from stream_dp.app.export.row_files import CsvFolder, ParquetFolder
from stream_dp.app.export.row_target import RowTarget
from stream_dp.app.export.rows import Row, rows_of
from stream_dp.app.published_bodies import published
from stream_dp.errors import UsageError
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.public_sequence import RELEASES

_ROWS = 10_000
FORMS = "postgresql://USER@HOST/DATABASE, duckdb:FILE, parquet:FOLDER or csv:FOLDER"


def target_named(address: str, pipeline: str) -> RowTarget:
    """Return the target at an address.

    Raises:
        UsageError: it is none of `FORMS`.
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
) -> None:
    """Write what PIPELINE.yaml has released to the target at `address`, from where it ends on.

    With `every` it goes on for ever, and looks for more every so many seconds. `told` learns after each group the
    target's place, and how many releases and rows were written so far.

    Raises:
        UsageError: the target is none, or the pipeline has no releases yet.
        FailClosed, WorldError: as `published` and `RowTarget`.
    """
    spec = load(pipeline)
    target = target_named(address, spec.name)
    try:
        beyond = await target.open()
        group = _Group(target, told)
        async for bodies in published(spec, beyond, every):
            for body in bodies:
                group.rows += rows_of(spec.name, body)
                group.releases += 1
                group.last = RELEASES.number_of(body, spec.name)
            if not bodies or len(group.rows) >= _ROWS:
                await group.hand_over()
        await group.hand_over()
    finally:
        await target.close()


class _Group:
    """Rows that are handed over together."""

    def __init__(self, target: RowTarget, told: Callable[[str, int, int], None]) -> None:
        self._target, self._told = target, told
        self._releases = self._rows = 0
        self._empty()

    def _empty(self) -> None:
        self.rows: list[Row] = []
        self.releases, self.last = 0, -1

    async def hand_over(self) -> None:
        """Write them, if there are any."""
        if self.releases:
            await self._target.write(self.rows, self.last)
        self._releases += self.releases
        self._rows += len(self.rows)
        self._told(self._target.place, self._releases, self._rows)
        self._empty()
