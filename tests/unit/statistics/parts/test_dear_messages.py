"""Messages that are dear to derive: ticks go on, a restart does not begin with the first again, steps have a bound."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from unit.live.live_series_worlds import HORIZON, Stopping
from unit.live.message_worlds import WITH_ANALYSTS, MessageWorld, large, sealed, text

from stream_dp.accounting import loads
from stream_dp.accounting.filters import optimal
from stream_dp.accounting.filters.filter import largest_pure
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.addressed import MESSAGE_STEPS, TICK_STEPS, limited
from stream_dp.engine.proposals import Derived, OnThread
from stream_dp.errors import EngineEnded, NotAccepted, UsageError
from stream_dp.live.planner import LiveSeriesPlanner, PlannedSeries
from stream_dp.statistics.monitor import Selection, deepest

TURNS = 20_000
"""How often others have their turn before a test says that nothing comes any more."""


class Held(OnThread):
    """Derives nothing before it is let go; `begun` is how many definitions came."""

    def __init__(self, planner: LiveSeriesPlanner) -> None:
        super().__init__(planner)
        self.free = asyncio.Event()
        self.begun = 0

    async def derive(self, definition: bytes, start: int) -> Derived:
        self.begun += 1
        await self.free.wait()
        return await super().derive(definition, start)


async def until(there: Callable[[], Any]) -> None:
    for _ in range(TURNS):
        if there():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never comes")


def dear(watches: int, name: str = "m") -> dict[str, Any]:
    """A monitor whose filters are ranges of three fields in every order: to find its depth takes very many steps."""

    def where(at: int) -> list[dict[str, Any]]:
        lows = {"amount": at * 7919 % 1009, "b": at * 104729 % 1013, "c": at * 1299709 % 1019}
        return [
            test for field, low in lows.items()
            for test in ({"field": field, "at_least": low}, {"field": field, "at_most": low + 500})
        ]  # fmt: skip

    watch = [{"name": f"w{at}", "above": 100, "where": where(at)} for at in range(watches)]
    return {"name": name, "statistic": "monitor", "epsilon": "0.5", "watch": watch}


WIDE = WITH_ANALYSTS | {
    "schema": WITH_ANALYSTS["schema"] | {"b": {"type": "integer"}, "c": {"type": "integer"}},
    "privacy": {"epsilon": "6", "analysts": [{"name": "ann", "epsilon": "1"}]},
}


async def by_queue(world: MessageWorld, engine: Engine) -> None:
    del engine
    world.script.append((2, sealed(text("p", "preview", series=large()))))


async def by_http(world: MessageWorld, engine: Engine) -> None:
    del world
    asyncio.ensure_future(engine.tell(text("p", "preview", series=large()).encode(), ""))  # noqa: RUF006


@pytest.mark.parametrize("sent", [by_queue, by_http])
async def test_ticks_go_on_while_a_message_is_derived(
    sent: Callable[[MessageWorld, Engine], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, free = MessageWorld(WITH_ANALYSTS), threading.Event()
    propose, begun = LiveSeriesPlanner.propose, threading.Event()

    def held(self: LiveSeriesPlanner, definition: bytes, start: int) -> PlannedSeries:
        begun.set()
        assert free.wait(60)
        return propose(self, definition, start)

    monkeypatch.setattr(LiveSeriesPlanner, "propose", held)
    source = Stopping(2)
    engine = world.messaging(source)
    run = asyncio.create_task(engine.run())
    try:
        await world.until(2)
        await sent(world, engine)
        await until(begun.is_set)
        source.go(7)
        await world.until(7)
        assert not world.answers
    finally:
        free.set()
    await until(lambda: world.answers)
    (answer,) = world.said()
    assert (answer["id"], answer["answer"]["fits"]) == ("p", True)
    source.go(HORIZON)
    await run


@pytest.mark.parametrize("privacy", [{"epsilon": "1"}, {"epsilon": "1", "delta": "1e-6"}])
@pytest.mark.parametrize("epsilon", ["0.1", "0.9"])
async def test_no_cut_searches_what_a_series_meets(
    privacy: dict[str, str], epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fits and what is refused: the ledgers are searched on a thread, while ticks go on."""
    first = {"name": "fr", "statistic": "count", "epsilon": "0.6", "where": country("FR")}
    world = MessageWorld(WITH_ANALYSTS | {"privacy": privacy, "series": [first]})
    source, searched = Stopping(2), list[bool]()
    engine = world.messaging(source)
    run = asyncio.create_task(engine.run())
    await world.until(2)

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def on_thread(*given: Any, **more: Any) -> Any:
            searched.append(threading.current_thread() is not threading.main_thread())
            return work(*given, **more)

        return on_thread

    for module, name in ((loads, "heaviest"), (optimal, "least_epsilon"), (optimal, "loss_curve")):
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    for cached in (optimal._least, optimal._curve, largest_pure):
        cached.cache_clear()
    for do in ("preview", "create"):
        asked = large() | {"epsilon": epsilon}
        answer = json.loads(await engine.tell(text(do, do, series=asked).encode(), ""))
        assert ("refused" in answer) is (do == "create" and epsilon == "0.9"), answer
    assert searched
    assert all(searched)
    source.go(HORIZON)
    await run


