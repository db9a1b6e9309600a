"""The list of jars, and that a wrong file never gets through."""

import hashlib
import sys
from pathlib import Path

import pytest

from stream_dp.broker import jars as module
from stream_dp.broker.jars import Jar, listed_jars, parse_jars, resolve_jars
from stream_dp.errors import StreamDPError, UsageError, WorldError

GOOD = b"the right bytes"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(GOOD).hexdigest())


class FakeMaven:
    """The part of jgo's MavenContext that is used, writing given bytes instead of downloading."""

    def __init__(self, cache: Path, answer: bytes | Exception) -> None:
        self.cache = cache
        self.answer = answer

    def project(self, _group: str, _artifact: str) -> "FakeMaven":
        return self

    def at_version(self, _version: str) -> "FakeMaven":
        return self

    def artifact(self) -> "FakeMaven":
        return self

    def resolve(self) -> Path:
        if isinstance(self.answer, Exception):
            raise self.answer
        path = self.cache / "download.jar"
        path.write_bytes(self.answer)
        return path


def repository(monkeypatch: pytest.MonkeyPatch, answer: bytes | Exception) -> None:
    monkeypatch.setattr(module, "_maven", lambda cache: FakeMaven(cache, answer))


def test_the_list_is_the_pinned_kafka() -> None:
    jars = listed_jars()
    assert len(jars) == len({jar.file_name for jar in jars}) == 47
    assert {j.version for j in jars if j.group == "org.apache.kafka"} == {module.KAFKA_VERSION}


@pytest.mark.parametrize("line", ["a:b sha256:00", "a:b:1", "a:b:1 sha256:" + "Z" * 64])
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(StreamDPError, match="a:b"):
        parse_jars(line)


def test_fetches_once_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(monkeypatch, GOOD)
    calls: list[tuple[int, int]] = []
    paths = resolve_jars(lambda *c: calls.append(c), folder=tmp_path / "new", jars=[JAR])
    assert [p.read_bytes() for p in paths] == [GOOD]
    repository(monkeypatch, OSError("no network"))
    assert resolve_jars(lambda *c: calls.append(c), folder=tmp_path / "new", jars=[JAR]) == paths
    assert calls == [(1, 1)]
    assert list((tmp_path / "new").iterdir()) == paths  # no staging folder stays


def test_a_wrong_download_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(monkeypatch, b"something else")
    with pytest.raises(WorldError, match=r"org\.example:thing:1\.0"):
        resolve_jars(folder=tmp_path, jars=[JAR])
    assert list(tmp_path.iterdir()) == []


def test_a_changed_file_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(monkeypatch, GOOD)
    held = tmp_path / JAR.file_name
    held.write_bytes(b"the wrong bytes")
    with pytest.raises(WorldError, match=str(held)):
        resolve_jars(folder=tmp_path, jars=[JAR])
    assert not held.exists()
    assert resolve_jars(folder=tmp_path, jars=[JAR]) == [held]


@pytest.mark.parametrize("error", [ConnectionError("host"), RuntimeError("not in {'central': …}")])
def test_offline_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    repository(monkeypatch, error)
    with pytest.raises(WorldError, match=r"org\.example:thing:1\.0") as caught:
        resolve_jars(folder=tmp_path, jars=[JAR])
    assert "\n" not in str(caught.value)
    assert str(error) not in str(caught.value)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorldError, match="file"):
        resolve_jars(folder=tmp_path / "file" / "jars", jars=[JAR])


def test_without_jgo_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(UsageError, match=r"stream_dp\[broker\]"):
        resolve_jars(folder=tmp_path, jars=[JAR])
