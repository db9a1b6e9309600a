"""Lines of JSON for programs: what is on the list, and nothing of a record, however broken it is.

A secret stands in every record, and numbers of records that occur nowhere else; the twins log a count and a value.
"""

import asyncio
import json
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from io import StringIO
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from unit.cli.conftest import BROKEN, GOOD, HIDDEN, Said, Site

import stream_dp.operate.run.run_pipeline as run_module
from stream_dp.errors import FailClosed, Outage
from stream_dp.journal.commit import Commit
from stream_dp.operate import exporting
from stream_dp.operate.observe import lifecycle_log, topic_page
from stream_dp.operate.observe.lifecycle_log import ALWAYS, EVENTS, UnlistedEvent, warnings_told
from stream_dp.operate.observe.operator_figures import OperatorFigures
from stream_dp.operate.run.file_change import going_on

NUMBERED = frozenset(
    {"time", "version", "file", "url", "tick", "origin", "releases", "exit_code", "error"}
)
"""The fields in which a number may stand: public ones, and our own texts of errors."""


def lines(said: Said | str) -> list[dict[str, Any]]:
    text = said if isinstance(said, str) else said.err
    return [json.loads(line) for line in text.splitlines()]


def require_clean(logged_lines: list[dict[str, Any]]) -> None:
    """Find what may not be in a log."""
    for line in logged_lines:
        _, fields = EVENTS[line["event"]]
        assert line.keys() <= fields | ALWAYS, line
        folder = f"{Path(line['file']).parent}/"  # pytest numbers it
        text = json.dumps(line).replace(folder, "")
        assert HIDDEN not in text
        numbers = {int(each) for each in re.findall(r"\d+", text)}
        assert not numbers & {GOOD, BROKEN, GOOD + BROKEN}, line
        rest = json.dumps([value for key, value in line.items() if key not in NUMBERED])
        assert re.search(r"\d", rest) is None, line


def events(logged_lines: list[dict[str, Any]]) -> list[str]:
    """The events, in order; of ticks the first line only, for they are told as they come."""
    found = [line["event"] for line in logged_lines]
    first = found.index("tick published") if "tick published" in found else len(found)
    return [each for at, each in enumerate(found) if each != "tick published" or at == first]


def test_a_run_logs_its_phases_and_nothing_of_its_records(secretive: Site) -> None:
    said = secretive.command("run", "--until-end", "--log-format", "json")
    found = lines(said)
    assert (said.code, said.out) == (0, "")
    require_clean(found)
    told = events(found)
    assert told[0] == "starting"
    assert told[-1] == "stopped"
    assert {"running", "ledger", "tick published"} <= {*told}
    ticks = [line["tick"] for line in found if line["event"] == "tick published"]
    assert ticks == sorted({*ticks})
    assert ticks[-1] == 5
    (ledger,) = (line for line in found if line["event"] == "ledger")
    assert (ledger["ledger"], ledger["origin"]) == ("new", "2024-05-01T00:00:00Z")
    assert found[-1]["exit_code"] == 0
    again = lines(secretive.command("run", "--until-end", "--log-format", "json"))
    require_clean(again)
    (ledger,) = (line for line in again if line["event"] == "ledger")
    assert (ledger["ledger"], ledger["tick"]) == ("goes on", 6)


@pytest.mark.usefixtures("page_first")
def test_the_addresses_are_logged(secretive: Site) -> None:
    ports = ("--serve", "--port", "0", "--operator-port", "0")
    found = lines(secretive.command("run", "--until-end", *ports, "--log-format", "json"))
    require_clean(found)
    assert {"ready", "operator port"} <= {line["event"] for line in found}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [(("--verbose",), 2), (("--operator-token-file", "nowhere"), 2), (("--standby",), 2)],
)
def test_an_error_is_the_last_line(secretive: Site, wrong: tuple[str, ...], code: int) -> None:
    said = secretive.command("run", "--until-end", "--log-format", "json", *wrong)
    found = lines(said)
    require_clean(found)
    assert said.code == code
    assert (found[-1]["event"], found[-1]["exit_code"]) == ("stopped", code)
    assert found[-1]["error"]


