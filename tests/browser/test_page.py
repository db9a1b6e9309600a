"""The page in a real Chromium, fed by a task that publishes synthetic releases.

Rules: everything the browser shows comes over HTTP from a `PageServer`; waits are for conditions
in the page, never for a time. `STREAM_DP_REQUIRE=browser` turns a missing browser into a failure;
`STREAM_DP_SCREENSHOT` names a file for the desktop picture.
"""

import asyncio
import json
import os
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from stream_dp.serve.server import PageServer
from stream_dp.serve.view import PublicView, ReleaseLog

pytestmark = pytest.mark.browser

START = datetime(2013, 1, 1, 10, tzinfo=UTC)
HORIZON = 8760
HISTORY = 700
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

LONGEST_FRAME = """() => new Promise(done => {
    let last = performance.now(), longest = 0, frames = 0;
    const frame = now => {
        longest = Math.max(longest, now - last);
        last = now;
        if (++frames < 60) requestAnimationFrame(frame); else done(longest);
    };
    requestAnimationFrame(frame);
})"""


def pipeline(fingerprint: str = "f1") -> dict[str, Any]:
    """The public description of a pipeline with each kind of series."""
    return {
        "name": "flights",
        "public_data": True,
        "unit": "event",
        "neighbors": "add_remove",
        "clock": {"start": "2013-01-01T10:00:00Z", "step": 3600, "horizon": HORIZON},
        "fingerprint": fingerprint,
        "series": [
            {"name": "departures", "statistic": "count"},
            {"name": "busiest_destination", "statistic": "maximum", "by": "destination"},
            {
                "name": "by_destination",
                "statistic": "count",
                "by": "destination",
                "domain": [*DESTINATIONS, "other"],
            },
            {
                "name": "late_departures",
                "statistic": "alerts",
                "by": "airline",
                "domain": AIRLINES,
                "threshold": 100,
            },
        ],
    }


def plan() -> dict[str, Any]:
    """What `stream-dp plan --json` says, in short."""
    mechanisms = {
        "departures": "counter (3-ary tree)",
        "busiest_destination": "HSS of a maximum",
        "by_destination": "HSS",
        "late_departures": "multi-SVT, re-armed",
    }
    epsilon = {"departures": "0.1", "busiest_destination": "0.2"}
    leaves = [
        {
            "rule": f"{mechanism} is ε-DP for continual input",
            "source": "[HSV] Section 7",
            "conditions": [
                {"name": "sensitivity 1", "holds": True, "why": "one event changes one row by 1"}
            ],
            "guarantee": f"ε = {epsilon.get(name, '0.3')}, δ = 0",
            "premises": [],
        }
        for name, mechanism in mechanisms.items()
    ]
    return {
        "epsilon": "1",
        "delta": "0",
        "unit": "event",
        "neighbors": "add_remove",
        "horizon": HORIZON,
        "series": [
            {
                "name": name,
                "mechanism": mechanism,
                "epsilon": epsilon.get(name, "0.3"),
                "delta": "0",
                "predicted_error": [{"tick": HORIZON, "error": 160, "confidence": 0.95}],
            }
            for name, mechanism in mechanisms.items()
        ],
        "derivation": {
            "rule": "concurrent composition of fixed mechanisms",
            "source": "[HSV] Thm 4.10",
            "conditions": [
                {"name": "same neighbour relation", "holds": True, "why": "add_remove everywhere"},
                {"name": "parameters fixed before the first tick", "holds": True, "why": ""},
            ],
            "guarantee": "ε = 0.9, δ = 0",
            "premises": leaves,
        },
    }


def budget() -> dict[str, Any]:
    """A budget with something left."""
    series = [(entry["name"], entry["epsilon"]) for entry in plan()["series"]]
    return {
        "epsilon": {"total": "1", "spent": "0.9", "left": "0.1"},
        "delta": {"total": "0", "spent": "0", "left": "0"},
        "series": [{"name": name, "epsilon": epsilon} for name, epsilon in series],
    }


class Engine:
    """Publishes releases like an engine would; its log outlives the server."""

    def __init__(self) -> None:
        """Start at tick 0."""
        self.log = ReleaseLog()
        self.tick = 0
        self._sequence = 0
        self._random = random.Random(7)
        self._weights = [400 / (rank + 4) ** 1.3 for rank in range(len(DESTINATIONS))] + [0.02]
        self._counts = [0.0] * (len(DESTINATIONS) + 1)

    def step(self) -> None:
        """Publish the releases of one tick."""
        busy = 0.15 + max(0.0, 1 - abs((self.tick + 10) % 24 - 14) / 9)
        for index, weight in enumerate(self._weights):
            self._counts[index] += weight * busy * self._random.uniform(0.02, 0.14)
        total = round(sum(self._counts))
        values = {
            key: round(count) + self._random.randint(-12, 12)
            for key, count in zip([*DESTINATIONS, "other"], self._counts, strict=True)
        }
        fired = {
            key: True
            for rank, key in enumerate(AIRLINES)
            if self._random.random() < 0.09 / (rank + 1)
        }
        self._publish("departures", {"value": total + self._random.randint(-30, 30), "band": 45})
        self._publish(
            "busiest_destination",
            {"value": max(values.values()) + self._random.randint(-9, 9), "band": 28},
        )
        self._publish("by_destination", {"values": values, "band": 24})
        self._publish("late_departures", {"values": fired, "band": 17})
        self.tick += 1

    def _publish(self, series: str, content: dict[str, Any]) -> None:
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
        self.log.append(json.dumps(release, separators=(",", ":")).encode())

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


