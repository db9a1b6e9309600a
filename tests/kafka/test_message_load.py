"""An engine whose analysts send the worst that they may, over Kafka and HTTP, while records flow: no tick is late.

Rules: it runs for STREAM_DP_SOAK_SECONDS (1,800) and prints its figures as JSON, also to the file
STREAM_DP_LOAD_FIGURES if that is named. A tick is due at its end and the delay, and is out at the broker's stamp of the
commit marker behind its last release. For what the machine did to others meanwhile, the engine's wait for a CPU is
subtracted: that of its main thread, and what other machines of the same host took ("steal") of the CPU that lost most.
"""

import asyncio
import json
import os
import random
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_ports import free_port
from kafka.log_worlds import log_of
from kafka.talking_worlds import Analyst, TalkingWorld, fed, producing, running, until_topics
from oracles.log_frames import COMMIT, marker, values
from unit.server.attackers import DEAF, SLOW, attacking

SECONDS = float(os.environ.get("STREAM_DP_SOAK_SECONDS", "1800"))
STEP_MS, DELAY_MS = 1_000, 1_000
MOST_LATE_MS = 250
DEAR_WATCHES, READERS = 200, 200
JUNK = (b"junk", b'{"v":1,"message":"{}","signature":"00"}', bytes(1_000), b"[" * 1_000)
PIPELINE = """
version: 1
name: {name}
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"}}
schema:
  kind: {{type: category, domain: [red, green]}}
  size: {{type: integer}}
  a: {{type: integer, nullable: true}}
  b: {{type: integer, nullable: true}}
privacy:
  epsilon: 9
  analysts: [{{name: ann, epsilon: 4}}, {{name: bob, epsilon: 4}}]
clock: {{kind: wall, step: {step}ms, delay: {delay}ms, horizon: 1000000}}
series:
  - {{name: all, statistic: count, epsilon: 1}}
"""


def stolen() -> list[int]:
    """Milliseconds that other machines of the host have taken of each CPU since the start."""
    lines = Path("/proc/stat").read_text().splitlines()
    cpus = [line.split() for line in lines if line.startswith("cpu") and line[3].isdigit()]
    return [int(cpu[8]) * 1000 // os.sysconf("SC_CLK_TCK") for cpu in cpus]


class CpuWait:
    """How long the main thread of a process has waited for a CPU, and what was stolen of each, noted every 20 ms."""

    def __init__(self, pid: int) -> None:
        self._file = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._at, self._waited, self._stolen = list[int](), list[int](), list[list[int]]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._note, daemon=True)
        self._thread.start()

    def _note(self) -> None:
        while not self._over.wait(0.02):
            try:
                waited = int(self._file.read_text().split()[1])
            except OSError:
                return
            self._waited.append(waited // 1_000_000)
            self._stolen.append(stolen())
            self._at.append(int(time.time() * 1000))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def between(self, begin: int, end: int) -> int:
        """Milliseconds of it between two moments, ms since 1970."""
        first = max(0, bisect_right(self._at, begin) - 1)
        last = min(len(self._at) - 1, bisect_left(self._at, end))
        steal = zip(self._stolen[first], self._stolen[last], strict=True)
        return max(0, self._waited[last] - self._waited[first] + max(b - a for a, b in steal))


def dear(name: str, chance: random.Random) -> dict[str, Any]:
    """A monitor whose watches overlap in three fields in every way: of what may be asked, it is hardest to price."""

    def watch(number: int) -> dict[str, Any]:
        where = []
        for one in ("size", "a", "b"):
            low = chance.randrange(1_000)
            where.append({"field": one, "at_least": low})
            where.append({"field": one, "at_most": low + chance.randrange(1_000)})
        return {"name": f"w{number}", "where": where, "above": 1_000}

    watches = [watch(number) for number in range(DEAR_WATCHES)]
    return {"name": name, "statistic": "monitor", "epsilon": "0.1", "watch": watches}


class Load:
    """What the analysts do; `sent` counts it by kind."""

    def __init__(self, world: TalkingWorld, port: int) -> None:
        self.sent: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._world, self._port = world, port
        self._chance = random.Random(1)

    async def run(self, until: float) -> None:
        """Send it all, side by side, until a moment, seconds since 1970."""
        world = self._world
        async with AsyncExitStack() as stack:
            ann = await stack.enter_async_context(Analyst(world))
            bob = await stack.enter_async_context(Analyst(world, "bob"))
            junk = await stack.enter_async_context(producing(world.kafka))
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=600))
            numbers = count()
            deeds: dict[str, tuple[float, Callable[[int], Awaitable[Any]]]] = {
                "preview": (0.1, lambda at: self._dear(ann, f"dear{at}")),
                "watch": (0.5, lambda at: self._watch(bob, at)),
                "create": (3, lambda at: self._create(bob, f"small{at}")),
                "junk": (0.01, lambda at: junk.send(world.queries, JUNK[at % len(JUNK)])),
                "http preview": (1, lambda at: self._http(client, f"asked{at}")),
                "http junk": (0.2, lambda at: self._http(client, f"junk{at}", known=False)),
            }  # fmt: skip
            await bob.send(bob.message("create", series=self._monitor()))
            await asyncio.gather(
                *(self._keep(name, pause, deed, until, numbers) for name, (pause, deed) in deeds.items()),
                self._readers(until),
            )  # fmt: skip

    async def _keep(
        self,
        name: str,
        pause: float,
        deed: Callable[[int], Awaitable[Any]],
        until: float,
        numbers: "count[int]",
    ) -> None:
        while time.time() < until:
            try:
                async with asyncio.timeout(max(1.0, until - time.time())):
                    await deed(next(numbers))
                self.sent[name] += 1
            except (TimeoutError, httpx.HTTPError):
                self.failed[name] += 1
            await asyncio.sleep(pause)

    def _monitor(self) -> dict[str, Any]:
        first = {"name": "first", "above": 1_000}
        return {
            "name": "hers", "statistic": "monitor", "epsilon": "0.5", "touch": 3, "most": 100,
            "watch": [first],
        }  # fmt: skip

    async def _dear(self, analyst: Analyst, name: str) -> None:
        await analyst.send(analyst.message("preview", series=dear(name, self._chance)))

    async def _watch(self, analyst: Analyst, at: int) -> None:
        watch = {"name": f"w{at}", "above": 500}
        await analyst.send(analyst.message("watch", series="hers", watch=watch))
        await analyst.send(analyst.message("unwatch", series="hers", watch=watch["name"]))

    async def _create(self, analyst: Analyst, name: str) -> None:
        series = {"name": name, "statistic": "count", "epsilon": "0.001"}
        await analyst.send(analyst.message("create", series=series))
        await analyst.send(analyst.message("halt", series=name))

    async def _http(self, client: httpx.AsyncClient, name: str, known: bool = True) -> None:
        bearer = {"Authorization": f"Bearer {self._world.token('ann' if known else 'nobody')}"}
        url = f"http://127.0.0.1:{self._port}/api/queries/preview"
        answer = await client.post(url, json=dear(name, self._chance), headers=bearer)
        self.sent[f"http {answer.status_code}"] += 1

    async def _readers(self, until: float) -> None:
        """Readers that never read, and those that never finish asking, come back every ten seconds."""

        def come() -> None:
            with attacking(self._port, (*SLOW, *DEAF), READERS):
                time.sleep(max(0.0, min(10.0, until - time.time())))

        while time.time() < until:
            try:
                await asyncio.to_thread(come)
                self.sent["silent readers"] += READERS
            except OSError:
                self.failed["silent readers"] += 1
                await asyncio.sleep(1)


