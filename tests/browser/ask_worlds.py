"""What the tests of asking share: a real engine in memory whose ticks a test lets go, its page, and analysts' tabs.

Rules: exact sums are numbers of ten digits under noise as wide, and the seeds are the same in every run, so that one
of them in any answer, on the page or on the console is no chance. A restart is a new engine on what the old one made
durable, on the same port, with the same list of tokens.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate, count
from typing import Any

from browser.page_worlds import PATIENCE_MS, Console, port_of
from free_ports import free_port
from playwright.async_api import Browser, Page, Response
from unit.live.live_series_worlds import SEALER, Stopping, World

from stream_dp.engine.messages.issued_tokens import id_of
from stream_dp.engine.ports import Batch, Ports
from stream_dp.files.memory import MemoryAnswers, MemoryJournal, MemorySink
from stream_dp.operate.keys import issued_for
from stream_dp.operate.run.running import Run
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.server.access import OPEN, Access
from stream_dp.server.server import PageServer
from stream_dp.testing.manual_clock import ManualClock

NOW = 1_790_000_000_000
TICKS = 24
ORDERS = 3
LOOK = "() => document.dispatchEvent(new Event('visibilitychange'))"
HOLDS = """
  const ask = window.fetch;
  Object.assign(window, { held: [], holding: null, setInterval: () => 0 });
  window.fetch = async (...request) => {
    const answer = await ask(...request);
    if (request[0] !== window.holding) return answer;
    const said = await answer.json();
    await new Promise((then) => window.held.push(then));
    return { ok: answer.ok, status: answer.status, json: async () => said };
  };
"""
"""From when `holding` is a path on, its answers wait in `held`; the page asks for nothing by the clock."""
GIVEN = """async () => {
  window.held.forEach((give) => give());
  await new Promise((then) => setTimeout(then));  // nothing but steps of the loop is left of them
}"""
NOWHERE = "Atlantis-471104"
SHOP: dict[str, Any] = {
    "version": "1",
    "name": "shop",
    "source": {"kind": "file", "path": "unused.jsonl"},
    "schema": {
        "time": {"type": "time"},
        "country": {"type": "category", "domain": ["DE", "FR", "CH"]},
        "amount": {"type": "integer"},
        "gift": {"type": "boolean"},
    },
    "privacy": {
        "epsilon": "6",
        "analysts": [{"name": "ann", "epsilon": "1"}, {"name": "bob", "epsilon": "1/2"}],
    },
    "clock": {
        "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": str(TICKS),
    },
    "series": [
        {"name": "orders", "statistic": "count", "epsilon": "1"},
        {
            "name": "watched", "statistic": "monitor", "epsilon": "1", "ask": "anyone",
            "watch": [{"name": "large", "above": "100000"}],
        },
    ],
}  # fmt: skip


_GIFTS = {"where": [{"field": "gift", "equals": "false"}]}
MANY: dict[str, Any] = {
    **SHOP,
    "schema": {**SHOP["schema"], "items": {"type": "integer", "nullable": "true"}},
    "series": [
        {"name": "rate_no_gift", "statistic": "count", "windows": ["3h"], "epsilon": "0.5", **_GIFTS},
        {"name": "orders_no_gift", "statistic": "count", "epsilon": "0.5", **_GIFTS},
        {"name": "rate", "statistic": "count", "windows": ["3h", "ever"], "epsilon": "0.5"},
        {"name": "orders", "statistic": "count", "epsilon": "0.5"},
        {"name": "amounts", "statistic": "sum", "of": "amount", "clamp": ["0", "100"], "epsilon": "0.5"},
        {"name": "by_country", "statistic": "histogram", "by": "country", "method": "tree", "epsilon": "0.5"},
    ],
}  # fmt: skip
"""The shop with series that differ in a window, a field, or a condition."""


def amount(tick: int, order: int) -> int:
    """What an order is worth: nine digits."""
    return 314_159_265 + 7_654_321 * tick + 1_234_567 * order


EXACT = [
    f"{total}"
    for total in accumulate(
        sum(amount(tick, order) for order in range(ORDERS)) for tick in range(TICKS)
    )
][1:]
"""The exact sums so far, of ten digits from the second tick on."""


def batches() -> list[Batch]:
    """Two partitions, one tick a batch; in each tick some orders, one from nowhere that is known."""
    found, position = list[Batch](), [0, 0]
    for tick in range(TICKS):
        for partition in (0, 1):
            events = [
                json.dumps(
                    {
                        "time": f"2026-01-01T{tick:02}:30:00Z",
                        "country": ("DE", "FR", NOWHERE)[order],
                        "amount": amount(tick, order),
                        "gift": order == 1,
                    }
                ).encode()
                for order in range(ORDERS)
                if partition == 0
            ]
            labels = range(position[partition], position[partition] + len(events))
            position[partition] += len(events) + 1
            found.append(Batch(partition, events, labels, position[partition], mark=tick))
    return found


class Shop:
    """An engine, its page server, and what outlives both."""

    def __init__(self, pipeline: dict[str, Any] = SHOP, access: Access = OPEN) -> None:
        """Nothing runs yet; the environment names the list of tokens."""
        numbers = count()
        self.world = World(pipeline, seeds=lambda: sha256(b"%d" % next(numbers)).digest())
        self.access = access
        self.built = build(PipelineSpec.model_validate(pipeline))
        self.answers: list[bytes] = []
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self.tick = 1

    def token(self, analyst: str, days: int = 30, made: int = NOW) -> str:
        return issued_for(self.built.spec, SEALER).make(analyst, days, made)[1]

    def revoke(self, token: str) -> None:
        """Take a token back, as the operator does."""
        issued_for(self.built.spec, SEALER).revoke(id_of(token), NOW)

    async def __aenter__(self) -> "Shop":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop both."""
        await self.stop()

    async def start(self) -> None:
        """A new engine on what is durable, and its page, where the old one was."""
        self.source = Stopping(self.tick, batches())
        ports = Ports(
            self.source, MemoryJournal(self.world.store), MemorySink(self.world.bodies), ManualClock(NOW), SEALER,
            self.world.seed, None, MemoryAnswers(self.answers),
        )  # fmt: skip
        self.run = Run(self.built, ports)
        self._task = asyncio.create_task(self.run.until_end())
        await self.run.ready.wait()
        self.server = PageServer(self.run.view(), self.access)
        await self.server.start(port=self.port)
        assert port_of(self.server) == self.port
        await self.public(self.tick)

    async def stop(self) -> None:
        self.run.stop()
        await self._task
        await self.server.stop()

    async def go(self, ticks: int = 1) -> None:
        """Let so many ticks pass, and wait until they are public."""
        self.tick += ticks
        self.source.go(self.tick)
        await self.public(self.tick)

    async def public(self, tick: int) -> None:
        while self.run.ticks <= tick:  # noqa: ASYNC110 - steps of the loop, no time
            await asyncio.sleep(0)

    def latest(self, series: str) -> Any:
        told = [json.loads(body) for body in self.world.bodies]
        return [each for each in told if each["series"] == series][-1]

    @property
    def running(self) -> dict[str, str]:
        """The analysts' series that run, and who pays."""
        running = self.run.engine.admission.subledgers.running
        return {name: who for name, (who, _) in running.items() if who}


