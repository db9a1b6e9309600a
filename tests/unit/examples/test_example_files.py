"""The example's folder is found in a checkout and in an installation."""

from importlib.metadata import PackagePath
from pathlib import Path

import pytest

from stream_dp.errors import WorldError
from stream_dp.operate import demo


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
