"""`run` and `ledger` on a file: to the end, again, and with everything that can be wrong at the start."""

import asyncio
import json
import os
import re
import signal
import sqlite3
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from unit.cli.conftest import HORIZON, Desk

import stream_dp.cli.ledger as ledger_module
import stream_dp.cli.run as run_module
from stream_dp.adapters.sqlite import read_sealed
from stream_dp.cli.main import code_of
from stream_dp.cli.running import Run
from stream_dp.runtime.statement import read_statement
from stream_dp.testing.__main__ import app as kit

SERIES = 3


def test_a_run_to_the_end_and_once_more(desk: Desk) -> None:
    said = desk.command("run", "--until-end")
    assert (said.code, said.out) == (0, "")
    assert "clicks: 6 ticks, 18 releases" in said.err
    releases = [json.loads(line) for line in desk.releases]
    assert [r["sequence"] for r in releases] == list(range(1, SERIES * HORIZON + 1))
    assert releases[0].keys() == {
        "v",
        "sequence",
        "series",
        "tick",
        "end",
        "value",
        "band",
        "confidence",
    }
    assert releases[1]["values"].keys() == {"home", "help", "other"}
    assert releases[-1]["end"] == "2024-05-01T06:00:00Z"
    before, sealed = desk.releases, read_sealed(desk.journal)
    assert desk.command("run", "--until-end").code == 0
    assert (desk.releases, read_sealed(desk.journal)) == (before, sealed)


def test_a_terminal_shows_ticks_and_releases(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    monkeypatch.setattr(
        run_module, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100)
    )
    assert desk.command("run", "--until-end").code == 0
    assert "6 ticks, 18 releases" in screen.getvalue().replace("\x1b[1;36m", "").replace(
        "\x1b[0m", ""
    )
    assert "24" not in screen.getvalue()


@pytest.mark.usefixtures("page_first")
def test_the_page_is_served_while_it_runs(desk: Desk) -> None:
    said = desk.command("run", "--until-end", "--serve", "--port", "0")
    assert said.code == 0
    assert "The page is at http://127.0.0.1:" in said.err


def test_the_first_signal_stops_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Run.until_end

    async def and_signal(self: Run, console: Any) -> None:
        await told(self, console)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Run, "until_end", and_signal)
    assert desk.command("run").code == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_second_signal_leaves_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []

    async def signalled(_: Run, __: Any) -> None:
        for _i in range(2):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Run, "until_end", signalled)
    monkeypatch.setattr(os, "_exit", left.append)
    assert desk.command("run").code == 0
    assert left == [130]


def test_ledger(desk: Desk) -> None:
    desk.command("run", "--until-end")
    said = desk.command("ledger")
    assert said.code == 0
    assert (
        "Budget 1 (pure filter): spent 1, left 0; delta 0. Odometer so far: 1. 6 ticks, 18 releases; "
        "the journal is whole" in said.out
    )
    assert "NOT PRIVATE" not in said.out
    assert "2024-05-01T00:00:00Z" in said.out  # not cut off
    shown = json.loads(desk.command("ledger", "--json").out)
    assert shown == {
        "pipeline": "clicks", "private": True, "accepted": "", "budget": "1", "spent": "1", "left": "0", "delta": "0",
        "filter": "pure", "unit": "epsilon", "capacity": "1", "peak": "1", "analysts": [],
        "odometer": {"bound": "1", "delta": "0", "claim": shown["odometer"]["claim"]},
        "charges": [{"commit": 0, "name": "clicks: series of the first start", "epsilon": "1", "delta": "0",
                     "measure": "DP", "analyst": "", "start": 0,
                     "start_time": "2024-05-01T00:00:00Z", "end": None, "end_time": None,
                     "rule": "concurrent composition ([HSV] Thm 4.10)"}],
        "ticks": 6, "releases": 18, "journal": "whole", "derivation": shown["derivation"],
    }  # fmt: skip


def test_ledger_shows_no_exact_number(desk: Desk) -> None:
    desk.command("run", "--until-end")
    whole = json.loads(desk.command("ledger", "--json").out)
    assert whole.pop("derivation")["guarantee"]["epsilon"] == 1  # the same for all data
    shown = desk.command("ledger").out + json.dumps(whole)
    assert re.search(r"(?<!\d)24(?!\d)", shown) is None
    assert "events" not in shown


def test_a_zero_noise_journal_is_not_the_products(desk: Desk) -> None:
    assert code_of(["run", str(desk.pipeline), "--until-end", "--zero-noise"], kit) == 0
    assert json.loads(desk.releases[-3])["value"] == 24
    assert json.loads(desk.releases[-3])["not_private"] is True
    said = desk.command("run", "--until-end")
    assert said.code == 4
    assert "whether its noise is private: then False, now True" in said.err
    assert "NOT PRIVATE" in desk.command("ledger").out
    assert json.loads(desk.command("ledger", "--json").out)["private"] is False


def test_no_journal_yet(desk: Desk) -> None:
    said = desk.command("ledger")
    assert said.code == 2
    assert "no journal here; it begins with the first run" in said.err


@pytest.mark.parametrize("command", ["ledger", "run"])
@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + bytes(84)])
def test_a_foreign_file_in_its_place(desk: Desk, command: str, content: bytes) -> None:
    desk.journal.write_bytes(content)
    said = desk.command(command)
    assert said.code == 4
    assert "clicks.journal" in said.err
    assert desk.journal.read_bytes() == content


def test_an_empty_file_in_its_place(desk: Desk) -> None:
    desk.journal.write_bytes(b"")
    said = desk.command("ledger")
    assert said.code == 4
    assert "the journal is empty" in said.err


