"""Series created and halted while the engine runs: what they count, what they cost, and what a crash leaves."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from unit.pipeline.live_series_worlds import HORIZON, PIPELINE, Stopping, World, batches

from stream_dp.adapters.memory import MemoryJournal, MemorySink, MemorySource
from stream_dp.errors import BudgetRefused, FailClosed, UnknownMechanism, UsageError, WorldError
from stream_dp.pipeline import builder, live_series
from stream_dp.runtime.commit import Commit, Created, Halted
from stream_dp.runtime.engine import Engine
from stream_dp.testing.noise import ZeroNoise


def zero(_seed: bytes, _index: int) -> Any:
    return ZeroNoise()


def definition(name: str = "large", epsilon: str = "0.5", **more: Any) -> bytes:
    where = [{"field": "amount", "at_least": 5}]
    return json.dumps(
        {"name": name, "statistic": "count", "where": where, "epsilon": epsilon} | more
    ).encode()


async def running(
    world: World, stop: int, then: Callable[[Engine, Stopping], Awaitable[None]]
) -> None:
    """Run to a tick, do something there, run to the end."""
    source = Stopping(stop)
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(stop)
    try:
        await then(engine, source)
    finally:
        source.go(HORIZON)
        await run


async def at_a_cut(engine: Engine) -> None:
    """Wait until the commit in flight is over."""
    with pytest.raises(UnknownMechanism):
        await engine.halt("nothing")


def large(tick: int, start: int) -> int:
    """How many records with an amount of 5 or more lie in ticks start to tick, the early one at its own tick."""
    found = 0
    for batch in batches():
        for payload, mark in zip(batch.payloads, [batch.mark] * 99, strict=False):
            event = json.loads(payload)
            at = int(event["time"][11:13])
            amount = event["amount"]
            if (
                isinstance(amount, int)
                and amount >= 5
                and start <= at <= tick
                and (mark or 0) >= start
            ):
                found += 1
    return found


async def test_it_counts_from_its_first_tick_and_the_others_do_not_notice() -> None:
    world, alone = World(noise=zero), World(noise=zero)
    await alone.engine(MemorySource(batches(), partitions=(0, 1))).run()

    async def ask(engine: Engine, _source: Stopping) -> None:
        created = await engine.create(definition())
        assert (created.start, created.number) == (3, 1)

    await running(world, 2, ask)
    assert world.releases("large") == {t: large(t, 3) for t in range(3, HORIZON)}
    assert world.releases("orders") == alone.releases("orders")


async def test_an_early_record_before_the_cut_does_not_count_in_fresh_columns() -> None:
    """The record of tick 7 lies before the mark of tick 3: a live series from tick 4 on never sees it."""
    world = World(noise=zero)

    async def ask(engine: Engine, _source: Stopping) -> None:
        await engine.create(definition())

    await running(world, 3, ask)
    assert world.releases("large")[HORIZON - 1] == large(HORIZON - 1, 4)
    assert large(HORIZON - 1, 4) < sum(
        json.loads(p)["amount"] in range(5, 99)
        for b in batches()
        for p in b.payloads
        if int(json.loads(p)["time"][11:13]) >= 4 and json.loads(p)["amount"] != "many"
    )


@pytest.mark.parametrize("ahead", [0, 1, 4, HORIZON])
async def test_how_far_the_reader_was_ahead_changes_nothing(ahead: int) -> None:
    world = World(noise=zero)

    async def ask(engine: Engine, source: Stopping) -> None:
        asked = asyncio.create_task(engine.create(definition()))
        source.go(2 + ahead)
        created = await asked
        assert world.releases("large").keys() <= set(range(created.start, HORIZON))

    await running(world, 2, ask)
    start = min(world.releases("large"))
    assert world.releases("large") == {t: large(t, start) for t in range(start, HORIZON)}


async def test_a_halt_ends_its_releases_and_frees_what_comes_later() -> None:
    world = World(noise=zero)

    async def ask(engine: Engine, source: Stopping) -> None:
        await engine.create(definition("first", "1"))
        with pytest.raises(BudgetRefused, match=r"asks for epsilon 0\.5; .* has 0 left"):
            await engine.create(definition("second"))
        source.go(5)
        await world.until(5)
        halted = await engine.halt("first")
        assert halted == Halted(1, 6)
        assert (await engine.create(definition("second", "1"))).start == 6
        assert engine.admission.subledgers.main.left == 0

    await running(world, 2, ask)
    assert sorted(world.releases("first")) == [3, 4, 5]
    assert sorted(world.releases("second")) == [6, 7, 8, 9, 10, 11]
    assert world.releases("second")[11] == large(11, 6)


async def test_choosing_a_mechanism_happens_once_and_does_not_hold_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A choice that only ends once the loop has done something else: on the loop it would wait for itself."""
    world, choose = World(), builder.chosen_for
    begun, looped, calls = threading.Event(), threading.Event(), []

    def slowly(*args: Any) -> Any:
        calls.append(args)
        begun.set()
        assert looped.wait(30)
        return choose(*args)

    async def ask(engine: Engine, _source: Stopping) -> None:
        monkeypatch.setattr(live_series, "chosen_for", slowly)
        for asking in (engine.preview(definition()), engine.create(definition())):
            task = asyncio.create_task(asking)
            assert await asyncio.to_thread(begun.wait, 30)
            looped.set()
            await task
            begun.clear()
            looped.clear()

    await running(world, 2, ask)
    assert len(calls) == 2
    assert sorted(world.releases("large")) == list(range(3, HORIZON))


