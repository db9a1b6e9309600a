"""`run` and `ledger` on a file: to the end, again, and with everything that can be wrong at the start."""

import asyncio
import json
import os
import re
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from unit.cli.conftest import HORIZON, LiveSeriesService, Said

import stream_dp.cli.commands.run as run_module
import stream_dp.operate.audit.ledger_view as ledger_module
import stream_dp.operate.run.run_pipeline as page_module
from stream_dp.cli.main import code_of
from stream_dp.cli.progress_line import Line
from stream_dp.engine.history import read_summary
from stream_dp.files.sqlite import read_sealed
from stream_dp.operate.run.running import Run
from stream_dp.server.server import PageServer
from stream_dp.testing.__main__ import app as kit

SERIES = 3


def test_a_run_to_the_end_and_once_more(live_series: LiveSeriesService) -> None:
    said = live_series.command("run", "--until-end")
    assert (said.code, said.out) == (0, "")
    assert "clicks: 6 ticks, 18 releases" in said.err
    assert f"clicks: {run_module.OVER}" in said.err.splitlines()
    releases = [json.loads(line) for line in live_series.releases]
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
    before, sealed = live_series.releases, read_sealed(live_series.journal)
    again = live_series.command("run", "--until-end")
    assert again.code == 0
    assert f"clicks: {run_module.OVER}" in again.err.splitlines()
    assert (live_series.releases, read_sealed(live_series.journal)) == (before, sealed)


def test_a_terminal_shows_ticks_and_releases(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str | None] = []
    follow = Line.follow

    def following(self: Line, status: Callable[[], str | None]) -> None:
        def noted() -> str | None:
            shown.append(status())
            return shown[-1]

        follow(self, noted)

    told = Run.until_end

    async def and_looked_at(self: Run) -> None:
        await told(self)
        async with asyncio.timeout(120):
            while shown[-1:] != ["6 ticks of 6, 18 releases"]:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)

    monkeypatch.setattr(Line, "follow", following)
    monkeypatch.setattr(Run, "until_end", and_looked_at)
    said = live_series.command("run", "--until-end")
    assert said.code == 0
    text = "\n".join([*filter(None, shown), said.err])
    text = text.replace("2024-05-01T", "").replace(str(live_series.pipeline), "")
    assert re.search(r"(?<!\d)24(?!\d)", text) is None


@pytest.mark.usefixtures("page_first")
def test_the_page_is_served_while_it_runs(live_series: LiveSeriesService) -> None:
    said = live_series.command("run", "--until-end", "--serve", "--port", "0")
    assert said.code == 0
    assert "The page is at http://127.0.0.1:" in said.err


@pytest.mark.usefixtures("page_first")
def test_the_page_answers_to_the_names_that_it_is_given(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, int] = {}
    asked = asyncio.Event()

    class Asked(PageServer):
        async def start(self, host: str = "", port: int = 0) -> None:
            await super().start(host, port)
            async with httpx.AsyncClient(base_url=self.url, timeout=100) as client:
                for name in ("localhost", "dash.example.org:443", "[2001:db8::1]", "engine"):
                    answers[name] = (
                        await client.get("/healthz", headers={"host": name})
                    ).status_code
            asked.set()

    told = Run.until_end

    async def and_asked(self: Run) -> None:
        await told(self)
        await asyncio.wait_for(asked.wait(), 120)

    monkeypatch.setattr(Run, "until_end", and_asked)
    monkeypatch.setattr(page_module, "PageServer", Asked)
    names = ("--allow-host", "dash.example.org", "--allow-host", "[2001:db8::1]")
    every = ("--serve", "--port", "0", "--host", "0.0.0.0", *names)  # noqa: S104 - as in a container
    assert live_series.command("run", "--until-end", *every).code == 0
    assert answers == {
        "localhost": 200,
        "dash.example.org:443": 200,
        "[2001:db8::1]": 200,
        "engine": 421,
    }


def test_the_first_signal_stops_it(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Run.until_end

    async def and_signal(self: Run) -> None:
        await told(self)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Run, "until_end", and_signal)
    assert live_series.command("run").code == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_second_signal_leaves_at_once(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []

    async def signalled(_: Run) -> None:
        for _i in range(2):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Run, "until_end", signalled)
    monkeypatch.setattr(os, "_exit", left.append)
    assert live_series.command("run").code == 0
    assert left == [130]