def country(name: str) -> list[dict[str, str]]:
    return [{"field": "country", "equals": name}]


async def test_a_closed_tick_waits_for_one_message_and_a_message_for_one_commit() -> None:
    asks = [(3, sealed(text(f"a{at}", "list", "ann"), "ann")) for at in range(40)]
    world = MessageWorld(WITH_ANALYSTS, script=asks)
    source = Stopping(3)
    run = asyncio.create_task(world.messaging(source).run())
    await until(lambda: len(world.answers) >= 5)
    source.go(9)
    await until(lambda: len(world.answers) == 40)
    between, last = list[int](), 0
    for commit in world.commits():
        last = 0 if commit.ticks else last + len(commit.answers)
        between.append(last)
        assert len(commit.answers) <= 1
    assert world.public_tick() == 9
    after = [c for c in world.commits() if c.ticks and c.ticks[0] > 4]
    gaps = [two.sequence - one.sequence for one, two in pairwise(after)]
    assert max(gaps) <= 2
    source.go(HORIZON)
    await run


async def test_a_run_that_is_killed_amid_dear_messages_gets_past_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each life has time for three of them: the first one is not the first again."""
    script = [(2, sealed(text(f"p{at}", "preview", series=large(f"s{at}")))) for at in range(9)]
    world, derived = MessageWorld(WITH_ANALYSTS, script=script), list[bytes]()
    propose = LiveSeriesPlanner.propose

    def counted(self: LiveSeriesPlanner, definition: bytes, start: int) -> PlannedSeries:
        derived.append(definition)
        return propose(self, definition, start)

    monkeypatch.setattr(LiveSeriesPlanner, "propose", counted)
    monkeypatch.setattr(world, "done", lambda: len(world.answers) == 9)
    for _ in range(9):
        run = asyncio.create_task(world.messaging(Stopping(4)).run())
        enough = len(derived) + 3
        await until(lambda enough=enough: len(derived) >= enough or world.done())  # type: ignore[misc]
        run.cancel()  # as a kill: what is not durable is gone
        await asyncio.wait({run})
        if world.done():
            break
    assert [each["id"] for each in world.said()] == [f"p{at}" for at in range(9)]
    assert max(derived.count(one) for one in derived) <= 2


@pytest.mark.parametrize("do", ["preview", "create"])
async def test_a_run_that_is_told_to_stop_does_not_wait_for_a_derivation(do: str) -> None:
    world = MessageWorld(WITH_ANALYSTS)
    source = Stopping(4)
    engine = world.messaging(source)
    held = engine._deriver = Held(world.planner)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    asked = asyncio.create_task(engine.tell(text("p", do, series=large()).encode(), ""))
    world.script.append((2, sealed(text("q", do, series=large()))))
    await until(lambda: held.begun == 2)
    engine.stop()
    await until(run.done)
    await run
    with pytest.raises(EngineEnded):
        await asked
    assert world.answers == []
    await world.live()
    assert [each["id"] for each in world.said()] == ["q"]


async def test_what_fitted_when_it_was_derived_is_checked_again_at_the_cut() -> None:
    """Three creations of one name, and of half the ledger each, are derived before the first of them is charged."""
    world = MessageWorld(WITH_ANALYSTS | {"privacy": {"epsilon": "3"}})
    source = Stopping(2)
    engine = world.messaging(source)
    held = engine._deriver = Held(world.planner)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    said = [large("a", "0.9"), large("a", "0.9"), large("b", "0.9")]
    asked = [
        asyncio.create_task(engine.tell(text(f"c{at}", "create", series=each).encode(), ""))
        for at, each in enumerate(said)
    ]
    await until(lambda: held.begun == 3)
    held.free.set()
    answers = [json.loads(await each) for each in asked]
    (made,) = [each["answer"]["name"] for each in answers if "answer" in each]
    kinds = sorted(each["refused"]["kind"] for each in answers if "refused" in each)
    assert kinds == (["budget", "usage"] if made == "a" else ["budget"] * 2)
    assert [live.series.name for live in engine.admission.registry.live if live.created] == [made]
    source.go(HORIZON)
    await run


async def test_a_series_is_derived_for_the_tick_at_which_it_starts() -> None:
    """With a horizon each tick makes it another mechanism: in the end a cut waits for it, and a restart agrees."""
    world = MessageWorld(WITH_ANALYSTS)
    source = Stopping(2)
    engine = world.messaging(source)
    starts, derive = list[int](), OnThread(world.planner).derive

    class Late(OnThread):
        async def derive(self, definition: bytes, start: int) -> Derived:
            starts.append(start)
            found = await derive(definition, start)
            if len(starts) <= 3:
                source.go(source.limit + 1)
                await world.until(source.limit)
            return found

    engine._deriver = Late(world.planner)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    answer = json.loads(await engine.tell(text("c", "create", series=large()).encode(), ""))
    assert starts == [3, 4, 5, 6]
    assert answer["answer"]["start"] == 6
    source.go(HORIZON)
    await run
    bodies = list(world.bodies)
    world.bodies.clear()
    await world.messaging(Stopping(HORIZON)).run()
    assert world.bodies == bodies


async def test_the_dearest_message_is_refused_by_its_steps_and_a_file_has_no_such_bound() -> None:
    world = MessageWorld(WIDE)
    steps = list[int]()

    async def asked(engine: Engine) -> None:
        for at in range(2):
            said = text(f"m{at}", "preview", "ann", series=dear(200))
            assert len(said) < 64 * 1024
            answer = json.loads(await engine.tell(said.encode(), "ann"))
            assert answer["refused"]["kind"] == "usage"
            assert (
                f"more steps to derive than a message may ({MESSAGE_STEPS:,})"
                in answer["refused"]["detail"]
            )
            steps.append(engine._conversation._steps["ann"])
        few = json.loads(
            await engine.tell(text("f", "preview", "ann", series=dear(8)).encode(), "ann")
        )
        assert "answer" in few

    await world.told(asked)
    assert steps[1] == 2 * steps[0]
    assert MESSAGE_STEPS < steps[0] < MESSAGE_STEPS + 300


async def test_the_steps_of_an_analyst_have_a_bound_in_each_tick() -> None:
    world = MessageWorld(WIDE)

    async def asked(engine: Engine) -> None:
        talk = engine._conversation
        talk.worked("ann", TICK_STEPS - 1)
        await engine.tell(text("m0", "preview", "ann", series=dear(8)).encode(), "ann")
        with pytest.raises(NotAccepted, match="as many steps before the next tick") as refused:
            await engine.tell(text("m1", "preview", "ann", series=large()).encode(), "ann")
        assert refused.value.kind == "rate"
        await engine.tell(text("l", "list", "ann").encode(), "ann")
        await engine.tell(text("o", "preview", series=large()).encode(), "")
        world.script.append((3, sealed(text("m1", "preview", "ann", series=large()), "ann")))

    await world.told(asked)
    assert world.said()[-1]["id"] == "m1"
    assert "answer" in world.said()[-1]


def test_a_search_within_its_steps_finds_what_it_finds_without_a_bound() -> None:
    fields: dict[str, Any] = {}
    one = [Selection("a", 2, frozenset()), Selection("b", 3, frozenset())]
    with limited(100) as steps:
        assert deepest(one, fields) == deepest(one, fields)
    assert steps.taken == 2 * 3
    with limited(5):
        deepest(one, fields)
        with pytest.raises(UsageError, match="more steps"):
            deepest(one, fields)


@pytest.mark.parametrize("do", ["preview", "create"])
async def test_the_last_tick_of_a_replay_waits_for_the_messages_under_way(do: str) -> None:
    """Its ticks are never late; a series that is created then sees that tick whole."""
    world = MessageWorld(WITH_ANALYSTS)
    source = Stopping(2)
    engine = world.messaging(source)
    held = engine._deriver = Held(world.planner)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    world.script += [
        (2, sealed(text(name, do, series=large(name, "0.1"))))
        for name in ("a", "b")
    ]  # fmt: skip
    await until(lambda: held.begun == 1)
    source.go(HORIZON)
    await world.until(HORIZON - 2)
    held.free.set()
    await asyncio.wait_for(run, 30)
    assert [(each["id"], "answer" in each) for each in world.said()] == [("a", True), ("b", True)]
    if do == "create":
        assert [list(world.releases(name)) for name in ("a", "b")] == [[HORIZON - 1]] * 2
        rows = [row for c in world.commits() if c.ticks[-1:] == (HORIZON - 1,) for row in c.rows]
        assert [len(row) for row in rows] == [
            len(world.commits()[1].rows[0]) + 1
        ]  # of the same filter