async def test_a_preview_tells_nothing_of_a_tick_that_is_stepped_and_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How far the engine is depends on how much there was to read; what is published does not."""
    world, publish = World(), MemorySink.publish
    holding, released = asyncio.Event(), asyncio.Event()

    async def hold(self: MemorySink, releases: Any) -> None:
        holding.set()
        await released.wait()
        await publish(self, releases)

    async def ask(engine: Engine, source: Stopping) -> None:
        await at_a_cut(engine)
        before, _ = await engine.preview(definition(epsilon="1"))
        with monkeypatch.context() as patch:
            patch.setattr(MemorySink, "publish", hold)
            source.go(4)
            await holding.wait()
            during, _ = await engine.preview(definition(epsilon="1"))
            released.set()
        await at_a_cut(engine)
        after, _ = await engine.preview(definition(epsilon="1"))
        assert before.derivation == during.derivation != after.derivation

    await running(world, 2, ask)


async def test_a_preview_tells_nothing_of_ticks_that_wait_for_the_rest_of_their_block() -> None:
    """They are durable, but how many of a block are so depends on how much there was to read."""
    world = World(pipeline=PIPELINE | {"clock": PIPELINE["clock"] | {"block": "4"}})
    source = Stopping(3)
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(3)
    seen = []
    for tick in (3, 4, 6, 7):
        source.go(tick)
        for _ in range(10_000):
            if world.commits()[-1].ticks[-1] == tick:
                break
            await asyncio.sleep(0)
        await at_a_cut(engine)
        found, _ = await engine.preview(definition(epsilon="1"))
        seen.append(found.derivation)
    assert seen[0] == seen[1] == seen[2] != seen[3]
    source.go(HORIZON)
    await run


async def test_an_order_taken_when_the_engine_fails_is_refused() -> None:
    """Whoever asked would else wait for ever: it is no longer in the inbox, and not executed yet."""
    engine = World().engine(Stopping(0))
    asking = asyncio.create_task(engine.create(definition()))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(engine._next())
    for _ in range(10):
        if engine._inbox._queue.empty():
            break
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    with pytest.raises(UsageError, match="has ended"):
        await asyncio.wait_for(asking, 30)


async def test_a_refusal_leaves_state_ledger_and_randomness_as_they_were() -> None:
    world = World()

    async def ask(engine: Engine, _source: Stopping) -> None:
        before = (len(world.drawn), len(world.store.commits), engine.admission.subledgers.main)
        for bad, error in (
            (definition(epsilon="1.000000000001"), BudgetRefused),
            (definition(epsilon="0"), UsageError),
            (definition(epsilon="-1"), UsageError),
            (definition(epsilon="nan"), UsageError),
            (definition(epsilon="inf"), UsageError),
            (definition("orders"), UsageError),
            (definition(statistic="sum"), UsageError),
            (definition(by="planet", statistic="histogram", method="tree"), UsageError),
            (b"[1]", UsageError),
            (b"\xff", UsageError),
        ):
            with pytest.raises(error):
                await engine.create(bad)
            with pytest.raises(error) if error is UsageError else Nothing():
                await engine.preview(bad)
        with pytest.raises(UsageError, match="no such analyst"):
            await engine.create(definition(), "eve")
        for name in ("large", "orders"):
            with pytest.raises(UnknownMechanism):
                await engine.halt(name)
        assert before == (
            len(world.drawn),
            len(world.store.commits),
            engine.admission.subledgers.main,
        )
        _, preview = await engine.preview(definition(epsilon="1.5"))
        assert not preview.fits
        assert preview.largest.epsilon == 10**12
        await engine.create(definition(epsilon="1"))

    await running(world, 2, ask)
    assert len(world.releases("large")) == 9


class Nothing:
    """No error expected."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


