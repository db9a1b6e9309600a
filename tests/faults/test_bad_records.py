"""Junk among the events of a file: dead letters with their reasons, and nothing else changes."""

import json
import random
from pathlib import Path

import pytest

from faults.cases import HOUR, START, Case, document, expectation, flights, write
from faults.evidence import Letter, csv_events, milliseconds
from faults.junk import thousand

TICKS = 60


def test_a_thousand_junk_records_are_a_thousand_dead_letters(tmp_path: Path) -> None:
    clean = flights(tmp_path / "clean", TICKS)
    clean.finish("--zero-noise")
    assert clean.findings() == []

    lines: list[tuple[bytes, Letter | None]] = [
        (json.dumps(event.fields).encode(), None) for event in clean.events
    ]
    chance = random.Random(8)
    for junk in thousand():
        letter = Letter(0, 0, junk.reason, junk.field)
        lines.insert(chance.randrange(len(lines)), (junk.payload or b"", letter))
    folder = tmp_path / "junk"
    folder.mkdir()
    (folder / "slice.jsonl").write_bytes(b"".join(payload + b"\n" for payload, _ in lines))
    write(folder, document("flights", TICKS, 6, {"kind": "file", "path": "slice.jsonl"}))
    numbered = [letter and letter._replace(offset=at) for at, (_, letter) in enumerate(lines, 1)]
    letters = [letter for letter in numbered if letter is not None]
    dirty = Case(folder, expectation("flights", TICKS, letters=letters), clean.events)
    done = dirty.run("--until-end", "--zero-noise")

    assert done.returncode == 0, done.stderr
    assert "Warning: more records than `warn_dead` allows" in done.stderr
    assert not {"1000", "1,000", f"{len(lines)}", f"{len(lines):,}"} & set(done.stderr.split())
    assert dirty.findings() == []
    assert dirty.releases.read_bytes() == clean.releases.read_bytes()


def test_another_destination_counts_in_other_and_an_empty_category_is_dead(tmp_path: Path) -> None:
    case = flights(tmp_path, 10)
    with (tmp_path / "slice.csv").open("a") as file:
        file.write("2013-01-01T12:00:00Z,UA,nowhere,\n2013-01-01T13:00:00Z,,,7\n")
    lines = (tmp_path / "slice.csv").read_text().count("\n")
    letters = (Letter(0, lines, "wrong_type", "airline"),)
    events = csv_events(tmp_path / "slice.csv", milliseconds(START), HOUR)[:-1]
    case = Case(tmp_path, case.expected, tuple(events)).expecting(letters=letters)
    case.finish("--zero-noise")
    assert case.findings() == []


@pytest.mark.parametrize("kit", [True, False], ids=["without noise", "product"])
def test_an_empty_file_releases_every_tick(tmp_path: Path, kit: bool) -> None:
    case = flights(tmp_path, 30)
    (tmp_path / "slice.csv").write_text("time,airline,destination,delay\n")
    case = Case(tmp_path, case.expected, ()).expecting(private=not kit, zero_noise=kit)
    done = case.run("--until-end", *(["--zero-noise"] if kit else []), kit=kit)
    assert done.returncode == 0, done.stderr
    assert case.findings() == []
    assert len(case.releases.read_bytes().splitlines()) == 30 * 5
