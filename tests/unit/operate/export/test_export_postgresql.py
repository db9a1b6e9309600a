"""An export into a real PostgreSQL of its own: rows once, also where the connection dies under it.

Rules: the server is Debian's (`apt install postgresql`) or one on PATH, in a folder of its own on a free port of the
loopback, as an ordinary user. `STREAM_DP_REQUIRE=postgresql` turns a missing one into a failure.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from free_ports import free_port
from unit.operate.export.export_worlds import FORMS, ROWS, bodies, changed, published

from stream_dp.client.frames import COLUMNS, TABLE, Row, rows_of
from stream_dp.errors import ReleasesMissing, UsageError, WorldError
from stream_dp.operate.exporting import UNIQUE, Newest, export_releases, target_named
from stream_dp.python.released import read_releases
from stream_dp.testing.kafka import missing

PAGE = Path(__file__).resolve().parents[4] / "docs" / "export.md"


def _programs() -> Path:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: each.parent.name)
    found = shutil.which("initdb")
    for folder in [*debian[-1:], *([Path(found).parent] if found else [])]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return missing("postgresql", "no initdb: apt install postgresql")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an empty database, whose user needs a password."""
    programs = _programs()
    ordinary = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="stream-dp-postgresql-"))
    (folder / "password").write_text("s3cret")
    folder.chmod(0o755)
    if ordinary:
        shutil.chown(folder, "postgres")
    port, data = free_port(), folder / "data"
    said = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "check": True, "cwd": "/"}
    make = [programs / "initdb", "-D", data, "-U", "ann", "-A", "scram-sha-256", "--no-sync"]
    subprocess.run([*ordinary, *make, f"--pwfile={folder / 'password'}"], **said)  # type: ignore[call-overload]
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [*ordinary, programs / "pg_ctl", "-D", data, "-w", "-t", "120"]
    log = ["-l", folder / "log", "-o", options]
    subprocess.run([*control, *log, "start"], **said)  # type: ignore[call-overload]
    try:
        yield f"postgresql://ann:s3cret@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **said)  # type: ignore[call-overload]
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def client(server: str) -> Any:
    found = await asyncpg.connect(server)
    await found.execute(f"drop table if exists {TABLE}")
    yield found
    await found.close()


async def rows_in(client: Any) -> list[tuple[Any, ...]]:
    order = ", ".join(f'{name} collate "C"' if name != "tick" else name for name in UNIQUE)
    query = f"select {', '.join(COLUMNS)} from {TABLE} order by {order}"  # noqa: S608 - ours
    return [tuple(row) for row in await client.fetch(query)]


def rows(ticks: int) -> list[Row]:
    return [row for each in bodies(range(ticks)) for row in rows_of("shop", each)]


def wanted(ticks: range) -> list[tuple[Any, ...]]:
    places = [COLUMNS.index(name) for name in UNIQUE]
    return sorted(map(tuple, rows(ticks.stop)), key=lambda row: [row[place] for place in places])


async def test_rows_are_there_once(tmp_path: Path, server: str, client: Any) -> None:
    for ticks in (2, 2, 5):
        await export_releases(published(tmp_path, bodies(range(ticks))), server)
        assert await rows_in(client) == wanted(range(ticks))
    other = tmp_path / "other"
    other.mkdir()
    second = published(other, bodies(range(1)))
    second.write_text(second.read_text().replace("name: shop", "name: other"))
    (other / "shop.releases.jsonl").rename(other / "other.releases.jsonl")
    await export_releases(second, server)
    assert await client.fetchval(f"select count(*) from {TABLE}") == len(wanted(range(6)))  # noqa: S608


async def test_what_a_dashboard_asks_is_answered(tmp_path: Path, server: str, client: Any) -> None:
    """Times are times and numbers are numbers: the query of docs/export.md."""
    await export_releases(published(tmp_path, bodies(range(3))), server)
    query = PAGE.read_text().split("```sql\n")[1].split("```")[0].replace("'orders'", "'s0'")
    found = await client.fetch(query.replace("'1h'", "''"))
    assert [(row["time"].hour, row["value"], row["low"], row["high"]) for row in found] == [
        (1, 12, 8, 16), (2, 12, 8, 16), (3, 12, 8, 16),
    ]  # fmt: skip
    assert isinstance(found[0]["time"], datetime)


async def test_python_reads_the_table_and_says_which_tick_it_lacks(
    tmp_path: Path, server: str, client: Any
) -> None:
    with pytest.raises(WorldError, match="stream_dp_releases"):
        read_releases(server)
    await export_releases(published(tmp_path, bodies(range(3))), server)
    assert set(read_releases(server)) == set(rows(3))
    assert set(read_releases(server, series="s0", pipeline="shop")) == set(rows(3)[::ROWS])
    await client.execute(f"delete from {TABLE} where series = 's1' and tick = 1")  # noqa: S608
    with pytest.raises(ReleasesMissing, match="ticks of s1: 1 missing"):
        read_releases(server)
    await client.execute(f"delete from {TABLE}")  # noqa: S608
    with pytest.raises(UsageError, match="has 0 pipelines; nothing was exported yet"):
        read_releases(server)


