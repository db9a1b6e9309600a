"""Series created while the engine runs, across crashes and ends: one version, and journals that are refused."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from live_acts import create_series, halt_series
from msgspec.structs import replace as changed
from unit.journal.runtime_worlds import Crash, CrashingJournal, Fuse
from unit.live.live_series_steps import at, question, running
from unit.live.live_series_worlds import HORIZON, SEALER, Stopping, World, batches

from stream_dp.engine.engine import Engine
from stream_dp.engine.history import read_summary
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files.memory import MemoryJournal, MemorySource
from stream_dp.journal.commit import Commit, Created, Halted
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.statistics.count import CountSeries
from stream_dp.statistics.histogram import HistogramSeries
from stream_dp.statistics.parts.choice import Choice, Setting

Step = Callable[[Engine, int], Any]


async def crashing(world: World, fuse: Fuse, step: Step = at) -> None:
    """Do the step behind every tick, up to a crash before or after a commit; what is there is not done again."""
    source = Stopping(-1)
    engine = world.engine(source, CrashingJournal(world.store, fuse))
    run = asyncio.create_task(engine.run())
    try:
        for tick in range(HORIZON):
            if run.done():
                break
            source.go(tick)
            await world.until(tick, run)
            if not run.done() and engine.ready.is_set():
                await step(engine, tick)
    except (UsageError, WorldError, Crash):
        pass
    await run


async def restarted(world: World, place: int, step: Step = at) -> int:
    """Run to the end with a crash at this place; how many crashes there were. No byte changes that was public."""
    fuse, crashes = Fuse(place), 0
    while True:
        before = list(world.bodies)
        try:
            await crashing(world, fuse, step)
        except Crash:
            crashes += 1
        else:
            return crashes
        finally:
            assert world.bodies[: len(before)] == before


async def test_a_crash_anywhere_leaves_one_version_of_everything() -> None:
    crashes = 0
    for place in range(1, 60):
        world = World()
        crashes += await restarted(world, place)
        sequences = [json.loads(body)["sequence"] for body in world.bodies]
        assert sequences == list(range(1, len(sequences) + 1))
        assert [r.body for c in world.commits() for r in c.releases] == world.bodies
        changes = [change for c in world.commits() for change in c.changes]
        assert [type(c) for c in changes] == [Created, Created, Halted, Created]
        charged = [charge.name for c in world.commits() for charge in c.charges]
        assert charged[1:] == ["a", "b", "c"]
        for name, first in (("a", 3), ("b", 5), ("c", 8)):
            assert min(world.releases(name)) >= first
    assert crashes >= 30


SUM: dict[str, Any] = {
    "name": "wide", "statistic": "sum", "of": "amount", "clamp": ["-4", "3"], "step": "0.5",
    "windows": ["3h", "ever"], "by": "country", "epsilon": "1/3",
}  # fmt: skip


async def test_windows_of_sums_go_on_from_where_they_were_after_a_crash_anywhere() -> None:
    async def step(engine: Engine, tick: int) -> None:
        if tick >= 3 and "wide" not in engine.admission.names:
            await create_series(engine, json.dumps(SUM).encode())

    crashes = 0
    for place in range(1, 40):
        numbers = count()  # seeds that say which they are, so that all worlds have the same noise
        world = World(seeds=lambda numbers=numbers: next(numbers).to_bytes(32, "big"))  # type: ignore[misc]
        crashes += await restarted(world, place, step)
        assert [r.body for c in world.commits() for r in c.releases] == world.bodies
        wide = [json.loads(body) for body in world.bodies if json.loads(body)["series"] == "wide"]
        ticks = [each["tick"] for each in wide]
        assert ticks == list(range(ticks[0], HORIZON))
        assert ticks[0] >= 4
        for early, each in enumerate(wide):
            assert list(each["windows"]) == ["tick", "3h", "ever"]
            same = each["windows"]["ever"] == each["windows"]["3h"]
            assert same == (early < 3)  # while the window covers all ticks of the series
    assert crashes >= 20


async def test_a_snapshot_holds_created_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 2)
    world = World()
    await crashing(world, Fuse())
    assert any(c.snapshot for c in world.commits())
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()
    assert {s.series.name for s in engine.admission.registry.live} == {"orders", "b", "c"}
    assert [(e.name, e.start) for e in engine.admission.ended] == [("a", 3)]


async def refused(world: World, change: Callable[[Commit], dict[str, Any]]) -> None:
    """A start refuses the journal with these changes, in an unbroken chain; so does its summary."""
    world.rewrite(lambda commit: change(commit) if commit.changes else {})
    with pytest.raises(FailClosed, match="does not add up"):
        await world.engine(MemorySource(batches(), partitions=(0, 1))).run()


def altered(structs: tuple[Any, ...], **changes: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(changed(s, **{name: of(s) for name, of in changes.items()}) for s in structs)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: {"charges": ()},
        lambda c: {"charges": (*c.charges, *c.charges)},
        lambda c: {"charges": altered(c.charges, epsilon=lambda x: x.epsilon - 1)},
        lambda c: {"changes": altered(c.changes, definition=lambda _: question(epsilon="9"))},
        lambda c: {"changes": altered(c.changes, definition=lambda _: b"{}")},
        lambda c: {"changes": (Halted(5, 3),), "seeds": ()},
        lambda c: {"changes": (Halted(0, 3),), "seeds": ()},
        lambda c: {"changes": altered(c.changes, start=lambda x: x.start - 1)},
        lambda c: {"changes": altered(c.changes, start=lambda x: x.start + 1)},
    ],
)
async def test_a_journal_whose_ledger_does_not_add_up_is_refused(
    change: Callable[[Commit], dict[str, Any]],
) -> None:
    world = World()

    async def ask(engine: Engine, _source: Stopping) -> None:
        await create_series(engine, question())

    await running(world, 2, ask)
    await refused(world, change)


@pytest.mark.parametrize("moved", [-1, 1])
async def test_a_halt_lies_at_its_own_tick_and_at_no_other(moved: int) -> None:
    """What frees ticks that the mechanism saw is no ledger."""
    world = World()

    async def ask(engine: Engine, source: Stopping) -> None:
        await create_series(engine, question())
        source.go(5)
        await world.until(5)
        await halt_series(engine, "large")

    def move(commit: Commit) -> dict[str, Any]:
        halts = isinstance(commit.changes[0], Halted)
        return {"changes": altered(commit.changes, end=lambda x: x.end + moved)} if halts else {}

    await running(world, 2, ask)
    await refused(world, move)
    journal = MemoryJournal(world.store)
    await journal.open()
    with pytest.raises(FailClosed, match="does not add up"):
        await read_summary(journal.read(), SEALER, "shop")


async def test_after_the_end_nothing_is_taken() -> None:
    world = World()
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()
    for act in (create_series(engine, question()), halt_series(engine, "large")):
        with pytest.raises(UsageError, match="ended"):
            await act


async def test_a_created_series_never_runs_on_with_another_mechanism(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A version of the code that would choose another tree must not take over the state of the one that ran."""
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 1)
    world = World()
    source = Stopping(2)
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    await create_series(engine, question())
    source.go(5)
    await world.until(5)
    engine.stop()
    await run
    chosen = CountSeries.choose

    def other(series: CountSeries, setting: Setting) -> Choice:
        choice = chosen(series, setting)
        if series.name == "large":
            counter = Counter(setting.width, series.epsilon, setting.neighbors, 1000)
            choice = replace(choice, mechanism=counter)
        return choice

    monkeypatch.setattr(CountSeries, "choose", other)
    with pytest.raises(FailClosed, match="does not add up"):
        await world.engine(MemorySource(batches(), partitions=(0, 1))).run()


