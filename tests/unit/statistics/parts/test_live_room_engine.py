"""The room of a ledger while an engine runs: its own, also after a restart, and never asked of what a journal has."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from live_acts import create_series, halt_series, preview_series
from unit.live.live_series_worlds import World
from unit.live.message_worlds import WITH_ANALYSTS, MessageWorld, large, sealed, text

from stream_dp.accounting.subledgers import MAIN
from stream_dp.engine.admission import Admission
from stream_dp.engine.engine import Engine
from stream_dp.engine.phases import EnginePhase
from stream_dp.engine.proposals import Proposal
from stream_dp.engine.series import LiveSeries
from stream_dp.errors import FailClosed, NoRoom
from stream_dp.journal.commit import Charge, Created
from stream_dp.live.planner import PlannedWatch
from stream_dp.statistics.parts.watch_roster import WatchRoster

PRICE = "0.001"
Then = Callable[[Engine], Awaitable[None]]


def world_of(**queries: str) -> MessageWorld:
    return MessageWorld(WITH_ANALYSTS | {"queries": queries}, watched=False)


def count(name: str, **more: Any) -> bytes:
    return json.dumps(large(name, PRICE, **more)).encode()


def monitor(name: str, places: int) -> bytes:
    """A monitor of so many places, of which an event may count in all."""
    asked = {
        "name": name,
        "statistic": "monitor",
        "epsilon": PRICE,
        "most": places,
        "touch": places,
    }
    return json.dumps(asked | {"watch": [{"name": "w", "above": 5}]}).encode()


async def refused(engine: Engine, definition: bytes, analyst: str = MAIN) -> str:
    """What creating and previewing are refused with: the same."""
    said = list[str]()
    for asking in (preview_series, create_series):
        with pytest.raises(NoRoom) as told:
            await asking(engine, definition, analyst)
        said.append(str(told.value))
    assert said[0] == said[1]
    return said[0]


async def test_live_series_of_a_ledger_have_room_for_so_many_entries_together() -> None:
    """With a thousandth of epsilon an analyst could else have a million places, a megabyte in each commit."""

    async def ask(engine: Engine) -> None:
        await create_series(engine, monitor("first", 15))
        told = await refused(engine, monitor("second", 6))
        assert "second has 6 entries" in told
        assert "so 5 fit; ask for fewer, or halt what is not needed of first (15)" in told
        await create_series(engine, monitor("second", 5))
        await halt_series(engine, "first")
        await create_series(engine, monitor("third", 15))

    await world_of(entries="20").told(ask)


async def test_only_so_many_live_series_of_a_ledger_run_at_once() -> None:
    """Six hundred counts at next to nothing made 126 MB of releases."""

    async def ask(engine: Engine) -> None:
        for name in "abc":
            await create_series(engine, count(name), "ann")
        assert (await refused(engine, count("d"), "ann")).endswith("halt one of a, b, c")
        await halt_series(engine, "b")
        await create_series(engine, count("d"), "ann")
        assert (await refused(engine, count("e"), "ann")).endswith("halt one of a, c, d")

    await world_of(series="3").told(ask)


async def test_each_window_and_each_50_letters_of_a_key_are_counted() -> None:
    """A window, and the single tick beside it, has numbers of its own; long keys made 20 MB of releases a tick."""
    edges = [str(-(10**18) - 10**17 * at) for at in (3, 2, 1)]
    by = [{"field": "amount", "edges": edges}, "country"]

    async def ask(engine: Engine) -> None:
        told = await refused(
            engine,
            count(
                "wide", windows=[f"{n}h" for n in range(2, 9)], by="country", statistic="histogram"
            ),
        )
        assert "wide has 24 entries" in told
        told = await refused(engine, count("long", statistic="histogram", by=by))
        assert "long has 17 entries" in told, "5 bins for 3 countries, 2 of them of 51 letters"
        await create_series(engine, count("short", windows=["2h", "3h"]))

    await world_of(entries="16").told(ask)


async def test_a_list_that_says_names_again_counts_for_all_that_it_says() -> None:
    """With noise that tells nobody apart, each of a hundred ranks lists twenty more: 117,200 bytes of 101 places."""
    edges = [str(10**14 + at) for at in range(98)]
    by = {"field": "amount", "edges": edges}
    longest = len(f"from {edges[0]} to under {edges[1]}")

    async def ask(engine: Engine) -> None:
        few = await refused(engine, count("few", statistic="histogram", by=by))
        told = await refused(engine, count("tops", statistic="top", by=by, k=50))
        sizes = [
            int(said.partition(" has ")[2].split()[0].replace(",", "")) for said in (few, told)
        ]
        assert 99 <= sizes[0] <= 101
        assert sizes[1] > 50 * 20 * longest // 2 // 80

    await world_of(entries="98").told(ask)


LONG = "w" * 60
"""The name of a watch; with its number it has 84 bytes, of the 80 that a place has."""


async def long_names(world: MessageWorld, *names: str) -> list[str]:
    """What adding these watches to a monitor of two free places is refused with."""
    found = list[str]()

    async def ask(engine: Engine) -> None:
        assert await recovered(engine)
        if "mine" not in engine.admission.names:
            await create_series(engine, monitor("mine", 3), "ann")
        for at, name in enumerate(names):
            watch = {"name": name, "above": 3, "where": [{"field": "country", "equals": "DE"}]}
            said = text(f"{name}{at}"[-9:], "watch", "ann", series="mine", watch=watch)
            told = json.loads(await engine.tell(said.encode(), "ann"))
            found.extend(f"{r['kind']}: {r['detail']}" for r in [told.get("refused")] if r)

    await world.told(ask, tick=10 if world.bodies else 2)
    return found


async def test_names_of_watches_that_come_later_lie_in_the_room_of_their_monitor() -> None:
    """All of them may fire at every tick, and then every release says them."""
    (told,) = await long_names(world_of(), f"{LONG}a", f"{LONG}b", "short")
    assert told == (
        "room: watch: with this watch, the names of the watches that were added to this monitor would be 10 bytes too "
        "long (a release holds about 80 bytes for each place). Use shorter names or keys, end a watch that was added, "
        "or create another monitor"
    )


async def runs_on_with_long_names(monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """A journal has longer names than this version admits; what is refused once another engine has read it."""
    world = world_of()
    with monkeypatch.context() as before:
        before.setattr(WatchRoster, "require_short", lambda self: None)
        assert await long_names(world, f"{LONG}a") == []
        forget_the_end(world)
        assert await long_names(world, f"{LONG}b") == []
    forget_the_end(world)
    return await long_names(world)


async def test_a_journal_with_longer_names_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await runs_on_with_long_names(monkeypatch) == []


async def test_a_recovery_that_asks_how_long_names_are_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = PlannedWatch.take

    def careful(self: PlannedWatch) -> None:
        self.require_room()
        take(self)

    monkeypatch.setattr(PlannedWatch, "take", careful)
    with pytest.raises(FailClosed, match="bytes too long"):
        await runs_on_with_long_names(monkeypatch)


async def test_a_watch_lies_in_the_room_of_its_monitor() -> None:
    """All its places were counted when it was created, and only its owner adds one: no other bound is needed."""
    world = world_of(entries="4")

    def watching(name: str, analyst: str = "ann", *countries: str) -> tuple[int, bytes]:
        where = [{"field": "country", "equals": each} for each in countries]
        watch = {"name": name, "above": 3, "where": where}
        return 2, sealed(text(name, "watch", analyst, series="mine", watch=watch), analyst)

    world.script = [
        (1, sealed(text("m", "create", "ann", series=json.loads(monitor("mine", 3))), "ann")),
        watching("bobs", "bob"),
        watching("all"),
        watching("germany", "ann", "DE"),
        watching("france", "ann", "FR"),
        (3, sealed(text("c", "create", "ann", series=json.loads(monitor("next", 2))), "ann")),
    ]
    await world.live()
    said = {each["id"]: each.get("refused", {}) for each in world.said()}
    kinds = {name: refused["kind"] for name, refused in said.items() if refused}
    assert kinds == {"bobs": "forbidden", "france": "usage", "c": "room"}
    assert "this monitor has 3 in all" in said["france"]["detail"]
    assert "analyst ann has 3 of 4 at once (queries.entries), so 1 fit" in said["c"]["detail"]


async def test_a_refusal_changes_nothing_and_what_fits_is_admitted_under_the_same_name() -> None:
    world = world_of(series="1", entries="9")

    async def ask(engine: Engine) -> None:
        await create_series(engine, count("a"), "ann")

        def now() -> tuple[Any, ...]:
            ledgers = engine.admission.subledgers
            names = engine.admission.names.saved()
            return (
                dict(ledgers.ledgers),
                dict(ledgers.running),
                names,
                len(world.drawn),
                len(world.store.commits),
            )

        before = now()
        await refused(engine, count("b"), "ann")
        await refused(engine, monitor("c", 10), "bob")
        assert now() == before
        await halt_series(engine, "a")
        await create_series(engine, count("b"), "ann")
        await create_series(engine, monitor("c", 9), "bob")

    await world.told(ask)


async def test_each_ledger_has_its_share_of_the_total() -> None:
    """Two series each of three ledgers: what one runs takes nothing from another, and a restart asks nothing of it."""

    async def fill(engine: Engine) -> None:
        for analyst, names in ((MAIN, "ab"), ("ann", "cd"), ("bob", "e")):
            for name in names:
                await create_series(engine, count(name), analyst)
        told = await refused(engine, count("f"), "ann")
        assert "analyst ann has 2 of the 2 that may run at once (an even share of " in told
        await create_series(engine, count("f"), "bob")

    async def look(engine: Engine) -> None:
        assert await recovered(engine)
        assert sum(live.created for live in engine.admission.registry.live) == 6
        assert "bob has 2 of the 1 that may" in await refused(engine, count("g"), "bob")

    world = world_of(total_series="8")
    await world.told(fill)
    forget_the_end(world)
    narrow = replace(world, pipeline=WITH_ANALYSTS | {"queries": {"total_series": "1"}})
    await narrow.told(look, tick=10)


async def others_are_free(world: MessageWorld) -> list[str]:
    """Which series of an analyst's own room are refused, and whom else's her refusal then names."""
    found = list[str]()

    async def ask(engine: Engine) -> None:
        for name, places, analyst in (
            *(("bobs", 3, "bob"), ("anns", 6, "ann")),
            *(("operators", 6, MAIN), ("also_bobs", 3, "bob")),
        ):
            try:
                await create_series(engine, monitor(name, places), analyst)
            except NoRoom:
                found.append(name)
        told = await refused(engine, count("more"), "ann")
        found.extend(f"told: {other}" for other in ("bob", "operator") if other in told)

    await world.told(ask)
    return found


async def test_what_one_has_is_not_counted_against_another() -> None:
    assert await others_are_free(world_of(entries="6")) == []


async def test_a_room_that_all_share_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def place(self: Admission, proposal: Proposal, analyst: str) -> int:
        return proposal.place(analyst, [live.number for live in self.registry.live if live.created])

    monkeypatch.setattr(Admission, "_place", place)
    assert await others_are_free(world_of(entries="6")) == ["anns", "operators", "told: bob"]


async def recovered(engine: Engine) -> bool:
    while not engine.ready.is_set():
        if engine.phase is EnginePhase.FAILED:
            return False
        await asyncio.sleep(0)
    return True


async def holds_after_a_restart(world: MessageWorld) -> bool:
    """Whether the room that is taken is still taken once another engine has read the journal."""
    held = list[bool]()

    async def fill(engine: Engine) -> None:
        await create_series(engine, monitor("anns", 6), "ann")

    async def more(engine: Engine) -> None:
        assert await recovered(engine)
        with suppress(NoRoom):
            await create_series(engine, count("next"), "ann")
        held.append("next" not in engine.admission.names)

    await world.told(fill)
    forget_the_end(world)
    await world.told(more, tick=10)
    return held == [True]


def forget_the_end(world: World) -> None:
    """As if the engine had died before its last commit: there is a tick left at which something may be asked."""
    world.store.commits = world.store.commits[:-1]
    shown = json.loads(world.bodies[-1])["tick"]
    world.bodies[:] = [body for body in world.bodies if json.loads(body)["tick"] < shown]


async def test_the_room_that_is_taken_stays_taken_after_a_restart() -> None:
    assert await holds_after_a_restart(world_of(entries="6"))


async def test_a_room_that_a_restart_empties_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts what this engine has created itself."""
    mine, create = set[int](), Admission.create

    def created(self: Admission, *asked: Any) -> tuple[Created, Charge, LiveSeries]:
        done = create(self, *asked)
        mine.add(done[0].number)
        return done

    def place(_self: Admission, proposal: Proposal, analyst: str) -> int:
        return proposal.place(analyst, sorted(mine))

    monkeypatch.setattr(Admission, "create", created)
    monkeypatch.setattr(Admission, "_place", place)
    monkeypatch.setattr(Admission, "replay", emptied(mine, Admission.replay))
    assert not await holds_after_a_restart(world_of(entries="6"))


