"""Releases read from where they are published: a file, a topic, or the table that `stream-dp export` writes.

Rules: everything read is public; no key is needed. What is missing in between is an error: releases are numbered
without gaps, and a series has a release for each tick.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from stream_dp.client.frames import COLUMNS, HAS_VERSION, TABLE, ReleaseTable, Row, rows_of
from stream_dp.errors import FailClosed, ReleasesMissing, UsageError, WorldError
from stream_dp.journal.public_sequence import RELEASES
from stream_dp.journal.release import ReleaseReader, read_head
from stream_dp.operate.published_bodies import of_file, of_topic, published
from stream_dp.operate.run.settings import settings_at
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

_T = TypeVar("_T")
_FORMS = "a file of releases, a pipeline file (.yaml), kafka://HOST:PORT/NAME or postgresql://USER@HOST/DATABASE"


def read_releases(source: str | Path, *, series: str = "", pipeline: str = "") -> ReleaseTable:
    """Return what was published so far, as rows.

    Parameters
    ----------
    source : str or Path
        A file of releases; a pipeline file (.yaml), whose file or topic is read, with its logins;
        ``kafka://HOST:PORT/NAME``, the topic of the pipeline NAME; or ``postgresql://USER@HOST/DATABASE``, the table of
        `stream-dp export`.
    series : str, optional
        The only series whose rows are returned.
    pipeline : str, optional
        Of a table with several pipelines: the name of one.

    Raises
    ------
    ReleasesMissing
        Releases are missing between others. Files and topics show this by sequence numbers, a table by ticks; a table
        has no row of an alert that did not fire, so alerts are not checked there.
    UsageError
        The source is none of these, or has no releases.
    WorldError
        The source cannot be read.
    FailClosed
        The source holds something that is not a release.
    """
    address, suffix = str(source), Path(source).suffix
    kind, marked, _ = address.partition("://")
    if kind in {"postgresql", "postgres"} and marked:
        rows = _run(_of_postgresql(address, pipeline, series))
        _require_ticks(rows, f"the table {TABLE}")
        return ReleaseTable(rows)
    if kind == "kafka" and marked:
        parts = urlsplit(address)
        name = parts.path.strip("/").removesuffix(f".{RELEASES.name}")
        if not parts.netloc or not name:
            raise UsageError(f"source: must be {_FORMS}")
        topic = f"{name}.{RELEASES.name}"
        bodies = of_topic(settings_at(parts.netloc, None), topic, -1, None)
        return ReleaseTable(_run(_rows(bodies, name, {}, f"topic {topic}", series)))
    if marked:
        raise UsageError(f"source: must be {_FORMS}")
    if suffix in {".yaml", ".yml"}:
        built = build(load(Path(source)))
        bodies, name = published(built.spec), built.spec.name
        return ReleaseTable(_run(_rows(bodies, name, built.keys, f"releases of {name}", series)))
    path = Path(source)
    name = path.name.partition(f".{RELEASES.name}")[0].removesuffix(suffix)
    return ReleaseTable(_run(_rows(of_file(path, None, None), name, {}, str(path), series)))


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of `work`, on a thread: in a notebook this one has an event loop already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _rows(
    groups: AsyncIterator[list[bytes]],
    pipeline: str,
    keys: Mapping[str, Sequence[str]],
    place: str,
    series: str,
) -> list[Row]:
    reader, rows, last = ReleaseReader(keys), list[Row](), None
    async for bodies in groups:
        for body in bodies:
            head = read_head(body, f"{place}: a line")
            number = head.sequence
            if last is not None and number <= last:
                raise FailClosed(f"{place}: release {number} comes after release {last}")
            if last is not None and number > last + 1:
                raise ReleasesMissing(last + 1, number - 1, f"{place}: releases")
            last = number
            if series in ("", head.series):
                rows += rows_of(pipeline, body, reader.read)
    return rows


async def _of_postgresql(address: str, pipeline: str, series: str) -> list[Row]:
    try:
        import asyncpg
    except ImportError:
        raise UsageError("PostgreSQL needs asyncpg: pip install 'stream_dp[export]'") from None
    errors = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)
    try:
        client = await asyncpg.connect(address, timeout=30)
        try:
            name = pipeline or await _only_pipeline(client)
            columns = COLUMNS if await client.fetchval(HAS_VERSION) else COLUMNS[:-1]
            query = (
                f"select {', '.join(columns)} from {TABLE} "  # noqa: S608 - ours
                "where pipeline = $1 and $2 in ('', series) order by sequence, ctid"
            )
            return [Row(*row) for row in await client.fetch(query, name, series)]
        finally:
            await client.close(timeout=10)
    except ValueError:
        raise UsageError(f"source: must be {_FORMS}") from None
    except errors as error:
        raise WorldError(f"the table {TABLE}: {type(error).__name__}: {error}") from None


async def _only_pipeline(client: Any) -> str:
    found = await client.fetch(f"select distinct pipeline from {TABLE} order by 1")  # noqa: S608 - ours
    names = [str(row[0]) for row in found]
    if len(names) != 1:
        there = f"name one: {', '.join(names)}" if names else "nothing was exported yet"
        raise UsageError(f"pipeline: the table {TABLE} has {len(names)} pipelines; {there}")
    return names[0]


def _require_ticks(rows: Iterable[Row], place: str) -> None:
    """Raise ReleasesMissing where a series has no row of a tick between others.

    Alerts have none where none fired. Between two versions of a series there may be ticks without a release.
    """
    ticks: dict[tuple[str, str, int], set[int]] = {}
    for row in rows:
        if row.kind != "fired":
            ticks.setdefault((row.series, row.time_window, row.version), set()).add(row.tick)
    for (series, _, _), there in ticks.items():
        for tick, following in pairwise(sorted(there)):
            if following > tick + 1:
                raise ReleasesMissing(tick + 1, following - 1, f"{place}: ticks of {series}")