class Console:
    """Everything the page complained about."""

    def __init__(self, page: Page) -> None:
        """Listen from now on."""
        self.tolerant = False
        self.complaints: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, message: ConsoleMessage) -> None:
        if self.tolerant and "net::ERR_" in message.text:
            return  # the browser's own words on a connection that was cut
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


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """One headless Chromium."""
    path = chromium()
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        await opened.close()


@pytest.fixture
def engine() -> Engine:
    """An engine with a history."""
    made = Engine()
    for _ in range(HISTORY):
        made.step()
    return made


@asynccontextmanager
async def serving(
    log: ReleaseLog, public: dict[str, Any] | None = None, port: int = 0
) -> AsyncIterator[PageServer]:
    """A server of a log, on any port or on one that must be free."""
    made = PageServer(PublicView(lambda: public or pipeline(), plan, budget, log))
    await made.start(port=port)
    try:
        assert port in {0, port_of(made)}
        yield made
    finally:
        await made.stop()


def port_of(place: PageServer | Page) -> int:
    """Where a server listens, or where a page came from."""
    return int(place.url.rstrip("/").rpartition(":")[2])


@pytest.fixture
async def server(engine: Engine) -> AsyncIterator[PageServer]:
    """A server of that engine's log."""
    async with serving(engine.log) as made:
        yield made


async def opened(
    browser: Browser, url: str, width: int = 1280, height: int = 900, **more: Any
) -> Page:
    """A page that shows releases."""
    page = await browser.new_page(viewport={"width": width, "height": height}, **more)
    await page.goto(url)
    await page.wait_for_selector(".card.scalar[data-tick]")
    return page


async def reaches(page: Page, tick: int) -> None:
    """Wait until every card shows this tick or a later one."""
    await page.wait_for_function(
        "tick => [...document.querySelectorAll('.card')].every(card => Number(card.dataset.tick) >= tick)",
        arg=tick,
    )


async def shows(page: Page, state: str) -> None:
    """Wait for the state in the header."""
    await page.wait_for_selector(f"#state[data-state={state}]")


async def no_gaps(page: Page) -> None:
    """Every release up to the shown tick was taken exactly once, in the series whose history is loaded."""
    for name in ("departures", "busiest_destination", "late_departures"):
        card = page.locator(f"[data-series={name}]")
        tick, received = await card.evaluate("card => [card.dataset.tick, card.dataset.received]")
        assert int(received) == int(tick) + 1, name


async def text(page: Page, selector: str) -> str:
    """The text of an element."""
    return await page.inner_text(selector)


