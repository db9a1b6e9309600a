"""Lines of JSON of what serves or exports releases for long: its phases, and how it ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from itertools import repeat

import pytest
from unit.cli.conftest import LiveSeriesService
from unit.cli.test_logged import events, lines, require_clean

from stream_dp.core.progress import Progress
from stream_dp.errors import FailClosed, Outage
from stream_dp.operate.export import exporting
from stream_dp.operate.observe import topic_page
from stream_dp.operate.observe.lifecycle_log import TellEvent

JSON = ("--log-format", "json")


def test_an_export_logs_what_it_wrote(live_series: LiveSeriesService) -> None:
    assert live_series.command("run", "--until-end").code == 0
    said = live_series.command("export", "--to", f"csv:{live_series.folder}/rows", *JSON)
    found = lines(said)
    require_clean(found)
    assert [line["event"] for line in found] == ["starting", "exported", "stopped"]
    assert (found[1]["releases"], found[2]["exit_code"]) == (len(live_series.releases), 0)
    assert said.out.startswith("18 releases, ")
    again = lines(live_series.command("export", "--to", f"csv:{live_series.folder}/rows", *JSON))
    assert [line["event"] for line in again] == ["starting", "stopped"]


def test_an_export_that_cannot_be_is_the_last_line(live_series: LiveSeriesService) -> None:
    said = live_series.command("export", "--to", "nowhere", *JSON)
    found = lines(said)
    require_clean(found)
    assert (said.code, said.out) == (2, "")
    assert (found[-1]["event"], found[-1]["exit_code"]) == ("stopped", 2)


def test_a_page_logs_its_phases(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(3))

    async def published(*_: object) -> AsyncIterator[list[bytes]]:
        yield []
        yield []
        if next(times) < 2:
            raise Outage("the brokers are away")
        raise FailClosed("the topic was made anew")

    monkeypatch.setattr(topic_page, "published", published)
    monkeypatch.setattr(topic_page, "backing_off", lambda _: repeat(0))
    said = live_series.command("page", "--port", "0", *JSON)
    found = lines(said)
    require_clean(found)
    again = ["catching up", "running"]
    assert events(found) == ["starting", "ready", "running", *again, *again, "stopped"]
    assert found[1]["url"].startswith("http://127.0.0.1:")
    assert (said.code, found[-1]["error"]) == (4, "the topic was made anew")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", [("page", "--port", "0"), ("export", "--follow")])
def test_a_signal_ends_it_well(
    live_series: LiveSeriesService,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    number: signal.Signals,
) -> None:
    async def published(*_: object) -> AsyncIterator[list[bytes]]:
        yield []
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    for module in (topic_page, exporting):
        monkeypatch.setattr(module, "published", published)
    to = () if command[0] == "page" else ("--to", f"csv:{live_series.folder}/rows")
    found = lines(said := live_series.command(*command, *to, *JSON))
    assert (said.code, found[-1]["event"], found[-1]["exit_code"]) == (0, "stopped", 0)


def test_a_page_says_to_people_where_it_is(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(
        self: topic_page.TopicPage, bootstrap: str, tell: TellEvent, progress: Progress
    ) -> None:
        tell("running")

    monkeypatch.setattr(topic_page.TopicPage, "follow", follow)
    said = live_series.command("page", "--port", "0")
    assert said.code == 0
    assert said.err.startswith("The page is at http://127.0.0.1:")
    assert len(said.err.splitlines()) == 1