def test_a_bug_is_logged_without_what_it_held(
    secretive: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError(HIDDEN)

    monkeypatch.setattr(run_module, "going_on", broken)
    said = secretive.command("run", "--until-end", "--log-format", "json")
    require_clean(lines(said))
    assert (said.code, lines(said)[-1]["exit_code"]) == (1, 1)
    assert "ValueError" in lines(said)[-1]["error"]


def test_a_start_looks_again_at_a_journal_of_which_nobody_tells(
    secretive: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [Outage("a broker is away")]

    async def away(*place: Any) -> Any:
        if looks:
            raise looks.pop()
        return await going_on(*place)

    monkeypatch.setattr(run_module, "going_on", away)
    assert secretive.command("run", "--until-end").code == 0
    assert looks == []


def test_what_libraries_log_is_named_and_not_repeated() -> None:
    out = StringIO()
    with warnings_told(lifecycle_log.lifecycle_log("f", out)):
        logging.getLogger("asyncio").error("lost %s", HIDDEN)
        logging.getLogger("stream_dp.kafka.log.public").warning("made anew")
    found = lines(out.getvalue())
    require_clean(found)
    assert [(line.get("library"), line.get("warning")) for line in found] == [
        ("asyncio", None),
        (None, "made anew"),
    ]


@pytest.mark.parametrize(
    ("event", "fields"),
    [("tick published", {"tick": 3, "records": GOOD}), ("commit", {}), ("running", {"lag": 4})],
)
def test_what_is_on_no_list_is_not_logged(event: str, fields: Mapping[str, int]) -> None:
    out = StringIO()
    with pytest.raises(UnlistedEvent):
        lifecycle_log.lifecycle_log("f", out)(event, **fields)
    assert out.getvalue() == ""


def leaking(monkeypatch: pytest.MonkeyPatch, field: str, what: Callable[[Commit], Any]) -> None:
    take = OperatorFigures.take
    tells: list[Any] = []
    made = lifecycle_log.lifecycle_log

    def making(file: str, out: Any = None) -> Any:
        tells.append(made(file, out))
        return tells[-1]

    def taking(self: OperatorFigures, commit: Commit) -> None:
        take(self, commit)
        tells[-1]("running", **{field: what(commit)})

    monkeypatch.setattr("stream_dp.cli.options.lifecycle_log", making)
    monkeypatch.setattr(OperatorFigures, "take", taking)


@pytest.mark.parametrize("listed", [True, False])
def test_a_run_that_logs_a_count_is_caught(
    secretive: Site, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    leaking(monkeypatch, "records", lambda commit: commit.records)
    if listed:
        more = {**EVENTS, "running": ("info", frozenset({"records"}))}
        monkeypatch.setattr(lifecycle_log, "EVENTS", more)
    said = secretive.command("run", "--until-end", "--log-format", "json")
    if not listed:
        assert said.code == 1
        require_clean(lines(said))
        return
    with pytest.raises(AssertionError):
        require_clean(lines(said))


JSON = ("--log-format", "json")


def test_an_export_logs_what_it_wrote(site: Site) -> None:
    assert site.command("run", "--until-end").code == 0
    said = site.command("export", "--to", f"csv:{site.folder}/rows", *JSON)
    found = lines(said)
    require_clean(found)
    assert [line["event"] for line in found] == ["starting", "exported", "stopped"]
    assert (found[1]["releases"], found[2]["exit_code"]) == (len(site.releases), 0)
    assert said.out.startswith("18 releases, ")
    again = lines(site.command("export", "--to", f"csv:{site.folder}/rows", *JSON))
    assert [line["event"] for line in again] == ["starting", "stopped"]


def test_a_page_logs_its_phases(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(3))

    async def published(*_: object) -> AsyncIterator[list[bytes]]:
        yield []
        yield []
        if next(times) < 2:
            raise Outage("the brokers are away")
        raise FailClosed("the topic was made anew")

    monkeypatch.setattr(topic_page, "published", published)
    monkeypatch.setattr(topic_page, "backing_off", lambda _: repeat(0))
    said = site.command("page", "--port", "0", *JSON)
    found = lines(said)
    require_clean(found)
    again = ["catching up", "running"]
    assert events(found) == ["starting", "ready", "running", *again, *again, "stopped"]
    assert found[1]["url"].startswith("http://127.0.0.1:")
    assert (said.code, found[-1]["error"]) == (4, "the topic was made anew")


@pytest.mark.parametrize(
    ("command", "number"),
    [(("page", "--port", "0"), signal.SIGINT), (("export", "--follow"), signal.SIGTERM)],
)
def test_a_signal_ends_it_well(
    site: Site, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], number: signal.Signals
) -> None:
    async def published(*_: object) -> AsyncIterator[list[bytes]]:
        yield []
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    for module in (topic_page, exporting):
        monkeypatch.setattr(module, "published", published)
    to = () if command[0] == "page" else ("--to", f"csv:{site.folder}/rows")
    found = lines(said := site.command(*command, *to, *JSON))
    assert (said.code, found[-1]["event"], found[-1]["exit_code"]) == (0, "stopped", 0)
