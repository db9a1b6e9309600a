"""Junk among the events of a file: dead letters with their reasons, and nothing else changes."""

import json
import random
from pathlib import Path

from faults.cases import HOUR, START, Case, document, expectation, flights, write
from faults.evidence import Letter, csv_events, milliseconds
from faults.junk import thousand

TICKS = 120


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
    letters = [
        letter._replace(offset=number)
        for number, (_, letter) in enumerate(lines, 1)
        if letter is not None
    ]
    dirty = Case(folder, expectation("flights", TICKS, letters=letters), clean.events)
    done = dirty.run("--until-end", "--zero-noise")

    starts, warning, end, over, more = done.stderr.splitlines()
    assert done.returncode == 0
    assert "flights: a new ledger; counts what slice.jsonl holds" in starts
    assert "Warning: more of the records than `warn_dead` allows" in warning
    assert end == "flights: 120 ticks, 600 releases"
    assert over == "flights: its last tick is over: messages that come from now on are not answered"
    assert "NOT PRIVATE" in more
    assert not {"1000", "1,000", f"{len(lines)}", f"{len(lines):,}"} & set(done.stderr.split())
    assert dirty.findings() == []
    assert dirty.releases.read_bytes() == clean.releases.read_bytes()


def test_a_destination_outside_of_the_domain_counts_in_other(tmp_path: Path) -> None:
    case = flights(tmp_path, 10)
    with (tmp_path / "slice.csv").open("a") as file:
        file.write("2013-01-01T12:00:00Z,UA,nowhere,\n2013-01-01T13:00:00Z,,,7\n")
    # an empty cell is null, which no category is: a dead letter
    lines = (tmp_path / "slice.csv").read_text().count("\n")
    letters = (Letter(0, lines, "wrong_type", "airline"),)
    events = csv_events(tmp_path / "slice.csv", milliseconds(START), HOUR)[:-1]
    case = Case(tmp_path, case.expected, tuple(events)).expecting(letters=letters)
    case.finish("--zero-noise")
    assert case.findings() == []


def test_an_empty_file_releases_every_tick(tmp_path: Path) -> None:
    case = flights(tmp_path, 30)
    (tmp_path / "slice.csv").write_text("time,airline,destination,delay\n")
    case = Case(tmp_path, case.expected, ())
    case.finish("--zero-noise")
    assert case.findings() == []
    assert len(case.releases.read_bytes().splitlines()) == 30 * 5


def test_the_product_releases_every_tick_of_an_empty_file(tmp_path: Path) -> None:
    case = flights(tmp_path, 30)
    (tmp_path / "slice.csv").write_text("time,airline,destination,delay\n")
    case = Case(tmp_path, case.expected, ()).expecting(private=True, zero_noise=False)
    assert case.run("--until-end", kit=False).returncode == 0
    assert case.findings() == []