def out_at(kafka: str, topic: str) -> dict[int, int]:
    """When each tick was out, by its end, ms since 1970: stamps of the markers behind its releases."""
    found: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}
    for frame in log_of(kafka, topic)[0]:
        if not frame.control:
            said = [json.loads(value)["end"] for value in values(frame) if value is not None]
            ends = [round(datetime.fromisoformat(end).timestamp() * 1000) for end in said]
            waiting.setdefault(frame.producer, []).extend(ends)
            continue
        ends = waiting.pop(frame.producer, [])
        if marker(frame) == COMMIT:
            found.update(dict.fromkeys(ends, frame.stamp))
    return found


def lateness(out: dict[int, int], begin: int, end: int, wait: CpuWait) -> dict[int, int]:
    """By how many ms each tick was late, less the wait, by when it was due; one that is not out is late at `end`."""
    first = min(out)
    ends = range(first, end - DELAY_MS, STEP_MS)
    due = [(one + DELAY_MS, out.get(one, end)) for one in ends if one + DELAY_MS >= begin]
    return {at: told - at - wait.between(at, told) for at, told in due}


@pytest.mark.slow
@pytest.mark.timeout(0)
async def test_no_tick_is_late_whatever_analysts_send(kafka: str, tmp_path: Path) -> None:
    world, port = await TalkingWorld.made(tmp_path, kafka), free_port()
    world.file.write_text(
        PIPELINE.format(
            name=world.name, topic=world.topic, kafka=kafka, step=STEP_MS, delay=DELAY_MS
        )
    )
    load = Load(world, port)
    async with fed(world), running(world, "--serve", "--port", str(port)) as run:
        await until_topics(world)
        wait = CpuWait(run.pid)
        await asyncio.sleep(5)  # its first ticks
        begin = int(time.time() * 1000)
        await load.run(begin / 1000 + SECONDS)
        end, still = int(time.time() * 1000), run.poll()
        wait.stop()
        out = await asyncio.to_thread(out_at, kafka, f"{world.name}.releases")
        answered = await answers(world)
    by_tick = lateness(out, begin, end, wait)
    late = sorted(by_tick.values())
    worst = sorted(by_tick, key=by_tick.__getitem__)[-5:]
    figures = {
        "seconds": SECONDS, "ticks": len(late), "last out": max(out) - begin,
        "late ms": {"p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "max": late[-1]},
        "worst": {datetime.fromtimestamp(at / 1000, UTC).isoformat(): by_tick[at] for at in worst},
        "cpu wait ms": wait.between(begin, end), "sent": dict(load.sent), "failed": dict(load.failed),
        "answered": answered,
    }  # fmt: skip
    told(figures)
    assert still is None
    assert late[-1] <= MOST_LATE_MS, figures


def told(figures: dict[str, Any]) -> None:
    print(json.dumps(figures))
    if file := os.environ.get("STREAM_DP_LOAD_FIGURES"):
        Path(file).write_text(json.dumps(figures, indent=1))


async def answers(world: TalkingWorld) -> dict[str, int]:
    """How many answers there are by what was asked and, where it was refused, the kind of refusal."""
    found: Counter[str] = Counter()
    for one in await world.public():
        said = json.loads(one.body)
        found[f"{said.get('do', 'junk')} {said.get('refused', {}).get('kind', 'done')}"] += 1
    return dict(found)
