"""What the tests of the page share: synthetic pipelines and engines, a server of them, what a tab is asked.

Rules: everything the browser shows comes over HTTP from a `PageServer`; waits are for conditions in the page, never
for a time. `STREAM_DP_REQUIRE=browser` turns a missing browser into a failure.
"""

import asyncio
import csv
import io
import json
import os
import random
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from free_ports import free_port
from playwright.async_api import Browser, ConsoleMessage, Page
from pydantic import TypeAdapter

from stream_dp.journal.release import release_of
from stream_dp.server.server import PageServer
from stream_dp.server.view import NOTHING, PublicView, ReleaseLog
from stream_dp.statistics import Series

START = datetime(2013, 1, 1, 10, tzinfo=UTC)
HORIZON = 8760
HISTORY = 700
PATIENCE_MS = 120_000
BOARD = "async () => { window.board = (await import('/app.js')).board; }"
ALL_DRAWN = """() => [...window.board.cards.values()].every(
    ({ latest, element }) => latest === null || "tick" in element.dataset)"""
"""Whether all cards show their releases, by the page's own account, once `BOARD` was called."""
PLOT = "(card) => (card => document.querySelector(card + ' .chart').plot)"
CODES_SHOWN = r"""() => [document.title, ...document.querySelectorAll("body, [title], [aria-label]")].flatMap(
    (each) => each.localName === undefined ? [each] : [each.innerText, each.title, each.ariaLabel]).filter(
    (text) => /\b\d+(ms|s|m|h|d)\b/.test(text ?? ""))"""
"""What a page says in which a length of time stands as the pipeline file has it, "24h"."""
KEEPS_PLOTS = """
  let made;
  const construct = (Plot, given) => (given[2].plot = new Plot(...given));
  const set = (Plot) => { made = new Proxy(Plot, { construct }); };
  Object.defineProperty(window, "uPlot", { get: () => made, set });
"""
CODES = (
    "ORDATLLAXBOSMCOCLTSFOFLLMIADCADTWDFWRDUTPADENIAHMSPPBIBNALASSJUIADBUFPHXCLE"
    "STLMDWSEABWIMSYJAXSAVROCPITSANBQNXNASNAOMAGSODSMAUSCVGTYSAVLBTVCHSPDX"
)
DESTINATIONS = [CODES[at : at + 3] for at in range(0, len(CODES), 3)]
AIRLINES = [
    pair
    for line in ("UA,B6,EV,DL,AA,MQ,US,9E", "WN,VX,FL,AS,F9,YV,HA,OO")
    for pair in line.split(",")
]
BLUE = (59, 91, 219)
"""What lines are drawn in."""
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pipeline(fingerprint: str = "f1") -> dict[str, Any]:
    return {
        "name": "flights",
        "public_data": True,
        "unit": "event",
        "neighbors": "add_remove",
        "clock": {
            "kind": "replay",
            "start": "2013-01-01T10:00:00Z",
            "step": 3600,
            "delay": None,
            "horizon": HORIZON,
        },
        "fingerprint": fingerprint,
        "over": False,
        "series": [
            described("count", "departures"),
            described("maximum", "busiest_destination", by="destination", method="hss"),
            {
                **described("histogram", "by_destination", by="destination"),
                "domain": [*DESTINATIONS, "other"],
            },
            {
                **described("alerts", "late_departures", by="airline", threshold=100),
                "domain": AIRLINES,
            },
        ],
    }


def described(statistic: str, name: str, **more: Any) -> dict[str, Any]:
    """What the API says of a series of the file."""
    entry = {"statistic": statistic, "name": name, "epsilon": "1", **more}
    said: dict[str, Any] = _adapter().validate_python(entry).described()
    return said


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Series)  # dear, so no module makes it when it is imported


def plan() -> dict[str, Any]:
    leaves, series = [], []
    for name, mechanism, epsilon in (
        ("departures", "counter (3-ary tree)", 0.1), ("busiest_destination", "HSS of a maximum", 0.2),
        ("by_destination", "HSS", 0.3), ("late_departures", "multi-SVT, re-armed", 0.3),
    ):  # fmt: skip
        held = {"name": "sensitivity 1", "holds": True, "why": "one event changes one row by 1"}
        rule = f"{mechanism} is ε-DP for continual input"
        leaves.append(node(name, rule, "[HSV] Section 7", [held], epsilon))
        series.append({**planned(name, 160, HORIZON), "mechanism": mechanism, "epsilon": epsilon})
    conditions = [
        {"name": "same neighbour relation", "holds": True, "why": "add_remove everywhere"},
        {"name": "parameters fixed before the first tick", "holds": True, "why": ""},
    ]
    rule = "concurrent composition of fixed mechanisms"
    tree = node("flights", rule, "[HSV] Thm 4.10", conditions, 0.9, leaves)
    return {
        "epsilon": 1,
        "delta": 0,
        "unit": "event",
        "neighbors": "add_remove",
        "horizon": HORIZON,
        "series": series,
        "derivation": tree,
        "promise": {"epsilon": 1, "delta": 0, "filter": "pure", "derivation": tree},
    }


