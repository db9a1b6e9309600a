"""Three lives of an engine, with creations, a halt, several ticks a commit, and two attempts that never became durable.

Every seed asked of the port and every use of one is noted. `check` compares them with the commits, life by life.
"""

import asyncio
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from live_acts import create_series, halt_series
from unit.journal.runtime_worlds import Crash
from unit.live.live_series_worlds import HORIZON, PIPELINE, Stopping, World

from stream_dp.engine.engine import Engine
from stream_dp.errors import WorldError
from stream_dp.files.memory import MemoryJournal
from stream_dp.journal.commit import Commit, Created, Halted
from stream_dp.noise import NoiseStream

Use: TypeAlias = tuple[bytes, int]  # a seed, and the number of the series it is used for
FIRST_SERIES = {0, 1}
TWO_SERIES = PIPELINE | {
    "series": [
        {"name": "orders", "statistic": "count", "epsilon": "0.5"},
        {"name": "late", "statistic": "alerts", "by": "country", "threshold": "5", "epsilon": "0.5"},
    ],
}  # fmt: skip


@dataclass
class Life:
    """One engine: the seeds it was given, how it used them, and its commits, durable or not."""

    before: list[Commit]
    given: list[bytes] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    attempts: list[Commit] = field(default_factory=list)
    durable: list[Commit] = field(default_factory=list)

    @property
    def drawing(self) -> list[Commit]:
        """The commits for which noise was drawn: for ticks before they are durable, for first states after."""
        return [commit for commit in self.attempts if commit.ticks or commit in self.durable]


@dataclass
class Lives:
    lives: list[Life] = field(default_factory=list)
    world: World = field(init=False)

    def __post_init__(self) -> None:
        numbers = itertools.count()
        self.world = World(
            TWO_SERIES,
            seeds=lambda: hashlib.sha256(b"%d" % next(numbers)).digest(),
            noise=self._noise,
        )

    def _noise(self, seed: bytes, number: int) -> Any:
        self.lives[-1].uses.append((seed, number))
        return NoiseStream(seed, number)

    async def live(
        self, fails: Callable[[Commit], bool], then: Callable[[Engine, int], Any]
    ) -> None:
        """Run an engine until a commit fails or the stream ends; `then` is what is asked after a tick."""
        life = Life(self.world.commits())
        self.lives.append(life)
        handed = len(self.world.drawn)

        class Journal(MemoryJournal):
            async def append(self, commit: Commit, sealed: bytes) -> None:
                life.attempts.append(commit)
                if fails(commit):
                    raise Crash
                await super().append(commit, sealed)
                life.durable.append(commit)

        source = Stopping(-1)
        engine = self.world.engine(source, Journal(self.world.store))
        run = asyncio.create_task(engine.run())
        ready = asyncio.create_task(engine.ready.wait())
        await asyncio.wait({ready, run}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        try:
            for tick in (*range(1, HORIZON, 3), HORIZON - 1):
                source.go(tick)
                await self.world.until(tick, run)
                if not run.done():
                    await then(engine, tick)
        except WorldError:  # the engine ended while it did this
            assert run.done()
        finally:
            source.go(HORIZON)
            try:
                await run
            finally:
                life.given = self.world.drawn[handed:]


def definition(name: str, **more: Any) -> bytes:
    return json.dumps({"name": name, "statistic": "count", "epsilon": "0.3"} | more).encode()


async def three_lives() -> Lives:
    """The first dies with ticks in hand, the second while it creates a series, the third lives to the end."""
    found = Lives()

    async def ask(engine: Engine, tick: int) -> None:
        names = engine.admission.names
        if tick >= 1 and "a" not in names:
            await create_series(engine, definition("a"))
        if tick >= 7 and "b" not in names:
            await create_series(
                engine, definition("b", statistic="histogram", by="country", method="tree")
            )
        if tick >= 10 and "a" in {s.series.name for s in engine.admission.registry.live}:
            await halt_series(engine, "a")

    for fails in (
        lambda commit: 4 in commit.ticks,
        lambda commit: any(isinstance(c, Created) and c.number == 3 for c in commit.changes),
    ):
        try:
            await found.live(fails, ask)
        except Crash:
            continue
        raise AssertionError("the engine should have died")
    await found.live(lambda commit: False, ask)
    return found


def check(found: Lives) -> None:
    """Every seed of every commit came from the port; each was asked for once and used for one thing."""
    for life in found.lives:
        assert [seed for commit in life.attempts for seed in commit.seeds] == life.given
        replayed, running = uses(life.before, set())
        fresh, _ = uses(life.drawing, running)
        assert Counter(life.uses) == Counter(replayed[_after_snapshot(life.before) :] + fresh)
        assert len(set(fresh)) == len(fresh)
    every = [seed for life in found.lives for commit in life.attempts for seed in commit.seeds]
    assert len(set(every)) == len(every)
    assert {len(seed) for seed in every} == {32}
    durable = {seed for commit in found.world.commits() for seed in commit.seeds}
    assert durable < set(every)


def uses(commits: list[Commit], running: set[int]) -> tuple[list[Use], set[int]]:
    """What the seeds of these commits are for, and which series run after them."""
    found, running = list[Use](), set(running)
    for commit in commits:
        if commit.header is not None:
            running |= FIRST_SERIES
            found += [(commit.seeds[0], number) for number in sorted(running)]
        found += [(seed, number) for seed in commit.seeds if commit.ticks for number in running]
        for change in commit.changes:
            if isinstance(change, Created):
                running.add(change.number)
                found.append((commit.seeds[0], change.number))
            elif isinstance(change, Halted):
                running.remove(change.number)
    return found, running


def _after_snapshot(commits: list[Commit]) -> int:
    """How many uses lie up to the last snapshot: recovery does not repeat them."""
    places = [place for place, commit in enumerate(commits) if commit.snapshot is not None]
    return len(uses(commits[: places[-1] + 1], set())[0]) if places else 0
