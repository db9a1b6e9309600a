"""README's shell lines, word for word, in terminals: the first block at once, from `stream-dp broker` to the ledger.

Only the broker's port is another, and the pipeline's step is shorter: a reader waits for a minute, a test does not. The
lines of docs/live_series.md and docs/messages.md are typed one by one. What must fail is typed there too: lines
that were changed.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from free_ports import free_port
from kafka.kafka_worlds import visible
from kafka.readme_lines import Page, PastedTerminal, Terminal, environment, line_with
from kafka.talking_worlds import producing

NAME = "orders"
CHANGED = (
    ("--keys DE,FR", "--keys DE,XX"),
    ("ask orders busy", "ask orders bussy"),
    ("--analyst ann", "--analyst anne"),
    ("--via kafka", "--via kafke"),
)


class Reader:
    """Somebody who does what the pages say, in a folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._environment = environment(folder)
        self.port = free_port()
        self.page = Page("README.md", self.port)
        self.live = Page("docs/live_series.md", self.port)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.first = self.page.block("stream-dp broker --port")

    def terminal(self, name: str) -> Terminal:
        made = Terminal(self.folder, name, self._environment)
        self._stack.callback(made.close)
        return made

    def writes(self) -> None:
        """Write the files of README: its pipeline, with an analyst, and its live series."""
        pipeline = self.page.fenced("yaml").replace("step: 1m", "step: 1s")
        analysts = self.live.said(r"\n    (analysts: .*?) +#")
        (self.folder / "orders.yaml").write_text(
            pipeline.replace("epsilon: 2}", f"epsilon: 2, {analysts}}}")
        )
        (self.folder / "large.yaml").write_text(self.live.file("name: large"))

    def begins(self) -> PastedTerminal:
        """Paste the first block; `run` then runs in the terminal that is returned, and the broker in its background."""
        self.writes()
        mine = PastedTerminal(self.folder, "engine", self._environment)
        self._stack.callback(mine.close)
        mine.paste(self.first)
        mine.until("The page is at")
        assert "Waiting for Kafka at" in mine.log
        return mine

    def ends(self, engine: PastedTerminal) -> None:
        """Stop the engine; what was pasted after it then runs."""
        engine.interrupted()
        engine.paste(self.page.block("stream-dp ledger"))
        engine.until(r"the journal is whole and adds up(?s:.*)\[ended: 0\]")
        assert engine.codes == [0] * (len(self.first) + 2), engine.log

    def operates(self, engine: PastedTerminal) -> None:
        """Type the operator's lines while the engine runs, in a terminal of their own."""
        mine = self.terminal("operator")
        mine.does(line_with(self.first, "export STREAM_DP_KEY_FILE"))
        url = engine.until(r"The page is at (\S+)")
        elsewhere = (
            "" if url.endswith(":8765") else f" --url {url}"
        )  # where another server has the port
        for line in self.live.block("stream-dp query preview"):
            command, hash_, comment = line.partition("  #")
            mine.does(command + elsewhere + hash_ + comment)
        mine.does(self.live.file("umask 077"))
        (self.folder / "ann.token").unlink()
        mine.does(Page("docs/messages.md", self.port).file("umask 077"))

    def asks(self, page: Page, name: str, changed: Sequence[tuple[str, str]] = ()) -> None:
        """Type an analyst's lines, in a terminal that has no key; asks wait for the first tick.

        Before the line that asks, it is typed with each of the changes, and each time it is wrong.
        """
        mine = self.terminal(name)
        asks = page.block(f"stream-dp query ask orders {name}")
        for line in [*page.block("export STREAM_DP_TOKEN_FILE"), *asks]:
            if "query ask" in line:
                asyncio.run(self.released(name))
                for old, new in changed:
                    assert old in line
                    assert mine.tries(line.replace(old, new))[0] == 2, mine.log
            said = mine.does(line)
            assert "query ask" not in line or "fired" in said

    async def released(self, series: str) -> None:
        async with asyncio.timeout(60):
            while True:
                if series in {one["series"] for one in await self.releases()}:
                    return
                await asyncio.sleep(0.1)

    async def releases(self) -> list[dict[str, object]]:
        found = await visible(self.bootstrap, f"{NAME}.releases")
        return [json.loads(one.value) for one in found]


@contextmanager
def reader(folder: Path) -> Iterator[Reader]:
    """A reader, whose terminals are closed at the end, the broker's last."""
    with ExitStack() as stack:
        yield Reader(folder, stack)


@asynccontextmanager
async def fed(one: Reader) -> AsyncIterator[None]:
    event = one.page.said(r"echo '(.*?)' \| stream-dp send").encode()

    async def feed() -> None:
        async with producing(one.bootstrap) as producer:
            while True:
                await producer.send_and_wait(NAME, event)
                await asyncio.sleep(0.02)

    feeding = asyncio.create_task(feed())
    try:
        yield
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})


async def test_a_reader_who_types_the_lines_gets_what_they_promise(tmp_path: Path) -> None:
    with reader(tmp_path) as one:
        engine = await asyncio.to_thread(one.begins)
        async with fed(one):
            await asyncio.to_thread(one.operates, engine)
            await asyncio.to_thread(one.asks, one.live, "busy", CHANGED)
            await asyncio.to_thread(one.asks, Page("docs/messages.md", one.port), "often")
        await asyncio.to_thread(one.ends, engine)
        (shown,) = re.findall(r'^ {4}(\{"v":1.*\})$', one.page.text, re.MULTILINE)
        released = await one.releases()
        assert [*json.loads(shown)] == [*next(r for r in released if r["series"] == "orders")]
