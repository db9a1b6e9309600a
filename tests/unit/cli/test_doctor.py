"""`doctor` without a broker: key, journal, folders, mark, and a Kafka that nobody answers for."""

import json
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from unit.cli.conftest import LiveSeriesService

from stream_dp.kafka.log.append_clock import Difference
from stream_dp.operate.doctor import Level, judged

KAFKA = """source:
  kind: kafka
  topic: clicks
  bootstrap: "127.0.0.1:1,no.such.name.invalid:9092"
  security: {protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: engine, password_file: password}
"""
Usage = namedtuple("Usage", "total used free")


def not_well(live_series: LiveSeriesService) -> tuple[int, dict[str, str]]:
    """The exit code, and what is not well: the level of each."""
    said = live_series.command("doctor", "--json")
    checks = json.loads(said.out)["checks"]
    return said.code, {one["about"]: one["level"] for one in checks if one["level"] != "ok"}


def test_all_is_well_before_and_after_a_run(live_series: LiveSeriesService) -> None:
    said = live_series.command("doctor")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0] == (
        "         ok  operator's key: is there, and no one else may read it"
    )
    assert not_well(live_series) == (0, {})
    assert not live_series.journal.exists()
    assert not (live_series.folder / "home").exists()
    assert live_series.command("run", "--until-end").code == 0
    assert not_well(live_series) == (0, {})


def test_a_key_that_others_may_read_and_one_of_another_journal(
    live_series: LiveSeriesService,
) -> None:
    assert live_series.command("run", "--until-end").code == 0
    (live_series.folder / "operator.key").chmod(0o644)
    assert not_well(live_series) == (4, {"operator's key": "wrong"})
    assert "-> the operator key" in live_series.command("doctor").out
    live_series.write(key=b"x" * 32)
    assert not_well(live_series) == (4, {"journal": "wrong"})
    live_series.write("epsilon: 0.5", "epsilon: 0.4")
    assert not_well(live_series) == (4, {"journal": "wrong"})


def test_a_missing_mark_of_a_journal_that_is_there(live_series: LiveSeriesService) -> None:
    assert live_series.command("run", "--until-end").code == 0
    shutil.rmtree(live_series.folder / "home")
    assert not_well(live_series) == (0, {"high-water mark": "warning"})


@pytest.mark.parametrize(
    ("free", "level", "code"), [(10 << 20, "wrong", 5), (500 << 20, "warning", 0), (2 << 30, "", 0)]
)
def test_space(
    live_series: LiveSeriesService,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    level: str,
    code: int,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free))
    found, levels = not_well(live_series)
    assert (found, set(levels.values())) == (code, {level} if level else set())


def test_a_folder_that_may_not_be_written(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, mode: int) -> bool:
        return mode == os.R_OK

    monkeypatch.setattr("os.access", denied)
    code, levels = not_well(live_series)
    assert (code, set(levels.values())) == (5, {"wrong"})
    assert all(about.startswith("folder ") for about in levels)


def test_a_broken_file_is_not_looked_at_further(live_series: LiveSeriesService) -> None:
    live_series.write("epsilon: 0.25}", "epsilon: none}")
    said = live_series.command("doctor")
    assert (said.code, said.out) == (2, "")
    assert "series[2].epsilon" in said.err


def test_a_kafka_that_cannot_be_reached_says_why_for_each_address(
    live_series: LiveSeriesService,
) -> None:
    live_series.write("source: {kind: file, path: clicks.csv}\n", KAFKA)
    password = live_series.folder / "password"
    assert not_well(live_series) == (5, {"source.security": "warning", "cluster": "wrong"})
    assert f"security.password_file {password} cannot be read" in live_series.command("doctor").out
    password.write_text("swordfish")
    password.chmod(0o600)
    said = live_series.command("doctor")
    assert said.code == 5
    assert "swordfish" not in said.out
    lines = said.out.splitlines()
    assert "      wrong  broker 127.0.0.1:1: nothing listens there" in lines
    assert "      wrong  broker no.such.name.invalid:9092: the name is not known" in lines


@pytest.mark.parametrize(
    ("least", "most", "level"),
    [
        (-3, 4, Level.OK),
        (-900, 900, Level.OK),  # an answer that took long says nothing
        (130, 140, Level.WARNING),
        (-140, -130, Level.WARNING),
        (260, 262, Level.WRONG),
        (-262, -260, Level.WRONG),
    ],
)
def test_a_difference_of_clocks_counts_as_far_as_it_is_sure(
    least: int, most: int, level: Level
) -> None:
    assert judged([Difference(0, 1), Difference(least, most)], 250).level is level
