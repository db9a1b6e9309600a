"""`run` and `ledger` on a file: to the end, again, and with everything that can be wrong at the start."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from unit.cli.conftest import HORIZON, Said, Site

import stream_dp.cli.commands.run as run_module
import stream_dp.operate.run.run_pipeline as page_module
from stream_dp.cli.progress_line import Line
from stream_dp.files.sqlite import read_sealed
from stream_dp.operate.run.running import Run
from stream_dp.server.server import PageServer

SERIES = 3


def test_a_run_to_the_end_and_once_more(site: Site) -> None:
    said = site.command("run", "--until-end")
    assert (said.code, said.out) == (0, "")
    assert "clicks: 6 ticks, 18 releases" in said.err
    assert f"clicks: {run_module.OVER}" in said.err.splitlines()
    releases = [json.loads(line) for line in site.releases]
    assert [r["sequence"] for r in releases] == list(range(1, SERIES * HORIZON + 1))
    assert releases[1]["values"].keys() == {"home", "help", "other"}
    assert releases[-1]["end"] == "2024-05-01T06:00:00Z"
    before, sealed = site.releases, read_sealed(site.journal)
    again = site.command("run", "--until-end")
    assert again.code == 0
    assert f"clicks: {run_module.OVER}" in again.err.splitlines()
    assert (site.releases, read_sealed(site.journal)) == (before, sealed)


@pytest.mark.usefixtures("page_first")
def test_the_page_answers_to_the_names_that_it_is_given(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, int] = {}
    asked = asyncio.Event()

    class Asked(PageServer):
        async def start(self, host: str = "", port: int = 0) -> None:
            await super().start(host, port)
            async with httpx.AsyncClient(base_url=self.url, timeout=100) as client:
                for name in ("localhost", "dash.example.org:443", "[2001:db8::1]", "engine"):
                    answer = await client.get("/healthz", headers={"host": name})
                    answers[name] = answer.status_code
            asked.set()

    told = Run.until_end

    async def and_asked(self: Run) -> None:
        await told(self)
        await asyncio.wait_for(asked.wait(), 120)

    monkeypatch.setattr(Run, "until_end", and_asked)
    monkeypatch.setattr(page_module, "PageServer", Asked)
    names = ("--allow-host", "dash.example.org", "--allow-host", "[2001:db8::1]")
    every = ("--serve", "--port", "0", "--host", "0.0.0.0", *names)  # noqa: S104 - as in a container
    assert site.command("run", "--until-end", *every).code == 0
    assert answers.pop("engine") == 421
    assert set(answers.values()) == {200}


@pytest.mark.parametrize(
    ("signals", "left"), [([signal.SIGTERM], []), ([signal.SIGINT] * 2, [130])]
)
def test_the_first_signal_stops_it_and_the_second_leaves_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, signals: list[signal.Signals], left: list[int]
) -> None:
    exits, told = list[int](), Run.until_end

    async def and_signal(self: Run) -> None:
        await told(self)
        for number in signals:
            signal.raise_signal(number)
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Run, "until_end", and_signal)
    monkeypatch.setattr(os, "_exit", exits.append)
    assert site.command("run").code == 0
    assert exits == left
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_page_without_its_extra_is_refused_before_anything_is_looked_at(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    (site.folder / "clicks.csv").unlink()
    said = site.command("run", "--serve", "--port", "0")
    assert (said.code, "stream_dp[serve]" in said.err) == (2, True)
    assert not site.journal.exists()


def test_ledger(site: Site) -> None:
    site.command("run", "--until-end")
    said = site.command("ledger")
    assert said.code == 0
    assert (
        "Budget 1 (pure filter): spent 1, left 0; delta 0. Odometer so far: 1. 6 ticks, 18 releases. "
        "The journal is complete" in said.out
    )
    assert "NOT PRIVATE" not in said.out
    assert "2024-05-01T00:00:00Z" in said.out  # not cut off
    shown = json.loads(site.command("ledger", "--json").out)
    assert shown == {
        "pipeline": "clicks", "private": True, "accepted": "", "neighbors": "add_remove", "protects": "one event",
        "budget": "1", "spent": "1", "left": "0", "delta": "0", "delta_spent": "0", "delta_left": "0",
        "filter": "pure", "unit": "epsilon", "capacity": "1", "peak": "1", "heaviest": "", "frees": True,
        "analysts": [],
        "odometer": {"bound": "1", "delta": "0", "claim": shown["odometer"]["claim"]},
        "loss": {"bound": "1", "delta": "0.000001", "claim": shown["loss"]["claim"]},
        "charges": [{"commit": 0, "name": "clicks: series of the first start", "epsilon": "1", "delta": "0",
                     "measure": "DP", "analyst": "", "start": 0,
                     "start_time": "2024-05-01T00:00:00Z", "end": None, "end_time": None,
                     "rule": "concurrent composition ([HSV] Thm 4.10)"}],
        "messages": [], "ticks": 6, "releases": 18, "journal": "whole", "verified_from_commit": 0,
        "derivation": shown["derivation"],
    }  # fmt: skip


def test_ledger_shows_no_exact_number(site: Site) -> None:
    site.command("run", "--until-end")
    whole = json.loads(site.command("ledger", "--json").out)
    assert whole.pop("derivation")["guarantee"]["epsilon"] == 1  # the same for all data
    shown = site.command("ledger").out + json.dumps(whole)
    assert re.search(r"(?<!\d)24(?!\d)", shown) is None
    assert "events" not in shown


def write_over(service: Site, content: bytes) -> None:
    service.journal.write_bytes(content)


def flip_a_byte(service: Site) -> None:
    sealed = bytearray(read_sealed(service.journal)[0])
    sealed[60] ^= 0x40
    alter(service, "UPDATE commits SET sealed = ? WHERE sequence = 0", bytes(sealed))


def alter(service: Site, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(service.journal)) as database, database:
        database.execute(statement, values)


WRONG: dict[str, tuple[Callable[[Site], None], str]] = {
    "foreign": (lambda it: write_over(it, b"not a database at all"), "clicks.journal"),
    "a flipped byte": (flip_a_byte, "clicks"),
    "cut short": (
        lambda it: alter(it, "DELETE FROM commits WHERE sequence > 0"),
        "older than, or differs from",
    ),
    "lost": (lambda it: it.journal.unlink(), "older than, or differs from"),
    "a wrong key": (lambda it: it.write(key=bytes(32)), "was written with key"),
    "a changed schema": (
        lambda it: it.write("[home, help]", "[home, faq]"),
        "changed: in the pipeline file: schema)",
    ),
    "a changed threshold": (
        lambda it: it.write("threshold: 3", "threshold: 4"),
        "changed: in the pipeline file: mechanisms, series)",
    ),
}


@pytest.mark.parametrize(("change", "said_"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_journal_is_4_and_releases_nothing(
    site: Site, change: Callable[[Site], None], said_: str
) -> None:
    assert site.command("run", "--until-end").code == 0
    before = site.releases
    change(site)
    said = site.command("run", "--until-end")
    assert (said.code, said_ in said.err) == (4, True), said.err
    assert site.releases == before
    if site.journal.exists() and "older" not in said_:
        assert site.command("ledger").code == 4


def test_what_was_never_there_is_2(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    key = site.folder / "operator.key"
    key.chmod(0o644)
    said = site.command("run")
    assert (said.code, "chmod 600" in said.err) == (2, True)
    key.chmod(0o600)
    said = site.command("ledger")
    assert (said.code, "there is no journal here; the first run" in said.err) == (2, True)
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    for command in ("ledger", "run"):
        said = site.command(command)
        assert (said.code, "needs an operator key: create one with" in said.err) == (2, True)
    assert not site.journal.exists()
    assert site.command("run", "--until-end", "--key-file", str(key)).code == 0


def test_another_folder_is_another_pipeline(site: Site, tmp_path: Path) -> None:
    """Other data and another key: both run. A journal that is lost is missed in its own folder, which is named."""
    other = Site(tmp_path / "other", site.say)
    other.folder.mkdir()
    other.write(key=bytes(range(1, 33)))

    def run(service: Site) -> Said:
        key = str(service.folder / "operator.key")
        return service.command("run", "--until-end", "--key-file", key)

    for service in (site, other):
        assert run(service).code == 0
        assert len(service.releases) == SERIES * HORIZON
    for service in (site, other):
        for path in service.folder.glob("clicks.[jr]*"):
            path.unlink()
        said = run(service)
        assert (said.code, service.releases) == (4, [])
        assert f"has run on clicks.csv before, at {service.folder / 'clicks.csv'}" in said.err


def test_a_public_source_gets_a_key_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    site.write("name: clicks\n", "name: clicks\npublic_data: true\n")
    assert site.command("run", "--until-end").code == 0
    assert site.command("run", "--until-end").code == 0
    assert len(list((site.folder / "home").rglob("clicks.key"))) == 1


@pytest.mark.parametrize(
    ("old", "new", "code", "named"),
    [
        ("epsilon: 0.5", "epsilon: 0.51", 3, "asks for epsilon 1.01; of 1 the ledger has spent 0"),
        ("epsilon: 0.5", "epsilon: -1", 2, "clicks.yaml:10:47: series[0].epsilon"),
        ("clicks.csv", "none.csv", 2, "none.csv: no such file"),
        (
            "name: clicks\n",
            "name: clicks\njournal: {kind: sqlite, path: no/it.journal}\n",
            5,
            "no/it.journal",
        ),
        ("version: 1", "version: 1\ncolour: red", 2, "colour: is not a known key"),
    ],
)
def test_bad_pipelines_release_nothing(
    site: Site, old: str, new: str, code: int, named: str
) -> None:
    site.write(old, new)
    said = site.command("run", "--until-end")
    assert said.code == code
    assert named in said.err
    assert site.releases == []


@pytest.mark.parametrize("options", [(), ("--serve", "--port", "0")])
def test_a_run_that_stays_says_that_all_ticks_are_released(
    site: Site, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    say = Line.say

    def and_stop(self: Line, text: str) -> None:
        say(self, text)
        if text.startswith("All ticks of"):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Line, "say", and_stop)
    said = site.command("run", *options)
    assert said.code == 0
    (over,) = [line for line in said.err.splitlines() if line.startswith("All ticks of")]
    assert over.startswith(f"All ticks of {site.pipeline} are released. No more events are counted")
    assert f"stream-dp export {site.pipeline} --to ADDRESS" in over
    assert ("The page and the API show the releases" in over) == bool(options)


GUESSED = "epsilon: 1, expect: {records: 4}}"


@pytest.mark.parametrize(
    ("terminal", "answer", "flags", "begins", "warned"),
    [
        (False, None, (), True, True),
        (True, True, (), True, True),
        (True, False, (), False, True),
        (True, None, ("--yes",), True, False),
    ],
)
def test_a_first_start_asks_once_where_most_numbers_would_be_noise(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    answer: bool | None,
    flags: tuple[str, ...],
    begins: bool,
    warned: bool,
) -> None:
    asked: list[str] = []

    def confirm(question: str, *, err: bool) -> bool | None:
        asked.append(question)
        return answer

    monkeypatch.setattr(run_module, "on_terminal", lambda: terminal)
    monkeypatch.setattr("typer.confirm", confirm)
    site.write("epsilon: 1}", GUESSED)
    said = site.command("run", "--until-end", *flags)
    assert (said.code, site.journal.exists()) == ((0, True) if begins else (2, False))
    assert len(asked) == (answer is not None)
    warning = "Warning: according to the guesses of privacy.expect, 2 of 3 numbers would be noise (by_page, busy)"
    assert said.err.count(warning) == warned
    if begins:  # it goes on without a word
        again = site.command("run", "--until-end")
        assert (again.code, "Warning" in again.err, len(asked)) == (0, False, answer is not None)
    else:
        assert "not started: nothing was charged, created or published" in said.err


@pytest.mark.parametrize(
    ("terminal", "flags", "told"),
    [(True, (), True), (True, ("--yes",), False), (False, (), False)],
)
def test_a_first_start_without_guesses_says_what_judges_its_numbers(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    flags: tuple[str, ...],
    told: bool,
) -> None:
    monkeypatch.setattr(run_module, "on_terminal", lambda: terminal)
    said = site.command("run", "--until-end", *flags)
    why = (
        "the file has no guesses (privacy.expect), so it is not known whether its numbers would be"
    )
    assert (said.code, why in said.err) == (0, told)
    again = site.command("run", "--until-end")
    assert (again.code, why in again.err) == (0, False)


def test_plan_has_a_verdict_for_each_number_and_a_line(site: Site) -> None:
    said = site.command("plan")
    assert "Verdicts: 1 noise; 2 not known without privacy.expect.records" in said.out
    site.write("epsilon: 1}", GUESSED)
    (site.folder / "clicks.csv").unlink()  # no data is read
    said = site.command("plan")
    assert "How useful these numbers are, according to the guesses in privacy.expect" in said.out
    assert "Verdicts: 1 rough, 2 noise" in said.out.splitlines()
    rows = json.loads(site.command("plan", "--json").out)["verdicts"]
    assert rows[0] == {"series": "clicks", "verdict": "rough", "typical": 24.0, "band": 14}
    assert [row["verdict"] for row in rows] == ["rough", "noise", "noise"]