def test_ledger(live_series: LiveSeriesService) -> None:
    live_series.command("run", "--until-end")
    said = live_series.command("ledger")
    assert said.code == 0
    assert (
        "Budget 1 (pure filter): spent 1, left 0; delta 0. Odometer so far: 1. 6 ticks, 18 releases; "
        "the journal is whole" in said.out
    )
    assert "NOT PRIVATE" not in said.out
    assert "2024-05-01T00:00:00Z" in said.out  # not cut off
    shown = json.loads(live_series.command("ledger", "--json").out)
    assert shown == {
        "pipeline": "clicks", "private": True, "accepted": "", "neighbors": "add_remove", "protects": "one event",
        "budget": "1", "spent": "1", "left": "0", "delta": "0", "delta_spent": "0", "delta_left": "0",
        "filter": "pure", "unit": "epsilon", "capacity": "1", "peak": "1", "analysts": [],
        "odometer": {"bound": "1", "delta": "0", "claim": shown["odometer"]["claim"]},
        "loss": {"bound": "1", "delta": "0.000001", "claim": shown["loss"]["claim"]},
        "charges": [{"commit": 0, "name": "clicks: series of the first start", "epsilon": "1", "delta": "0",
                     "measure": "DP", "analyst": "", "start": 0,
                     "start_time": "2024-05-01T00:00:00Z", "end": None, "end_time": None,
                     "rule": "concurrent composition ([HSV] Thm 4.10)"}],
        "messages": [], "ticks": 6, "releases": 18, "journal": "whole", "derivation": shown["derivation"],
    }  # fmt: skip


def test_ledger_shows_no_exact_number(live_series: LiveSeriesService) -> None:
    live_series.command("run", "--until-end")
    whole = json.loads(live_series.command("ledger", "--json").out)
    assert whole.pop("derivation")["guarantee"]["epsilon"] == 1  # the same for all data
    shown = live_series.command("ledger").out + json.dumps(whole)
    assert re.search(r"(?<!\d)24(?!\d)", shown) is None
    assert "events" not in shown


def test_a_zero_noise_journal_is_not_the_products(live_series: LiveSeriesService) -> None:
    assert code_of(["run", str(live_series.pipeline), "--until-end", "--zero-noise"], kit) == 0
    assert json.loads(live_series.releases[-3])["value"] == 24
    assert json.loads(live_series.releases[-3])["not_private"] is True
    said = live_series.command("run", "--until-end")
    assert said.code == 4
    assert "whether its noise is private: then False, now True" in said.err
    assert "NOT PRIVATE" in live_series.command("ledger").out
    assert json.loads(live_series.command("ledger", "--json").out)["private"] is False


def test_no_journal_yet(live_series: LiveSeriesService) -> None:
    said = live_series.command("ledger")
    assert said.code == 2
    assert "no journal here; it begins with the first run" in said.err


@pytest.mark.parametrize("command", ["ledger", "run"])
@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + bytes(84)])
def test_a_foreign_file_in_its_place(
    live_series: LiveSeriesService, command: str, content: bytes
) -> None:
    live_series.journal.write_bytes(content)
    said = live_series.command(command)
    assert said.code == 4
    assert "clicks.journal" in said.err
    assert live_series.journal.read_bytes() == content


def test_an_empty_file_in_its_place(live_series: LiveSeriesService) -> None:
    live_series.journal.write_bytes(b"")
    said = live_series.command("ledger")
    assert said.code == 4
    assert "the journal is empty" in said.err


def test_the_same_names_in_another_folder_are_another_pipeline(
    live_series: LiveSeriesService, tmp_path: Path
) -> None:
    """Other data and another key: both run. A journal that is lost is missed in its own folder, which is named."""
    other = LiveSeriesService(tmp_path / "other", live_series.say)
    other.folder.mkdir()
    other.write(key=bytes(range(1, 33)))

    def run(service: LiveSeriesService) -> Said:
        key = str(service.folder / "operator.key")
        return service.command("run", "--until-end", "--key-file", key)

    for service in (live_series, other):
        assert run(service).code == 0
        assert len(service.releases) == SERIES * HORIZON
    for service in (live_series, other):
        for path in service.folder.glob("clicks.[jr]*"):
            path.unlink()
        said = run(service)
        assert (said.code, service.releases) == (4, [])
        assert f"has run on clicks.csv before, at {service.folder / 'clicks.csv'}" in said.err


def _damage(journal: Path, summary: str, *values: Any) -> None:
    database = sqlite3.connect(journal)
    with database:
        database.execute(summary, values)
    database.close()


@pytest.mark.parametrize("command", ["ledger", "run"])
@pytest.mark.parametrize("at", [0, 8, 25, 60, -1])
def test_a_flipped_byte(live_series: LiveSeriesService, command: str, at: int) -> None:
    live_series.command("run", "--until-end")
    sealed = bytearray(read_sealed(live_series.journal)[0])
    sealed[at] ^= 0x40
    _damage(live_series.journal, "UPDATE commits SET sealed = ? WHERE sequence = 0", bytes(sealed))
    said = live_series.command(command, *(["--until-end"] if command == "run" else []))
    assert said.code == 4
    assert "clicks" in said.err


def test_a_journal_cut_short(live_series: LiveSeriesService) -> None:
    live_series.command("run", "--until-end")
    _damage(live_series.journal, "DELETE FROM commits WHERE sequence > 0")
    before = live_series.releases
    said = live_series.command("run", "--until-end")
    assert said.code == 4
    assert "older than, or differs from" in said.err
    assert live_series.releases == before