def emptied(mine: set[int], then: Callable[..., Any]) -> Callable[..., Any]:

    def replay(*asked: Any) -> Any:
        mine.clear()
        return then(*asked)

    return replay


async def runs_on(world: MessageWorld) -> Sequence[str]:
    """The series that run once the file has less room than what its journal admitted, and what more is refused with."""
    running, told = list[str](), list[str]()

    async def fill(engine: Engine) -> None:
        for name in "abc":
            await create_series(engine, count(name), "ann")

    async def look(engine: Engine) -> None:
        if not await recovered(engine):
            return
        ledger = engine.admission.subledgers.ledgers["ann"]
        assert ledger.spent == 3 * 10**9
        running.extend(live.series.name for live in engine.admission.registry.live if live.created)
        told.append(await refused(engine, count("d"), "ann"))
        await halt_series(engine, "a")
        await halt_series(engine, "b")
        told.append(await refused(engine, count("d"), "ann"))
        await halt_series(engine, "c")
        await create_series(engine, count("d"), "ann")

    await world.told(fill)
    forget_the_end(world)
    before = list(world.bodies)
    narrow = replace(world, pipeline=WITH_ANALYSTS | {"queries": {"series": "1", "entries": "2"}})
    await narrow.told(look, tick=10)
    assert narrow.bodies[: len(before)] == before
    assert (
        "has 3 of the 1 that may run at once (queries.series), so none fits; halt 3 of a, b, c"
        in told[0]
    )
    assert "has 1 of the 1" in told[1]
    return running


async def test_what_a_journal_admitted_runs_on_where_there_is_less_room_now() -> None:
    assert await runs_on(world_of()) == ["a", "b", "c"]


async def test_a_recovery_that_asks_for_room_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    again = Admission._create_again

    def careful(self: Admission, created: Created, charge: Charge | None) -> LiveSeries:
        proposal = self.propose(created.definition, created.start)
        self._place(proposal, MAIN if charge is None else charge.analyst)
        return again(self, created, charge)

    monkeypatch.setattr(Admission, "_create_again", careful)
    with pytest.raises(FailClosed, match="one series more, and analyst ann has 1 of the 1"):
        await runs_on(world_of())
