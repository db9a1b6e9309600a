"""How much a page that stays open holds: ticks of a second over many hours, as fast as the page takes them.

Run: PYTHONPATH=tests python tests/benchmarks/bench_page.py [HOURS [RANGE]] (12 hours, the page's own range).
The releases are made here; server, stream and page are those that users have. Chromium counts what JavaScript
holds, after it has collected its garbage.
"""

import asyncio
import json
import random
import sys
import time
from datetime import timedelta
from typing import Any

from browser.page_worlds import FLAGS, START, Engine, chromium, described, pipeline, serving
from playwright.async_api import Page, async_playwright

from stream_dp.journal.release import release_of

HOUR = 3600  # ticks
AT_ONCE = 500  # ticks that are published before the page is waited for; fewer than a stream keeps
COUNTS = 6
KEYS = [f"k{key}" for key in range(20)]
POINTS = """async () => {
    const { board } = await import("/app.js");
    return Math.max(...[...board.cards.values()].map((card) => card.points?.tick.length ?? 0));
}"""
WINDOWS = ("tick", "1m", "1h")


class Seconds(Engine):
    """Publishes a tick of a second: counts, one of them with windows, and a histogram with keys that are shown."""

    def publish(self, series: str, content: dict[str, Any]) -> None:
        end = (START + timedelta(seconds=self.tick + 1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        said = {"v": 1, "sequence": self._sequence, "series": series, "tick": self.tick, "end": end}
        self._sequence += 1
        body = json.dumps({**said, **content, "confidence": 0.95}, separators=(",", ":"))
        self.log.append(release_of(body.encode()))

    def step(self) -> None:
        drawn = random.Random(self.tick)
        for place in range(COUNTS):
            self.publish(f"s{place}", {"value": self.tick + drawn.randint(-9, 9), "band": 12})
        self.publish(
            "rate",
            {"windows": {name: {"value": drawn.randint(0, 99), "band": 7} for name in WINDOWS}},
        )
        self.publish(
            "by_door",
            {"values": {key: self.tick + drawn.randint(-9, 9) for key in KEYS}, "band": 12},
        )
        self.tick += 1


def public(hours: int) -> dict[str, Any]:
    clock = {**pipeline()["clock"], "step": 1, "horizon": HOUR * hours}
    counts = [described("count", f"s{place}") for place in range(COUNTS)]
    rate = described("count", "rate", windows=["1m", "1h"])
    doors = {**described("histogram", "by_door", by="door"), "domain": KEYS}
    return {**pipeline(), "clock": clock, "series": [*counts, rate, doors]}


async def heap(page: Page) -> float:
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    for _ in range(2):  # what the first frees may free more
        await session.send("HeapProfiler.collectGarbage")
    found = {
        each["name"]: each["value"]
        for each in (await session.send("Performance.getMetrics"))["metrics"]
    }
    await session.detach()
    return float(found["JSHeapUsedSize"]) / 1e6


async def main(hours: int, shown: str) -> None:
    engine = Seconds()
    engine.step()
    async with async_playwright() as playwright, serving(engine.log, public(hours)) as server:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(600_000)
        await page.goto(f"{server.url}?keys.by_door=k1&keys.by_door=k2&last={shown}")
        began = time.perf_counter()
        for hour in range(hours):
            while engine.tick < HOUR * (hour + 1):
                for _ in range(min(AT_ONCE, HOUR * (hour + 1) - engine.tick)):
                    engine.step()
                    await asyncio.sleep(0)
                await page.wait_for_function(
                    "last => Number(document.documentElement.dataset.sequence) >= last",
                    arg=engine.log.last_sequence,
                )
            points, took = await page.evaluate(POINTS), time.perf_counter() - began
            said = f"{await heap(page):.1f} MB, {points:,} points of a series, {took:.0f} s"
            print(f"{hour + 1} h: {said}", flush=True)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(int((sys.argv[1:2] or ["12"])[0]), (sys.argv[2:3] or [""])[0]))
