"""A pipeline in a program of one's own: its plan, a run, and the releases as they become public.

Rules: the same engine, journal and sink as `stream-dp run`. What is handed out has been published before: it is taken
behind the sink. No signal handler is set; that is the program's business.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stream_dp.client.frames import plan_html
from stream_dp.client.public_release import PublicRelease
from stream_dp.core.derivation import Derivation
from stream_dp.engine.ports import Ports, Sink, closing
from stream_dp.errors import UsageError
from stream_dp.journal.commit import Release
from stream_dp.journal.release import KeysUnknown, ReleaseReader, release_of
from stream_dp.kafka.log.lease import Holder
from stream_dp.operate.audit.journal_access import built_of, require_own
from stream_dp.operate.budget_view import whole_plan_json
from stream_dp.operate.check_pipeline import require_fitting
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.published_bodies import find_keys
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load, load_text
from stream_dp.python.statistic import Statistic, plain


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pipeline guarantees and what errors to expect; `print` shows it.

    `values` are plain, as `stream-dp plan --json` prints them. `derivation` says why the series of the file guarantee
    what they do, `promise` why that holds, by one filter, for all that is asked later too.
    """

    values: Mapping[str, Any]
    derivation: Derivation
    promise: Derivation

    def __str__(self) -> str:
        """Return the promise as a tree, then each series with its price and the error at its last tick."""
        prices = [_price(series) for series in self.values["series"]]
        return "\n".join([str(self.promise), *prices])

    def _repr_html_(self) -> str:
        return plan_html(self.values)


def _price(series: Mapping[str, Any]) -> str:
    about, error = f"{series['name']}: {series['mechanism']}, epsilon {series['epsilon']}", ""
    if series["predicted_error"]:
        last = series["predicted_error"][-1]
        windows = [
            (w["window"], w["predicted_error"][-1]["error"]) for w in series.get("windows", [])
        ]
        half = ", ".join(f"{error} ({window})" for window, error in windows) or last["error"]
        error = f", error {half} at tick {last['tick']} with confidence {last['confidence']}"
    return f"{about}{error} ({series['why']})"


class Pipeline:
    """A pipeline, ready to run in this program: of a file (`Pipeline.load`), or written in Python.

    In Python its keys are those of a pipeline file, and its series statistics with a name and a price:
    ``Pipeline(name="clicks", source={...}, ..., series=[Count(name="clicks", epsilon="0.5")])``. `to_yaml` returns the
    file that says the same.

    Privacy claim: that of the plan, for everything that is ever published, across runs and crashes. It runs once at a
    time; a second engine on the same pipeline takes over, and this one ends with `FailClosed`.

    Examples
    --------
    >>> import stream_dp as sdp
    >>> pipeline = sdp.Pipeline.load("examples/01_flights/pipeline.yaml")
    >>> pipeline.name, pipeline.plan().values["neighbors"]
    ('flights', 'add_remove')
    """

    def __init__(
        self,
        *,
        file: str | Path | None = None,
        series: Sequence[Statistic | Mapping[str, Any]] = (),
        folder: str | Path = ".",
        key_file: str | Path | None = None,
        **parts: Any,
    ) -> None:
        """Derive its guarantee and check it as `load` does: of a `file`, or of what a file in `folder` would say.

        `series` are statistics, or entries as in a file. `parts` are the other keys of a file: ``name``, ``source``,
        ``schema``, ``privacy``, ``clock`` and so on. Errors and `key_file` are those of `load`.
        """
        if file is None:
            whole = plain({"version": 1, **parts, "series": [_entry(each) for each in series]})
            self._text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
            self._built = build(load_text(self._text, Path(folder), "pipeline"))
        else:
            self._built = build(load(file))
            self._text = Path(file).read_text(encoding="utf-8")
        self._key_file = None if key_file is None else Path(key_file)
        self._busy = False
        self._running: tuple[Run, asyncio.AbstractEventLoop] | None = None

    def to_yaml(self) -> str:
        """Return the text of its pipeline file; paths in it are relative to the folder in which it is kept."""
        return self._text

    @classmethod
    def load(cls, path: str | Path, *, key_file: str | Path | None = None) -> "Pipeline":
        """Read the YAML file at `path`, derive its guarantee and check that its series fit its budget; open nothing.

        Paths in it are relative to its folder. `key_file` holds the operator's 32-byte key (mode 0600); without it,
        the one that `STREAM_DP_KEY_FILE` names. Raises UsageError with every problem of the file, its line and column;
        BudgetRefused where its series need more than its budget, and NotDerivable where no rule covers them.
        """
        return cls(file=path, key_file=key_file)

    @property
    def name(self) -> str:
        return self._built.spec.name

    def plan(self) -> Plan:
        """Return the guarantee, its derivation, prices and predicted errors; reads no data."""
        return Plan(whole_plan_json(self._built), self._built.derivation, self._built.promise)

    def run(
        self,
        on_release: Callable[[PublicRelease], None] = lambda release: None,
        *,
        accept_new_guarantee: str = "",
        check: bool = True,
    ) -> int:
        """Run until the horizon, the end of the source or `stop()`, and return how many releases were published.

        It goes on where the journal ends. `on_release` is called with each release once it is public, in order. Under
        the name `accept_new_guarantee` an empty journal may begin although the pipeline ran on this source before: the
        old and the new guarantee add up, and the journal records the name. With `check` no new ledger begins on a
        source that has records of which none fits the schema.

        Raises UsageError without an operator key or a record that fits, and where this pipeline runs already;
        FailClosed and WorldError where the engine stopped: what was published stays valid.
        """
        return asyncio.run(
            self.run_async(on_release, accept_new_guarantee=accept_new_guarantee, check=check)
        )

    async def run_async(
        self,
        on_release: Callable[[PublicRelease], None] = lambda release: None,
        *,
        accept_new_guarantee: str = "",
        check: bool = True,
    ) -> int:
        """Run on the current event loop; arguments, result and errors are those of `run`."""
        published = 0
        async with self.running(accept_new_guarantee=accept_new_guarantee, check=check) as releases:
            async for release in releases:
                published += 1
                on_release(release)
        return published

    @asynccontextmanager
    async def running(
        self, *, accept_new_guarantee: str = "", check: bool = True
    ) -> AsyncGenerator[AsyncIterator[PublicRelease], None]:
        """Run while the block runs, and hand out what becomes public; leaving the block ends the run.

        `accept_new_guarantee`, `check` and the errors are those of `run`. The iterator yields the releases that this
        run makes public, in order; those that are not yet taken wait in memory. It ends with the run, and raises what
        the run raises.
        """
        if self._busy:
            raise UsageError(f"{self.name} already runs; stop it first")
        self._busy = True
        try:
            waiting: asyncio.Queue[PublicRelease | None] = asyncio.Queue()
            run = await self._open(waiting, accept_new_guarantee, check)
            self._running = (run, asyncio.get_running_loop())
            async with _engine(run, waiting) as engine:
                yield _until_end(waiting, engine)
        finally:
            self._busy, self._running = False, None

    def stop(self) -> None:
        """End the run after the commit in flight; does nothing where none runs. Any thread may call it."""
        if self._running is not None:
            run, loop = self._running
            loop.call_soon_threadsafe(run.stop)

    async def _open(
        self, waiting: "asyncio.Queue[PublicRelease | None]", accepted: str, check: bool
    ) -> Run:
        sealer = sealer_for(self._built.spec, self._key_file)
        self._built, _ = await built_of(self._built.file or self._built.spec, sealer)
        if await require_own(self._built, sealer, private=True) and check:
            await require_fitting(self._built.spec, sealer)
        holder, handed = Holder(), _Handed(waiting.put_nowait, ReleaseReader(self._built.keys))

        def watched() -> Ports:
            ports = open_ports(self._built.spec, sealer, accepted, holder)
            return replace(ports, sink=_Watched(ports.sink, handed))

        return Run(self._built, watched(), keep=1, accepted=accepted, again=watched)


