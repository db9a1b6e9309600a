"""The list of jars, and that a wrong file never gets through."""

import hashlib
import sys
import time
from pathlib import Path

import pytest

from stream_dp.broker import jars as module
from stream_dp.broker.jars import Jar, listed_jars, parse_jars, resolve_jars
from stream_dp.errors import StreamDPError, UsageError, WorldError

GOOD = b"the right bytes"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(GOOD).hexdigest())


class FakeMaven:
    """The part of jgo's MavenContext that is used, writing given bytes instead of downloading."""

    def __init__(self, cache: Path, *answers: bytes | Exception) -> None:
        self.cache = cache
        self.answers = list(answers)

    def project(self, _group: str, _artifact: str) -> "FakeMaven":
        return self

    def at_version(self, _version: str) -> "FakeMaven":
        return self

    def artifact(self) -> "FakeMaven":
        return self

    def resolve(self) -> Path:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        path = self.cache / "download.jar"
        path.write_bytes(answer)
        return path


def repository(monkeypatch: pytest.MonkeyPatch, *answers: bytes | Exception) -> None:
    """What is answered, one after the other, the last for ever."""
    monkeypatch.setattr(module, "_maven", lambda cache: FakeMaven(cache, *answers))


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited; nobody waits."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


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
    calls: list[tuple[str | int, ...]] = []
    paths = resolve_jars(lambda *c: calls.append(c), folder=tmp_path / "new", jars=[JAR])
    assert [p.read_bytes() for p in paths] == [GOOD]
    repository(monkeypatch, OSError("no network"))
    assert resolve_jars(lambda *c: calls.append(c), folder=tmp_path / "new", jars=[JAR]) == paths
    assert calls == [("Fetching Apache Kafka", 1, 1, "file")]
    assert list((tmp_path / "new").iterdir()) == paths  # no staging folder stays


def test_a_network_that_is_gone_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    gone = ConnectionError("Temporary failure in name resolution")
    repository(monkeypatch, gone, gone, GOOD)
    assert [path.read_bytes() for path in resolve_jars(folder=tmp_path, jars=[JAR])] == [GOOD]
    assert waits == [1, 3]
    repository(monkeypatch, gone)
    with pytest.raises(WorldError, match="check the network"):
        resolve_jars(folder=tmp_path / "new", jars=[JAR])
    assert waits[2:] == [1, 3, 9]


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