async def test_the_charge_is_durable_before_the_mechanism_draws() -> None:
    """At every place: if the commit of the creation is not in the journal, no noise was drawn for it."""
    world, seen = World(), list[tuple[int, int]]()

    class Watched(MemoryJournal):
        async def append(self, commit: Commit, sealed: bytes) -> None:
            if commit.changes:
                seen.append((len(world.drawn), len(streams)))
                assert [c.name for c in commit.charges] == ["large"]
            await super().append(commit, sealed)

    streams: list[int] = []

    def noise(seed: bytes, stream: int) -> Any:
        streams.append(stream)
        return zero(seed, stream)

    world.noise = noise
    source = Stopping(2)
    engine = world.engine(source, Watched(world.store))
    run = asyncio.create_task(engine.run())
    await world.until(2)
    before = streams.count(1)
    asked = asyncio.create_task(engine.create(definition()))
    await asked
    source.go(HORIZON)
    await run
    assert before == 0
    assert len(seen) == 1
    assert 1 not in streams[: seen[0][1]]


class Crash(Exception):
    """The end of a process."""


async def crashing(world: World, fuse: list[int]) -> None:
    """Create three series and halt one, up to the crash; what is there already is not created again."""

    class Journal(MemoryJournal):
        async def append(self, commit: Commit, sealed: bytes) -> None:
            burn(fuse)
            await super().append(commit, sealed)
            burn(fuse)

    source = Stopping(-1)
    engine = world.engine(source, Journal(world.store))
    run = asyncio.create_task(engine.run())
    try:
        for tick in range(HORIZON):
            if run.done():
                break
            source.go(tick)
            await world.until(tick, run)
            if not run.done() and engine.ready.is_set():
                await at(engine, tick)
    except (UsageError, WorldError, Crash):
        pass
    await run


async def at(engine: Engine, tick: int) -> None:
    """What is asked after a tick, unless an earlier run did it."""
    names = engine.admission.names
    if tick >= 2 and "a" not in names:
        await engine.create(definition("a", "0.4"))
    if tick >= 4 and "b" not in names:
        await engine.create(
            definition("b", "0.3", statistic="histogram", by="country", method="tree")
        )
    if tick >= 6 and "a" in {s.series.name for s in engine.admission.registry.live}:
        await engine.halt("a")
    if tick >= 7 and "c" not in names:
        await engine.create(definition("c", "0.7"))


def burn(fuse: list[int]) -> None:
    fuse[0] -= 1
    if fuse[0] == 0:
        raise Crash


async def test_a_crash_anywhere_leaves_one_version_of_everything() -> None:
    crashes = 0
    for place in range(1, 60):
        world = World()
        ended = False
        fuse = [place]
        for _ in range(3):
            try:
                await crashing(world, fuse)
            except Crash:
                crashes += 1
                continue
            ended = True
            break
        assert ended
        sequences = [json.loads(body)["sequence"] for body in world.bodies]
        assert sequences == list(range(1, len(sequences) + 1))
        recorded = [r.body for c in world.commits() for r in c.releases]
        assert recorded == world.bodies
        changes = [change for c in world.commits() for change in c.changes]
        assert [type(c) for c in changes] == [Created, Created, Halted, Created]
        charged = [charge.name for c in world.commits() for charge in c.charges]
        assert charged[1:] == ["a", "b", "c"]
        for name, first in (("a", 3), ("b", 5), ("c", 8)):
            assert min(world.releases(name)) >= first
    assert crashes >= 30


