"""What is kept of halted series, of `Admission`, `LiveSeriesPlanner`, `Subledgers` and the words of lists together.

Their names, for ever, and the last ones of each ledger in full; nothing else, however many there were.
"""

import gc
import json
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest
from live_acts import create_series, halt_series
from unit.live.message_worlds import WITH_ANALYSTS, MessageWorld, large
from unit.statistics.parts.test_live_room_engine import forget_the_end, recovered

from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.subledgers import MAIN
from stream_dp.engine import admission
from stream_dp.engine.engine import Engine
from stream_dp.errors import UnknownMechanism, UsageError
from stream_dp.live.planner import LiveSeriesPlanner

_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
MORE = 25


def world_of() -> MessageWorld:
    return MessageWorld(WITH_ANALYSTS, watched=False)


async def come_and_gone(engine: Engine, name: str, analyst: str = MAIN) -> None:
    await create_series(engine, json.dumps(large(name, "0.001")).encode(), analyst)
    await halt_series(engine, name)


def listed(world: MessageWorld, engine: Engine) -> list[tuple[str, str]]:
    rows = world.words.listed(engine.admission, None)
    return [(row["name"], row["analyst"]) for row in rows if row["end"] is not None]


async def test_lists_have_the_last_halted_ones_of_each_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What one ledger halts puts nothing of another's out of the list, and a restart lists the same."""
    monkeypatch.setattr(admission, "REMEMBERED", 2)
    world, found = world_of(), list[list[tuple[str, str]]]()

    async def ask(engine: Engine) -> None:
        await come_and_gone(engine, "bobs", "bob")
        for name in ("a1", "a2", "a3", "a4"):
            await come_and_gone(engine, name, "ann")
        for name in ("o1", "o2", "o3"):
            await come_and_gone(engine, name)
        found.append(listed(world, engine))

    async def again(engine: Engine) -> None:
        assert await recovered(engine)
        found.append(listed(world, engine))

    await world.told(ask)
    forget_the_end(world)
    await world.told(again, tick=10)
    last = [("bobs", "bob"), ("a3", "ann"), ("a4", "ann"), ("o2", ""), ("o3", "")]
    assert found == [last, last]


async def test_a_name_that_no_list_has_stays_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases bear it: who reads them by name would take another series for the first one."""
    monkeypatch.setattr(admission, "REMEMBERED", 1)
    world = world_of()

    async def used(engine: Engine) -> None:
        assert await recovered(engine)
        assert "first" not in [name for name, _ in listed(world, engine)]
        with pytest.raises(UsageError, match="has or had this name; choose another name"):
            await create_series(engine, json.dumps(large("first", "0.001")).encode())
        with pytest.raises(UnknownMechanism, match="never created, or has been halted"):
            await halt_series(engine, "first")
        ask = json.dumps(
            {"id": "x", "until": "2025-10-09T12:00:00Z", "do": "ask", "series": "first"}
        )
        told = json.loads(await engine.tell(ask.encode(), MAIN))
        assert told["refused"]["detail"] == "series: was halted and answers no more queries"

    async def ask(engine: Engine) -> None:
        await come_and_gone(engine, "first")
        await come_and_gone(engine, "second")
        await used(engine)

    await world.told(ask)
    forget_the_end(world)
    await world.told(used, tick=10)


def reached(*roots: object) -> Iterator[object]:
    seen, found = set[int](), list(roots)
    while found:
        one = found.pop()
        if id(one) in seen or isinstance(one, _CODE):
            continue
        seen.add(id(one))
        yield one
        found.extend(gc.get_referents(one))


async def kept_of_each(analyst: str = "ann") -> float:
    """How many objects an engine's admission and lists hold more for each series that came and went."""
    world, sizes = world_of(), list[int]()

    async def ask(engine: Engine) -> None:
        for at in range(2 * MORE + 1):
            if at % MORE == 0:
                gc.collect()
                sizes.append(sum(1 for _ in reached(engine.admission, world.words)))
            await come_and_gone(engine, f"name_number_{at}", analyst)
        gc.collect()

    world.pipeline = WITH_ANALYSTS | {"queries": {"per_tick": "1000"}}
    await world.told(ask)
    return (sizes[2] - sizes[1]) / MORE


async def test_of_a_halted_series_its_name_is_kept_and_nothing_else() -> None:
    assert await kept_of_each() < 2


async def test_what_is_kept_beside_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions, or the entries of ledgers, of all that ever was."""
    close = LiveSeriesPlanner.close

    def keeping(self: LiveSeriesPlanner, number: int) -> Any:
        self.router.halted = [*getattr(self.router, "halted", ()), self.running[number].series]  # type: ignore[attr-defined]  # the twin's own
        return close(self, number)

    with monkeypatch.context() as twin:
        twin.setattr(LiveSeriesPlanner, "close", keeping)
        assert await kept_of_each() >= 2
    monkeypatch.setattr(Ledger, "summed", lambda self: self)
    assert await kept_of_each() >= 2