def _damage(journal: Path, statement: str, *values: Any) -> None:
    database = sqlite3.connect(journal)
    with database:
        database.execute(statement, values)
    database.close()


@pytest.mark.parametrize("command", ["ledger", "run"])
@pytest.mark.parametrize("at", [0, 8, 25, 60, -1])
def test_a_flipped_byte(desk: Desk, command: str, at: int) -> None:
    desk.command("run", "--until-end")
    sealed = bytearray(read_sealed(desk.journal)[0])
    sealed[at] ^= 0x40
    _damage(desk.journal, "UPDATE commits SET sealed = ? WHERE sequence = 0", bytes(sealed))
    said = desk.command(command, *(["--until-end"] if command == "run" else []))
    assert said.code == 4
    assert "clicks" in said.err


def test_a_journal_cut_short(desk: Desk) -> None:
    desk.command("run", "--until-end")
    _damage(desk.journal, "DELETE FROM commits WHERE sequence > 0")
    before = desk.releases
    said = desk.command("run", "--until-end")
    assert said.code == 4
    assert "older than, or differs from" in said.err
    assert desk.releases == before


def test_a_lost_journal(desk: Desk) -> None:
    desk.command("run", "--until-end")
    desk.journal.unlink()
    assert desk.command("run", "--until-end").code == 4
    assert len(desk.releases) == SERIES * HORIZON


@pytest.mark.parametrize("command", ["ledger", "run"])
def test_a_wrong_key(desk: Desk, command: str) -> None:
    desk.command("run", "--until-end")
    desk.write(key=bytes(32))
    said = desk.command(command)
    assert said.code == 4
    assert "was written with key" in said.err


@pytest.mark.parametrize("command", ["ledger", "run"])
def test_no_key(desk: Desk, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    said = desk.command(command)
    assert said.code == 2
    assert "needs an operator key: make one with" in said.err
    assert not desk.journal.exists()
    said = desk.command("run", "--until-end", "--key-file", str(desk.folder / "operator.key"))
    assert said.code == 0


def test_a_key_that_others_can_read(desk: Desk) -> None:
    (desk.folder / "operator.key").chmod(0o644)
    said = desk.command("run")
    assert said.code == 2
    assert "chmod 600" in said.err


def test_a_public_source_gets_a_key_of_its_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    desk.write("name: clicks\n", "name: clicks\npublic_data: true\n")
    assert desk.command("run", "--until-end").code == 0
    assert desk.command("run", "--until-end").code == 0
    assert len(list((desk.folder / "home").rglob("clicks.key"))) == 1


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[home, help]", "[home, faq]", "schema"),
        ("threshold: 3", "threshold: 4", "mechanisms, series"),
        ("  - {name: clicks, statistic: count, epsilon: 0.5}\n", "", "mechanisms, series"),
        ("horizon: 6", "horizon: 7", "clock, mechanisms"),
    ],
)
def test_a_changed_pipeline(desk: Desk, old: str, new: str, named: str) -> None:
    desk.command("run", "--until-end")
    desk.write(old, new)
    said = desk.command("run", "--until-end")
    assert said.code == 4
    assert "written for something else" in said.err
    assert f"changed: in the pipeline file: {named})" in said.err
    said = desk.command("ledger")
    assert said.code == 4
    assert "another version of this pipeline file" in said.err


def test_another_pipelines_journal(desk: Desk) -> None:
    desk.command("run", "--until-end")
    desk.write("name: clicks\n", "name: views\njournal: {kind: sqlite, path: clicks.journal}\n")
    said = desk.command("run", "--until-end")
    assert said.code == 4
    assert "belongs elsewhere" in said.err


def test_another_source(desk: Desk) -> None:
    desk.command("run", "--until-end")
    desk.write("clicks.csv", "other.csv")
    (desk.folder / "other.csv").write_text((desk.folder / "clicks.csv").read_text())
    said = desk.command("run", "--until-end")
    assert said.code == 4
    assert "the source: then 'clicks.csv', now 'other.csv'" in said.err


def test_an_empty_source_is_a_valid_stream(desk: Desk) -> None:
    (desk.folder / "clicks.csv").write_text("time,page\n")
    assert desk.command("run", "--until-end").code == 0
    assert len(desk.releases) == SERIES * HORIZON


@pytest.mark.parametrize(
    ("old", "new", "code", "named"),
    [
        ("epsilon: 0.5", "epsilon: 0.51", 3, "asks for epsilon 1.01; of 1 the ledger has spent 0"),
        ("epsilon: 0.5", "epsilon: -1", 2, "clicks.yaml:10:47: series[0].epsilon"),
        ("clicks.csv", "none.csv", 2, "none.csv: no such file"),
        ("version: 1", "version: 1\ncolour: red", 2, "colour: is not a known key"),
    ],
)
def test_bad_pipelines_release_nothing(
    desk: Desk, old: str, new: str, code: int, named: str
) -> None:
    desk.write(old, new)
    said = desk.command("run", "--until-end")
    assert said.code == code
    assert named in said.err
    assert desk.releases == []


def test_a_folder_that_is_missing(desk: Desk) -> None:
    desk.write("name: clicks\n", "name: clicks\njournal: {kind: sqlite, path: no/clicks.journal}\n")
    assert desk.command("run", "--until-end").code == 5


def test_charges_that_do_not_add_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.command("run", "--until-end")

    async def other(*args: Any) -> Any:
        found = await read_statement(*args)
        found.charges.append(found.charges[0])
        return found

    monkeypatch.setattr(ledger_module, "read_statement", other)
    said = desk.command("ledger")
    assert said.code == 4
    assert "charges differ" in said.err