def test_a_lost_journal(live_series: LiveSeriesService) -> None:
    live_series.command("run", "--until-end")
    live_series.journal.unlink()
    assert live_series.command("run", "--until-end").code == 4
    assert len(live_series.releases) == SERIES * HORIZON


@pytest.mark.parametrize("command", ["ledger", "run"])
def test_a_wrong_key(live_series: LiveSeriesService, command: str) -> None:
    live_series.command("run", "--until-end")
    live_series.write(key=bytes(32))
    said = live_series.command(command)
    assert said.code == 4
    assert "was written with key" in said.err


@pytest.mark.parametrize("command", ["ledger", "run"])
def test_no_key(
    live_series: LiveSeriesService, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    said = live_series.command(command)
    assert said.code == 2
    assert "needs an operator key: make one with" in said.err
    assert not live_series.journal.exists()
    said = live_series.command(
        "run", "--until-end", "--key-file", str(live_series.folder / "operator.key")
    )
    assert said.code == 0


def test_a_key_that_others_can_read(live_series: LiveSeriesService) -> None:
    (live_series.folder / "operator.key").chmod(0o644)
    said = live_series.command("run")
    assert said.code == 2
    assert "chmod 600" in said.err


def test_a_public_source_gets_a_key_of_its_own(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    live_series.write("name: clicks\n", "name: clicks\npublic_data: true\n")
    assert live_series.command("run", "--until-end").code == 0
    assert live_series.command("run", "--until-end").code == 0
    assert len(list((live_series.folder / "home").rglob("clicks.key"))) == 1


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[home, help]", "[home, faq]", "schema"),
        ("threshold: 3", "threshold: 4", "mechanisms, series"),
        ("  - {name: clicks, statistic: count, epsilon: 0.5}\n", "", "mechanisms, series"),
        ("horizon: 6", "horizon: 7", "clock, mechanisms"),
    ],
)
def test_a_changed_pipeline(live_series: LiveSeriesService, old: str, new: str, named: str) -> None:
    live_series.command("run", "--until-end")
    live_series.write(old, new)
    said = live_series.command("run", "--until-end")
    assert said.code == 4
    assert "written for something else" in said.err
    assert f"changed: in the pipeline file: {named})" in said.err
    said = live_series.command("ledger")
    assert said.code == 4
    assert "another version of this pipeline file" in said.err


def test_another_pipelines_journal(live_series: LiveSeriesService) -> None:
    live_series.command("run", "--until-end")
    live_series.write(
        "name: clicks\n", "name: views\njournal: {kind: sqlite, path: clicks.journal}\n"
    )
    said = live_series.command("run", "--until-end")
    assert said.code == 4
    assert "belongs elsewhere" in said.err


def test_another_source(live_series: LiveSeriesService) -> None:
    live_series.command("run", "--until-end")
    live_series.write("clicks.csv", "other.csv")
    (live_series.folder / "other.csv").write_text((live_series.folder / "clicks.csv").read_text())
    said = live_series.command("run", "--until-end")
    assert said.code == 4
    assert "the source: then 'clicks.csv', now 'other.csv'" in said.err


def test_an_empty_source_is_a_valid_stream(live_series: LiveSeriesService) -> None:
    (live_series.folder / "clicks.csv").write_text("time,page\n")
    assert live_series.command("run", "--until-end").code == 0
    assert len(live_series.releases) == SERIES * HORIZON


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
    live_series: LiveSeriesService, old: str, new: str, code: int, named: str
) -> None:
    live_series.write(old, new)
    said = live_series.command("run", "--until-end")
    assert said.code == code
    assert named in said.err
    assert live_series.releases == []


def test_a_folder_that_is_missing(live_series: LiveSeriesService) -> None:
    live_series.write(
        "name: clicks\n", "name: clicks\njournal: {kind: sqlite, path: no/clicks.journal}\n"
    )
    assert live_series.command("run", "--until-end").code == 5


def test_charges_that_do_not_add_up(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_series.command("run", "--until-end")

    async def other(*args: Any) -> Any:
        found = await read_summary(*args)
        found.charges.append(found.charges[0])
        return found

    monkeypatch.setattr(ledger_module, "read_summary", other)
    said = live_series.command("ledger")
    assert said.code == 4
    assert "charges differ" in said.err


@pytest.mark.parametrize("options", [(), ("--serve", "--port", "0")])
def test_a_run_that_stays_says_that_all_ticks_are_released(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    say = Line.say

    def and_stop(self: Line, text: str) -> None:
        say(self, text)
        if text.startswith("All ticks of"):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Line, "say", and_stop)
    said = live_series.command("run", *options)
    assert said.code == 0
    (over,) = [line for line in said.err.splitlines() if line.startswith("All ticks of")]
    assert over.startswith(f"All ticks of {live_series.pipeline} are released: nothing is counted")
    assert f"stream-dp export {live_series.pipeline} --to ADDRESS" in over
    assert ("the page and what is under /api stay" in over) == bool(options)