class Tab:
    """An analyst's tab, with all that it was sent and all that its console says."""

    def __init__(self, page: Page) -> None:
        self.page, self.console = page, Console(page)
        self._heard: list[Response] = []
        self.sent: list[str] = []
        page.on("response", lambda response: self._heard.append(response))
        page.on("request", lambda request: self.sent.append(request.url))

    @classmethod
    async def opened(
        cls, browser: Browser, shop: Shop, analyst: str = "", width: int = 1280
    ) -> "Tab":
        """A tab of its own, which shows the numbers; the analyst has logged in."""
        context = await browser.new_context(viewport={"width": width, "height": 900})
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        tab = cls(page)
        await page.goto(shop.url)
        await page.wait_for_selector("#ask-token")
        if analyst:
            await tab.enters(shop.token(analyst))
        return tab

    async def enters(self, token: str) -> None:
        await self.page.focus("#ask-token")
        await self.page.keyboard.type(token)
        await self.page.keyboard.press("Enter")
        await self.page.wait_for_selector(".ask-form")

    async def fills(self, statistic: str, more: dict[str, str]) -> None:
        await self.page.select_option(".ask-form [name=statistic]", statistic)
        for name, value in more.items():
            field = self.page.locator(f".ask-form [name='{name}']").first
            if await field.evaluate("field => field.tagName") == "SELECT":
                await field.select_option(value)
            else:
                await field.fill(value)

    async def only_gifts(self, which: str) -> None:
        await self.page.click("text=Add a filter")
        await self.page.select_option("[name=where-field]", "gift")
        await self.page.select_option("[name=where-value]", which)

    async def by(self, which: str, value: str) -> None:
        await self.page.check(f"#ask-exact-{which}")
        await self.page.fill(f".ask-form [name={which}]", value)

    async def prices(self) -> str:
        await self.page.evaluate("() => document.querySelector('.ask-result').replaceChildren()")
        await self.page.click(".ask-form button[type=submit]")
        await self.page.wait_for_selector(".ask-answer h3, .ask-result .ask-complaint")
        return await self.page.inner_text(".ask-result")

    async def question(self, statistic: str, name: str, epsilon: str) -> None:
        await self.fills(statistic, {"name": name})
        await self.by("epsilon", epsilon)
        assert f"It costs ε {epsilon}" in await self.prices()
        assert await self.asks() == name

    async def left(self, epsilon: str) -> None:
        await self.page.locator(
            "[data-ask=left]", has_text=re.compile(f"^ε {epsilon} left$")
        ).wait_for()

    async def ends(self, name: str) -> None:
        card = self.page.locator(f".card[data-series={name}]")
        await card.get_by_role("button", name="End this question").click()
        await card.get_by_role("button", name="End it for good").click()
        await self.page.wait_for_selector(f"[data-query={name}].halted", state="attached")

    async def asks(self) -> str:
        name = await self.page.input_value(".ask-form [name=name]")
        await self.page.click(".ask-answer button.primary")
        await self.page.wait_for_selector(".ask-done")
        await self.page.wait_for_selector(f".card[data-series='{name}']")
        return name

    async def everything(self) -> Sequence[str]:
        """All texts that the tab has: answers, page, console, addresses."""
        found = [await self.page.content(), *self.console.complaints, *self.sent]
        heard = [each for each in self._heard if "/api/stream" not in each.url and each.ok]
        return [*found, *[await each.text() for each in heard]]


async def nothing_exact(tab: Tab) -> list[str]:
    """What a tab has been told that nobody may learn: exact sums, a value of no domain."""
    texts = await tab.everything()
    plain = [text.replace(",", "").replace("\N{NARROW NO-BREAK SPACE}", "") for text in texts]
    assert len(plain) > 10
    return [secret for secret in (*EXACT, NOWHERE) if any(secret in text for text in plain)]