async def test_a_snapshot_holds_created_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.runtime.engine.SNAPSHOT_TICKS", 2)
    world = World()
    await crashing(world, [-1])
    assert any(c.snapshot for c in world.commits())
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()
    assert {s.series.name for s in engine.admission.registry.live} == {"orders", "b", "c"}
    assert [(e.name, e.start) for e in engine.admission.ended] == [("a", 3)]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: {"charges": ()},
        lambda c: {"charges": (*c.charges, *c.charges)},
        lambda c: {"charges": tuple(_with(x, epsilon=x.epsilon - 1) for x in c.charges)},
        lambda c: {
            "changes": tuple(_with(x, definition=definition(epsilon="9")) for x in c.changes)
        },
        lambda c: {"changes": tuple(_with(x, definition=b"{}") for x in c.changes)},
        lambda c: {"changes": (Halted(5, 3),)},
        lambda c: {"changes": (Halted(0, 3),)},
        lambda c: {"changes": tuple(_with(x, start=x.start - 1) for x in c.changes)},
        lambda c: {"changes": tuple(_with(x, start=x.start + 1) for x in c.changes)},
    ],
)
async def test_a_journal_whose_ledger_does_not_add_up_is_refused(
    change: Callable[[Commit], dict[str, Any]],
) -> None:
    import msgspec
    from unit.pipeline.live_series_worlds import SEALER

    from stream_dp.runtime.commit import digest, encode

    world = World()

    async def ask(engine: Engine, _source: Stopping) -> None:
        await engine.create(definition())

    await running(world, 2, ask)
    previous, sealed = b"", []
    for commit in world.commits():
        doctored = msgspec.structs.replace(commit, previous=previous)
        if commit.changes:
            doctored = msgspec.structs.replace(doctored, **change(doctored))
        sealed.append(SEALER.seal(commit.sequence, encode(doctored)))
        previous = digest(sealed[-1])
    world.store.commits[:] = sealed
    with pytest.raises(FailClosed, match="does not add up"):
        await world.engine(MemorySource(batches(), partitions=(0, 1))).run()