def _entry(series: Statistic | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"statistic": series.word, **series.keys} if isinstance(series, Statistic) else series


@asynccontextmanager
async def _engine(
    run: Run, waiting: "asyncio.Queue[PublicRelease | None]"
) -> AsyncGenerator["asyncio.Task[None]", None]:
    """Yield the engine's task, which ends with the block; None in `waiting` says that it has ended."""
    engine = asyncio.create_task(run.until_end())
    engine.add_done_callback(lambda _: waiting.put_nowait(None))
    try:
        yield engine
        run.stop()
        await engine
    except asyncio.CancelledError:
        engine.cancel()
        raise
    finally:
        run.stop()
        await asyncio.wait({engine})
        if not engine.cancelled():
            engine.exception()  # seen: what ended the block says why


async def _until_end(
    waiting: "asyncio.Queue[PublicRelease | None]", engine: "asyncio.Task[None]"
) -> AsyncIterator[PublicRelease]:
    while (release := await waiting.get()) is not None:
        yield release
    await engine  # its error, if it has one


@dataclass(slots=True)
class _Handed:
    """Hands on what becomes visible in all attempts of a run, once, and not what was visible before it began."""

    hand_on: Callable[[PublicRelease], None]
    reader: ReleaseReader
    last: int | None = None

    def begin(self, head: bytes | None) -> None:
        if self.last is None:
            self.last = -1 if head is None else release_of(head).sequence

    async def take(self, sequence: int, body: bytes, sink: Sink) -> None:
        if self.last is None or sequence <= self.last:
            return
        try:
            release = PublicRelease.of(body, self.reader.read)
        except KeysUnknown:
            await find_keys(self.reader, body, sink.read())
            release = PublicRelease.of(body, self.reader.read)
        self.last = sequence
        self.hand_on(release)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A sink whose releases are handed on once they are visible, those too that only the next attempt reads."""

    sink: Sink
    handed: _Handed

    async def open(self) -> None:
        await self.sink.open()

    async def last(self) -> bytes | None:
        head = await self.sink.last()
        self.handed.begin(head)
        return head

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        async with closing(self.sink.read(beyond)) as bodies:
            async for body in bodies:
                await self.handed.take(release_of(body).sequence, body, self.sink)
                yield body

    async def publish(self, releases: Sequence[Release]) -> None:
        await self.sink.publish(releases)
        for release in releases:
            await self.handed.take(release.sequence, release.body, self.sink)

    async def close(self) -> None:
        await self.sink.close()