def planned(name: str, error: float, tick: int) -> dict[str, Any]:
    errors = [{"tick": tick, "error": error, "confidence": 0.95}]
    known = {"mechanism": "M", "why": "", "epsilon": 0.1, "delta": 0}
    return {"name": name, **known, "predicted_error": errors}


def node(
    subject: str,
    rule: str,
    source: str,
    conditions: list[dict[str, Any]],
    epsilon: float,
    premises: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "subject": subject,
        "rule": rule,
        "source": source,
        "guarantee": {"epsilon": epsilon, "delta": 0, "neighbors": "add_remove"},
        "conditions": conditions,
        "alternatives": [],
        "premises": list(premises),
    }


def budget() -> dict[str, Any]:
    series = [(entry["name"], str(entry["epsilon"])) for entry in plan()["series"]]
    return {
        "epsilon": {"total": "1", "spent": "0.9", "left": "0.1"},
        "delta": {"total": "0", "spent": "0", "left": "0"},
        "filter": "pure",
        "unit": "epsilon",
        "capacity": "1",
        "peak": "0.9",
        "heaviest": "",
        "frees": True,
        "analysts": [],
        "series": [{"name": name, "epsilon": epsilon} for name, epsilon in series],
    }


class Engine:
    """Publishes releases like an engine would; its log outlives the server."""

    def __init__(self) -> None:
        self.log = ReleaseLog()
        self.tick = 0
        self._sequence = 0
        self._random = random.Random(7)
        self._weights = [400 / (rank + 4) ** 1.3 for rank in range(len(DESTINATIONS))] + [0.02]
        self._counts = [0.0] * (len(DESTINATIONS) + 1)

    def again(self) -> "Engine":
        """An engine with the same history and a future of its own; a history is made once for many tests."""
        made = copy(self)
        made.log, made._counts = restored(self.log), list(self._counts)
        made._random = random.Random()
        made._random.setstate(self._random.getstate())
        return made

    def step(self) -> None:
        busy = 0.15 + max(0.0, 1 - abs((self.tick + 10) % 24 - 14) / 9)
        for index, weight in enumerate(self._weights):
            self._counts[index] += weight * busy * self._random.uniform(0.02, 0.14)
        total = round(sum(self._counts))
        values = {
            key: round(count) + self._random.randint(-12, 12)
            for key, count in zip([*DESTINATIONS, "other"], self._counts, strict=True)
        }
        fired = [
            key for rank, key in enumerate(AIRLINES) if self._random.random() < 0.09 / (rank + 1)
        ]
        self.publish("departures", {"value": total + self._random.randint(-30, 30), "band": 45})
        self.publish(
            "busiest_destination",
            {"value": max(values.values()) + self._random.randint(-9, 9), "band": 28},
        )
        self.publish("by_destination", {"values": values, "band": 24})
        self.publish("late_departures", {"fired": fired, "band": 17})
        self.tick += 1

    def publish(self, series: str, content: dict[str, Any]) -> None:
        end = START + timedelta(hours=self.tick + 1)
        release = {
            "v": 1,
            "sequence": self._sequence,
            "series": series,
            "tick": self.tick,
            "end": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
            **content,
            "confidence": 0.95,
        }
        self._sequence += 1
        self.log.append(release_of(json.dumps(release, separators=(",", ":")).encode()))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Publish a tick every 50 ms."""

        async def run() -> None:
            while True:
                self.step()
                await asyncio.sleep(0.05)

        task = asyncio.create_task(run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def restored(log: ReleaseLog) -> ReleaseLog:
    """The log that a restarted engine makes from its sink: the same bytes."""
    made = ReleaseLog()
    for release in log.since(NOTHING):
        made.append(release)
    return made


@cache
def past() -> Engine:
    """The one engine with a history; `again` has it for a test."""
    made = Engine()
    for _ in range(HISTORY):
        made.step()
    return made


class Console:
    """Everything the page complained about."""

    def __init__(self, page: Page) -> None:
        self.tolerant = False
        self.complaints: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, message: ConsoleMessage) -> None:
        if self.tolerant and "net::ERR_" in message.text:
            return  # the browser's own words on a connection that was cut
        if "willReadFrequently" in message.text:
            return  # that is about the tests, which read pixels
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)


def chromium() -> str:
    """The browser to drive; skip, or fail where it is required."""
    found = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if found is None:
        if "browser" in os.environ.get("STREAM_DP_REQUIRE", "").split(","):
            pytest.fail(
                "Chromium is required (STREAM_DP_REQUIRE) and not installed: apt install chromium"
            )
        pytest.skip("Chromium is not installed: apt install chromium")
    return found


@asynccontextmanager
async def serving(
    log: ReleaseLog, public: dict[str, Any] | None = None, port: int = 0, **more: Any
) -> AsyncIterator[PageServer]:
    """A server of a log, on any port that stays free, or on that one again; `more` changes the view."""
    view = PublicView(lambda: public or pipeline(), plan, budget, log)
    made = PageServer(replace(view, **more))
    await made.start(port=port or free_port())
    try:
        assert port in {0, port_of(made)}
        yield made
    finally:
        await made.stop()


def port_of(place: PageServer | Page) -> int:
    return int(place.url.rstrip("/").rpartition(":")[2])


async def blank(browser: Browser, **more: Any) -> Page:
    """An empty page; its waits are for conditions, so they end late only where something is wrong."""
    page = await browser.new_page(**more)
    page.set_default_timeout(PATIENCE_MS)
    return page


async def opened(
    browser: Browser, url: str, width: int = 1280, height: int = 900, **more: Any
) -> Page:
    page = await blank(browser, viewport={"width": width, "height": height}, **more)
    await page.goto(url)
    await drawn(page)
    return page


@asynccontextmanager
async def showing(
    browser: Browser,
    engine: Engine,
    public: dict[str, Any] | None = None,
    query: str = "",
    script: str = "",
    width: int = 1280,
    **view: Any,
) -> AsyncIterator[Page]:
    """A page of this engine, all drawn, that complains of nothing; `script` runs before its own."""
    async with serving(engine.log, public, **view) as server:
        page = await blank(browser, viewport={"width": width, "height": 900})
        console = Console(page)
        await page.add_init_script(script)
        await page.goto(server.url + query)
        await drawn(page)
        yield page
        assert console.complaints == []


async def drawn(page: Page) -> None:
    """Wait until there are cards, and all of them show their releases, with what was released before."""
    await page.wait_for_selector(".card[data-tick]")
    await page.evaluate(BOARD)
    await page.wait_for_function(ALL_DRAWN)


async def reaches(page: Page, tick: int) -> None:
    await page.wait_for_function(
        "tick => [...document.querySelectorAll('.card')].every(card => Number(card.dataset.tick) >= tick)",
        arg=tick,
    )


async def shows(page: Page, state: str) -> None:
    await page.wait_for_selector(f"#state[data-state={state}]")


async def no_gaps(page: Page) -> None:
    """Every release up to the shown tick was taken exactly once, in the series whose history is loaded."""
    for name in ("departures", "busiest_destination", "late_departures"):
        card = page.locator(f"[data-series={name}]")
        tick, received = await card.evaluate("card => [card.dataset.tick, card.dataset.received]")
        assert int(received) == int(tick) + 1, name


async def text(page: Page, selector: str) -> str:
    return await page.inner_text(selector)


async def texts(page: Page, selector: str) -> list[str]:
    return await page.locator(selector).all_inner_texts()


async def readout(page: Page, card: str, key: str) -> str:
    """What a chart says of the moment that this key leads to."""
    await page.focus(f"{card} .chart")
    await page.keyboard.press(key)
    return await text(page, f"{card} .readout")


async def pixels(page: Page, card: str, *colours: tuple[int, ...]) -> list[int]:
    """How many pixels of a card's chart have each colour: red, green, blue, least and most opacity."""
    found: list[int] = await page.evaluate(
        """([card, colours]) => {
            const canvas = document.querySelector(card + " canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const many = colours.map(() => 0);
            for (let at = 0; at < data.length; at += 4) colours.forEach(([red, green, blue, least, most], place) => {
                const near = [red, green, blue].every((part, offset) => Math.abs(data[at + offset] - part) <= 6);
                if (near && data[at + 3] >= least && data[at + 3] <= most) many[place] += 1;
            });
            return many;
        }""",
        [card, colours],
    )
    return found


async def saved(page: Page, series: str, what: str) -> tuple[str, bytes]:
    """Press a card's button and return the file's name and content."""
    async with page.expect_download() as waits:
        await page.click(f"[data-series={series}] .card-tools button >> text={what}")
    download = await waits.value
    content = await asyncio.to_thread((await download.path()).read_bytes)
    return download.suggested_filename, content


async def saved_rows(page: Page, series: str) -> list[dict[str, str]]:
    name, content = await saved(page, series, "CSV")
    assert name == f"{series}.csv"
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))