async def test_values_move_with_bands_and_budget(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await browser.new_page(viewport={"width": 1280, "height": 900})
    console = Console(page)
    await page.goto(server.url)
    await page.wait_for_selector(".card.scalar[data-tick]")
    before = await text(page, "[data-series=departures] .value")

    async with engine.running():
        await reaches(page, HISTORY + 20)
    await shows(page, "live")

    assert await text(page, "[data-series=departures] .value") != before
    assert await text(page, "[data-series=departures] .band") == "± 45"
    assert "(ε = 1, δ = 0)-DP" in await text(page, ".dp")
    assert "add or remove one event" in await text(page, "#promise")
    assert await text(page, "[data-budget=spent]") == "ε 0.9"
    assert await text(page, "[data-budget=left]") == "0.1 left"
    assert await page.locator(".budget-bar .piece").count() == 4
    await no_gaps(page)
    assert console.complaints == []


async def test_bands_are_drawn(browser: Browser, server: PageServer) -> None:
    page = await opened(browser, server.url)

    band = await page.evaluate(
        """() => {
            const canvas = document.querySelector("[data-series=departures] canvas");
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let shaded = 0, line = 0;
            for (let at = 0; at < data.length; at += 4) {
                if (data[at] !== 59 && Math.abs(data[at] - 59) > 4 || data[at + 2] < 200) continue;
                if (data[at + 3] > 200) line += 1;
                else if (data[at + 3] > 30 && data[at + 3] < 80) shaded += 1;
            }
            return {shaded, line};
        }"""
    )
    assert band["line"] > 300
    assert band["shaded"] > 2 * band["line"]
    whiskers = page.locator("[data-series=by_destination] .whisker")
    assert await whiskers.count() == 15
    box = await whiskers.first.bounding_box()
    assert box is not None
    assert box["width"] > 2


async def test_noise_is_labelled_and_all_keys_can_be_filtered(
    browser: Browser, server: PageServer
) -> None:
    page = await opened(browser, server.url)

    await page.click("[data-series=by_destination] summary")
    await page.fill("[data-series=by_destination] input", "other")

    row = page.locator("[data-series=by_destination] tbody tr")
    assert await row.count() == 1
    assert "noise" in await row.inner_text()


async def test_alerts_count_and_explain_their_band(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await opened(browser, server.url)
    releases = engine.log.series_between("late_departures", 0, HORIZON)
    exact = sum("AA" in json.loads(release.body)["values"] for release in releases)

    row = page.locator("[data-series=late_departures] tbody tr", has_text="AA")
    assert await row.locator(".number").first.inner_text() == str(exact)
    assert "about 100 ± 17 events" in await text(page, "[data-series=late_departures] .note")


async def test_the_derivation_can_be_read(browser: Browser, server: PageServer) -> None:
    page = await opened(browser, server.url)

    await page.click("#proof summary")

    assert await page.locator("#proof .step").count() == 5
    assert await page.locator("#proof .conditions .ok").count() == 6
    assert "[HSV] Thm 4.10" in await text(page, "#proof")


async def test_the_page_survives_an_engine_restart(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)
        console = Console(page)
        async with engine.running():
            await reaches(page, engine.tick + 5)
        console.tolerant = True
    await shows(page, "reconnecting")
    for _ in range(30):
        engine.step()  # committed before the crash, published after it

    async with serving(restored(engine.log), port=port_of(page)):
        await reaches(page, engine.tick - 1)
        await shows(page, "live")

        await no_gaps(page)
    assert console.complaints == []


async def test_values_move_on_after_a_restart(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)
    await shows(page, "reconnecting")
    async with serving(engine.log, port=port_of(page)), engine.running():
        await reaches(page, HISTORY + 10)

        await no_gaps(page)


async def test_another_fingerprint_loads_everything_anew(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)

    other = {**pipeline("f2"), "name": "other_flights"}
    async with serving(engine.log, other, port_of(page)):
        await page.wait_for_function(
            "() => document.getElementById('name').textContent === 'other flights'"
        )


async def test_a_log_that_begins_again_loads_everything_anew(
    browser: Browser, engine: Engine
) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)

    young = Engine()
    async with serving(young.log, port=port_of(page)), young.running():
        await page.wait_for_function(
            "() => Number(document.querySelector('.card.scalar').dataset.tick) < 600"
        )
        await no_gaps(page)


async def test_the_end_is_shown(browser: Browser, engine: Engine) -> None:
    short = {**pipeline(), "clock": {**pipeline()["clock"], "horizon": HISTORY}}
    async with serving(engine.log, short) as server:
        page = await opened(browser, server.url)
        await shows(page, "ended")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_needs_no_sideways_scroll(
    browser: Browser, server: PageServer, scheme: str
) -> None:
    page = await opened(browser, server.url, 360, 740, color_scheme=scheme)
    await page.click("#proof summary")
    await page.click("[data-series=by_destination] summary")

    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360
    await picture(page, "phone-" + scheme)


async def test_a_year_of_ticks_stays_smooth(browser: Browser, engine: Engine) -> None:
    while engine.tick < HORIZON - 60:
        engine.step()
    async with serving(engine.log) as server, engine.running():
        page = await opened(browser, server.url)
        await page.click("#windows button:last-child")
        await reaches(page, HORIZON - 40)
        longest = await page.evaluate(LONGEST_FRAME)
        await picture(page, "year")
    assert longest < 500


async def test_the_screenshot_for_the_readme(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await opened(browser, server.url, 1280, 1000)
    async with engine.running():
        await reaches(page, HISTORY + 5)
    await shows(page, "live")
    target = os.environ.get("STREAM_DP_SCREENSHOT")
    taken = await page.screenshot(path=target, full_page=True)
    assert taken.startswith(b"\x89PNG")


async def picture(page: Page, name: str) -> None:
    """Further pictures beside the one of `STREAM_DP_SCREENSHOT`, for the eye."""
    target = os.environ.get("STREAM_DP_SCREENSHOT")
    if target:
        path = Path(target)
        await page.screenshot(path=path.with_stem(f"{path.stem}-{name}"), full_page=True)


def restored(log: ReleaseLog) -> ReleaseLog:
    """The log a restarted engine makes from its sink: the same bytes."""
    made = ReleaseLog()
    for release in log.since(-1):
        made.append(release.body)
    return made