async def test_a_histogram_created_before_auto_changed_runs_on_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its definition says `auto`, which took the smallest typical error then."""
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 1)
    world, source, choose = World(), Stopping(2), HistogramSeries.choose

    def before(series: HistogramSeries, setting: Setting) -> Choice:
        return choose(series.model_copy(update={"method": "typical"}), setting)

    with monkeypatch.context() as then:
        then.setattr(HistogramSeries, "choose", before)
        engine = world.engine(source)
        run = asyncio.create_task(engine.run())
        await world.until(2)
        asked = {"name": "spread", "statistic": "histogram", "by": "country", "epsilon": "0.5"}
        await create_series(engine, json.dumps(asked).encode())
        engine.stop()
        await run
    again = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await again.run()
    (live,) = [live for live in again.admission.registry.live if live.created]
    assert isinstance(live.series.mechanism, HSS)
    assert max(world.releases("spread")) == HORIZON - 1


async def test_who_asked_learns_that_the_outcome_is_unknown() -> None:
    """The creation is durable, the journal's answer is lost: no bad usage, and not "nothing has changed"."""
    world = World()

    class Journal(MemoryJournal):
        async def append(self, commit: Commit, sealed: bytes) -> None:
            await super().append(commit, sealed)
            if commit.changes:
                raise WorldError("no answer; whether the commit is durable shows at the next open")

    source = Stopping(2)
    engine = world.engine(source, Journal(world.store))
    run = asyncio.create_task(engine.run())
    await world.until(2)
    with pytest.raises(WorldError, match="it may be durable and paid for"):
        await create_series(engine, question())
    with pytest.raises(WorldError, match="no answer"):
        await run
    again = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await again.run()
    assert min(world.releases("large")) == 3