async def test_a_dead_connection_leaves_whole_groups(
    tmp_path: Path, server: str, client: Any
) -> None:
    """The server ends the session in the middle; the next export goes on behind the last group."""
    target = target_named(server, "shop")
    assert await target.open() == -1
    await target.write(rows(1), Newest(len(FORMS) - 1))
    mine = await client.fetchval("select pg_backend_pid()")
    await client.fetch("select pg_terminate_backend(pid) from pg_stat_activity "
                       "where datname = 'postgres' and pid <> $1", mine)  # fmt: skip
    with pytest.raises(WorldError) as caught:
        await target.write(rows(2)[ROWS:], Newest(2 * len(FORMS) - 1))
    assert "s3cret" not in str(caught.value)
    await target.close()
    assert await rows_in(client) == wanted(range(1))
    await export_releases(published(tmp_path, bodies(range(3))), server)
    assert await rows_in(client) == wanted(range(3))


async def test_a_group_is_seen_whole_or_not_at_all(server: str, client: Any) -> None:
    """One number that the server has no room for, and none of its group is there."""
    target = target_named(server, "shop")
    await target.open()
    first = rows(1)
    with pytest.raises(WorldError):
        await target.write([*first, first[0]._replace(rank=2**40, tick=7)], Newest(len(FORMS)))
    await target.close()
    assert await rows_in(client) == []


async def test_rows_that_are_there_are_written_over(server: str, client: Any) -> None:
    """A copy is refused as a whole where one of its rows is there; none of them is lost and none there twice."""
    target = target_named(server, "shop")
    await target.open()
    every = rows(2)
    last = Newest(2 * len(FORMS) - 1)
    await target.write(rows(1), Newest(len(FORMS) - 1))
    await target.write([every[0]._replace(value=-1.0), *every[1:], every[-1]], last)
    found = await rows_in(client)
    assert len(found) == len(every)
    assert next(row[COLUMNS.index("value")] for row in found) == -1
    await target.write(every, last)
    await target.close()
    assert await rows_in(client) == wanted(range(2))


async def test_a_user_without_rights_writes_by_its_policies(server: str, client: Any) -> None:
    """PostgreSQL takes no copy for whom policies of rows bind: such a user inserts."""
    owner = target_named(server, "shop")
    await owner.open()
    await owner.write(rows(1), Newest(len(FORMS) - 1))
    await owner.close()
    await client.execute(
        f"create role bob login password 's3cret'; grant select, insert, update on {TABLE} to bob; "
        f"alter table {TABLE} enable row level security; "
        f"create policy own on {TABLE} using (pipeline = 'shop')"
    )
    target = target_named(server.replace("ann", "bob"), "shop")
    assert await target.open() == len(FORMS) - 1
    await target.write(rows(2), Newest(2 * len(FORMS) - 1))
    with pytest.raises(WorldError, match="row-level security"):
        await target.write([rows(1)[0]._replace(pipeline="other")], Newest(2 * len(FORMS)))
    await target.close()
    assert await rows_in(client) == wanted(range(2))


async def test_a_former_table_gets_the_version_of_each_series(
    tmp_path: Path, server: str, client: Any
) -> None:
    """Python reads it before and after; that no release is there between two versions is no gap."""
    found = [body for body in changed(bodies(range(5)), 3) if b'"tick": 2' not in body]
    first, every = (
        [row for body in each for row in rows_of("shop", body)] for each in (found[:20], found)
    )
    await export_releases(published(tmp_path, found[:20]), server)
    await client.execute(f"alter table {TABLE} drop column version")
    assert set(read_releases(server)) == set(first)
    await export_releases(published(tmp_path, found), server)
    assert set(await rows_in(client)) == set(every)
    assert set(read_releases(server, series="s0")) == {row for row in every if row.series == "s0"}
    versions = {row.tick: row.version for row in every if row.series == "s0"}
    assert versions == {0: 1, 1: 1, 3: 2, 4: 2}


async def test_a_user_who_may_not_add_the_version_learns_who_may(
    tmp_path: Path, server: str, client: Any
) -> None:
    path = published(tmp_path, bodies(range(1)))
    await export_releases(path, server)
    await client.execute(
        f"alter table {TABLE} drop column version; create role eve login password 's3cret'; "
        f"grant select, insert, update on {TABLE} to eve"
    )
    asked = server.replace("ann", "eve")
    with pytest.raises(UsageError, match="let the owner of the table run") as caught:
        await export_releases(path, asked)
    await client.execute(str(caught.value).split("`")[1])
    await export_releases(published(tmp_path, bodies(range(2))), asked)
    assert await rows_in(client) == wanted(range(2))