def _with(struct: Any, **changes: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(struct, **changes)


async def test_after_the_end_nothing_is_taken() -> None:
    world = World()
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()
    with pytest.raises(UsageError, match="ended"):
        await engine.create(definition())
    with pytest.raises(UsageError, match="ended"):
        await engine.halt("large")


async def test_an_analyst_spends_from_a_ledger_of_their_own() -> None:
    privacy = {
        "epsilon": "2",
        "analysts": [{"name": "ann", "epsilon": "0.6"}, {"name": "ben", "epsilon": "0.4"}],
    }
    world = World(pipeline=PIPELINE | {"privacy": privacy})

    async def ask(engine: Engine, _source: Stopping) -> None:
        assert engine.admission.subledgers.main.left == 0
        with pytest.raises(BudgetRefused):
            await engine.create(definition("mine", "0.1"))
        await engine.create(definition("anns", "0.5"), "ann")
        with pytest.raises(BudgetRefused):
            await engine.create(definition("bens", "0.5"), "ben")
        await engine.create(definition("bens", "0.4"), "ben")
        await engine.halt("anns")
        await engine.create(definition("anns2", "0.6"), "ann")

    await running(world, 2, ask)
    charges = [(c.name, c.analyst) for commit in world.commits() for c in commit.charges]
    assert charges == [
        ("analyst ann", ""), ("analyst ben", ""), ("shop: series of the first start", ""),
        ("anns", "ann"), ("bens", "ben"), ("anns2", "ann"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["approximate", "tight_approximate", "zcdp", "renyi"])
async def test_under_other_filters_a_halt_frees_nothing(name: str) -> None:
    privacy = {"epsilon": "2", "delta": "1e-6", "filter": name} | (
        {"order": "24"} if name == "renyi" else {}
    )
    series = [{"name": "orders", "statistic": "count", "epsilon": "0.05"}]
    world = World(pipeline=PIPELINE | {"privacy": privacy, "series": series})

    async def ask(engine: Engine, _source: Stopping) -> None:
        left = engine.admission.subledgers.main.left
        await engine.create(definition(epsilon="0.05"))
        spent = left - engine.admission.subledgers.main.left
        assert spent > 0
        await engine.halt("large")
        assert engine.admission.subledgers.main.left == left - spent

    await running(world, 2, ask)
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()


@pytest.mark.parametrize(
    "value",
    ["\x7f", "\x80", "\x85", "a \x85 b", "\u2028", "a \u2028 b", "\ufeff", "\ufffe", "\U0001f600"],
)
async def test_a_definition_is_read_again_as_it_was_asked(value: str) -> None:
    """What the journal keeps is read once more, live and at every start: it must be the same series."""
    note = {"note": {"type": "text"}}
    world = World(pipeline=PIPELINE | {"schema": PIPELINE["schema"] | note})
    raw = "".join(
        c if c > "\uffff" else f"\\u{ord(c):04x}" for c in value
    )  # YAML takes no surrogate pairs
    asked = (
        b'{"name":"odd","statistic":"count","epsilon":"1","where":[{"field":"note","equals":"%s"}]}'
    )

    async def ask(engine: Engine, _source: Stopping) -> None:
        created = await engine.create(asked % raw.encode())
        assert json.loads(created.definition)["where"][0]["equals"] == value
        assert engine.admission.subledgers.main.left == 0
        series = engine.admission.planner.running[created.number]  # type: ignore[union-attr]
        assert series.series.where[0].equals == value

    await running(world, 2, ask)
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()
    assert engine.admission.subledgers.main.left == 0


async def test_nothing_is_charged_for_what_cannot_be_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()

    def refuse(_self: Any) -> int:
        raise UsageError("no place")

    async def ask(engine: Engine, _source: Stopping) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(live_series.PlannedSeries, "place", refuse)
            with pytest.raises(UsageError, match="no place"):
                await engine.create(definition(epsilon="1"))
        assert engine.admission.subledgers.running == {}
        assert engine.admission.subledgers.main.left == 10**12
        await engine.create(definition(epsilon="1"))

    await running(world, 2, ask)


@pytest.mark.parametrize("noise", [zero, None])
async def test_releases_of_what_is_created_say_that_test_noise_is_not_private(noise: Any) -> None:
    world = World() if noise is None else World(noise=noise)

    async def ask(engine: Engine, _source: Stopping) -> None:
        await engine.create(definition())

    await running(world, 2, ask)
    bodies = [json.loads(body) for body in world.bodies]
    assert {b["series"] for b in bodies} == {"orders", "large"}
    assert all(("not_private" in b) == (noise is not None) for b in bodies)


async def test_a_created_series_never_runs_on_with_another_mechanism(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A version of the code that would choose another tree must not take over the state of the one that ran."""
    from dataclasses import replace

    from stream_dp.mechanisms.counter import Counter
    from stream_dp.pipeline.choice import Choice, Setting
    from stream_dp.pipeline.statistics.count import CountSeries

    monkeypatch.setattr("stream_dp.runtime.engine.SNAPSHOT_TICKS", 1)
    world = World()
    source = Stopping(2)
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    await engine.create(definition())
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


@pytest.mark.parametrize("moved", [-1, 1])
async def test_a_halt_lies_at_its_own_tick_and_at_no_other(moved: int) -> None:
    """What frees ticks that the mechanism saw is no ledger."""
    import msgspec
    from unit.pipeline.live_series_worlds import SEALER

    from stream_dp.runtime.commit import digest, encode
    from stream_dp.runtime.journal_summary import read_summary

    world = World()

    async def ask(engine: Engine, source: Stopping) -> None:
        await engine.create(definition())
        source.go(5)
        await world.until(5)
        await engine.halt("large")

    await running(world, 2, ask)
    previous, sealed = b"", []
    for commit in world.commits():
        changes = tuple(
            _with(c, end=c.end + moved) if isinstance(c, Halted) else c for c in commit.changes
        )
        doctored = msgspec.structs.replace(commit, previous=previous, changes=changes)
        sealed.append(SEALER.seal(commit.sequence, encode(doctored)))
        previous = digest(sealed[-1])
    world.store.commits[:] = sealed
    with pytest.raises(FailClosed, match="does not add up"):
        await world.engine(MemorySource(batches(), partitions=(0, 1))).run()
    journal = MemoryJournal(world.store)
    await journal.open()
    with pytest.raises(FailClosed, match="does not add up"):
        await read_summary(journal.read(), SEALER, "shop")


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
        await engine.create(definition())
    with pytest.raises(WorldError, match="no answer"):
        await run
    again = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await again.run()
    assert min(world.releases("large")) == 3
