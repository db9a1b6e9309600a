"""Lines of JSON for programs: what is on the list, and nothing of a record, however broken it is.

A secret stands in every record, and numbers of records that occur nowhere else; the twins log a count and a value.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from unit.cli.conftest import LiveSeriesService, Said

import stream_dp.operate.run.run_pipeline as run_module
from stream_dp.cli.options import LogForm, logged
from stream_dp.errors import WorldError
from stream_dp.journal.commit import Commit
from stream_dp.operate.observe import lifecycle_log
from stream_dp.operate.observe.lifecycle_log import ALWAYS, EVENTS, UnlistedEvent, warnings_told
from stream_dp.operate.observe.operator_figures import OperatorFigures

HIDDEN = "hunter2"
GOOD, BROKEN = 1237, 389
NUMBERED = frozenset(
    {"time", "version", "file", "url", "tick", "origin", "releases", "exit_code", "error"}
)
"""The fields in which a number may stand: public ones, and our own texts of errors."""


def lines(said: Said | str) -> list[dict[str, Any]]:
    """What was logged."""
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


@pytest.fixture
def secretive(live_series: LiveSeriesService) -> LiveSeriesService:
    """Records that all hold a secret; some are late, some of no page, some no records at all."""
    live_series.write()
    good = [f"2024-05-01T0{at % 6}:{at % 60:02}:00Z,{HIDDEN}" for at in range(GOOD)]
    broken = [f"{HIDDEN}{at},{HIDDEN}" for at in range(BROKEN)]
    text = "\n".join(["time,page", *sorted(good), *broken, ""])
    (live_series.folder / "clicks.csv").write_text(text)
    return live_series


def test_a_run_logs_its_phases_and_nothing_of_its_records(secretive: LiveSeriesService) -> None:
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


def test_people_get_the_lines_that_they_had(secretive: LiveSeriesService) -> None:
    said = secretive.command("run", "--until-end")
    assert "clicks: a new ledger; counts what clicks.csv holds" in said.err
    assert "Warning: more of the records than `warn_dead` allows" in said.err
    assert '"event"' not in said.err


@pytest.mark.usefixtures("page_first")
def test_the_addresses_are_logged(secretive: LiveSeriesService) -> None:
    found = lines(
        secretive.command(
            "run", "--until-end", "--serve", "--port", "0", "--operator-port", "0", "--log-format", "json",
        )
    )  # fmt: skip
    require_clean(found)
    assert {"ready", "operator port"} <= {line["event"] for line in found}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (("--verbose",), 2),
        (("--operator-token-file", "nowhere"), 2),
        (("--operator-host", "127.0.0.2"), 2),
        (("--standby",), 2),
    ],
)
def test_an_error_is_the_last_line(
    secretive: LiveSeriesService, wrong: tuple[str, ...], code: int
) -> None:
    said = secretive.command("run", "--until-end", "--log-format", "json", *wrong)
    found = lines(said)
    require_clean(found)
    assert said.code == code
    assert (found[-1]["event"], found[-1]["exit_code"]) == ("stopped", code)
    assert found[-1]["error"]


def test_a_bug_is_logged_without_what_it_held(
    secretive: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ValueError(HIDDEN)

    monkeypatch.setattr(run_module, "build", broken)
    said = secretive.command("run", "--until-end", "--log-format", "json")
    require_clean(lines(said))
    assert (said.code, lines(said)[-1]["exit_code"]) == (1, 1)
    assert "ValueError" in lines(said)[-1]["error"]


def test_a_standby_and_an_outage_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    def lived() -> None:
        with logged(Path("orders.yaml"), LogForm.JSON) as tell:
            for event in ("standing by", "catching up", "taken over", "stopping"):
                tell(event)
            raise WorldError("the brokers at localhost:9092 do not answer")

    with pytest.raises(typer.Exit):
        lived()
    found = lines(capsys.readouterr().err)
    require_clean(found)
    assert [line["level"] for line in found] == ["info", "warning", "warning", "info", "error"]
    assert found[-1]["exit_code"] == 5


def test_what_libraries_log_is_named_and_not_repeated() -> None:
    out = StringIO()
    with warnings_told(lifecycle_log.lifecycle_log("f", out)):
        logging.getLogger("asyncio").error("lost %s", HIDDEN)
        logging.getLogger("stream_dp.kafka.log.questions").warning("made anew")
    found = lines(out.getvalue())
    require_clean(found)
    assert [(line.get("library"), line.get("warning")) for line in found] == [
        ("asyncio", None),
        (None, "made anew"),
    ]


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("tick published", {"tick": 3, "records": GOOD}),
        ("commit", {}),
        ("running", {"lag": 4}),
    ],
)
def test_what_is_on_no_list_is_not_logged(event: str, fields: Mapping[str, int]) -> None:
    out = StringIO()
    with pytest.raises(UnlistedEvent):
        lifecycle_log.lifecycle_log("f", out)(event, **fields)
    assert out.getvalue() == ""


def leaking(monkeypatch: pytest.MonkeyPatch, field: str, what: Callable[[Commit], Any]) -> None:
    """Have a run log something of each commit, as if a list said that it may."""
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
    secretive: LiveSeriesService, monkeypatch: pytest.MonkeyPatch, listed: bool
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
