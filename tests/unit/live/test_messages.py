"""Messages end to end in memory: one answer for each id, the same bytes whatever dies, and refusals change nothing."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from commit_parts import place_of
from told_spans import ToldSpans
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.live_series_worlds import HORIZON, Stopping
from unit.live.message_worlds import (
    NOW,
    SCRIPT,
    UNTIL,
    WITH_ANALYSTS,
    MessageWorld,
    findings,
    large,
    refusals,
    sealed,
    text,
)

from stream_dp.core.time import parse_moment
from stream_dp.engine import run_config
from stream_dp.engine.engine import Engine
from stream_dp.errors import NotAccepted, UsageError
from stream_dp.journal.commit import Asked, Created, Halted
from stream_dp.live.planner import PlannedSeries
from stream_dp.testing.manual_clock import ManualClock


def scripted() -> MessageWorld:
    return MessageWorld(WITH_ANALYSTS, script=SCRIPT)


async def test_every_message_is_answered_once_in_order() -> None:
    world = scripted()
    await world.live()
    assert findings(world) == []
    said = {each["id"]: each for each in world.said() if each["id"]}
    kinds = {name: each["refused"]["kind"] for name, each in said.items() if "refused" in each}
    assert kinds == {
        "x1": "unknown", "w3": "usage", "c3": "budget", "b1": "forbidden", "w5": "usage", "a2": "unknown",
    }  # fmt: skip
    assert said["w4"]["answer"] == {"series": "watched", "threshold": -(10**6), "above": True}
    assert said["w1"]["answer"]["above"] is False
    assert (
        said["a1"]["answer"]["value"] == json.loads(world.bodies[2 * said["a1"]["tick"]])["value"]
    )
    assert [type(c) for commit in world.commits() for c in commit.changes] == [
        Created, Asked, Asked, Created, Asked, Halted,
    ]  # fmt: skip
    refused = [each for each in world.said() if each["id"] is None]
    kinds = {
        place: part["kind"]
        for each in refused
        for part in refusals(each)
        for place in part["places"]
    }
    assert kinds == {4: "unreadable", 5: "unreadable", 7: "repeated"}
    places = {each["id"]: each["places"] for each in world.said() if each["id"]}
    assert places["first"] == [0]
    assert places["w2"] == [6]  # each names the place of its own message


async def crashed(world: MessageWorld, left: int) -> bool:
    try:
        await world.live(Fuse(left))
    except Crash:
        public = list(world.answers)
        await world.live()
        assert world.answers[: len(public)] == public
        return True
    return False


@pytest.mark.parametrize("first", [1, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 3))])
async def test_every_id_has_one_answer_wherever_it_dies(first: int) -> None:
    for left in range(first, 200, 3):
        world = scripted()
        burnt = await crashed(world, left)
        assert findings(world) == [], f"after a crash at place {left}"
        if not burnt:
            return
    raise AssertionError("the fuse is too short")


async def test_the_same_message_has_the_same_answer_over_http_after_a_restart() -> None:
    world = scripted()
    await world.live()
    bodies = {json.loads(body)["id"]: body for body in world.answers}
    asked = text("w1", "ask", series="watched", threshold=10**6).encode()
    commits = world.commits()
    left = max(
        at for at, commit in enumerate(commits) if commit.ticks
    )  # there is a tick left to run
    told = sum(len(commit.answers) for commit in commits[left:])
    answers = world.answers[: len(world.answers) - told]
    again = MessageWorld(WITH_ANALYSTS, store=world.store, answers=answers, bodies=world.bodies)
    again.store.commits = world.store.commits[:left]
    del again.bodies[-3:]

    async def tell(engine: Engine) -> None:
        assert await engine.tell(asked, "") == bodies["w1"]
        later = asked.replace(UNTIL.encode(), b"2025-10-09T13:00:00Z")
        assert later != asked
        assert await engine.tell(later, "") == bodies["w1"]
        with pytest.raises(NotAccepted) as refused:
            await engine.tell(text("w1", "ask", series="watched", threshold=3).encode(), "")
        assert refused.value.kind == "used"

    await again.told(tell, tick=10)


REFUSED: Mapping[str, tuple[str, str]] = {
    "no such series": ("unknown", text("r", "ask", series="nobody")),
    "no parameter of it": ("usage", text("r", "ask", series="orders", threshold=3)),
    "no threshold": ("usage", text("r", "ask", series="watched")),
    "an unknown thing": ("usage", text("r", "dance")),
    "another analyst's": ("forbidden", text("r", "ask", "bob", series="anns")),
    "halting another's": ("forbidden", text("r", "halt", "bob", series="anns")),
    "halting the file's": ("unknown", text("r", "halt", series="orders")),
    "halting what never was": ("unknown", text("r", "halt", "bob", series="nobody")),
    "halting what has ended": ("unknown", text("r", "halt", "bob", series="gone")),
    "beyond the budget": ("budget", text("r", "create", "bob", series=large("b", "1.1"))),
    "a name that was taken": ("usage", text("r", "create", series=large("gone"))),
    "a watch of what has none": ("usage", text("r", "watch", series="orders", watch={"name": "w"})),
    "no such analyst": ("usage", text("r", "preview", "eve", series=large("b"))),
}
NOT_ACCEPTED: Mapping[str, tuple[str, bytes]] = {
    "a later version": ("unreadable", sealed(text("r", "list")).replace(b'"v":1', b'"v":2')),
    "a megabyte": ("unreadable", b'{"v":1,"message":"' + b"x" * 1_000_000 + b'","signature":""}'),
    "no id": ("unreadable", sealed(json.dumps({"until": UNTIL, "do": "list"}))),
    "no signature of hers": ("signature", sealed(text("r", "list", "ann"), "bob")),
    "an analyst as operator": ("signature", sealed(text("r", "list"), "ann")),
    "expired": ("expired", sealed(text("r", "list", until="2025-10-09T08:00:00Z"))),
    "for the day after tomorrow": ("expired", sealed(text("r", "list", until="2025-10-11T08:00:00Z"))),
    "another's id": ("used", sealed(text("before", "ask", series="orders"))),
    "repeated": ("repeated", sealed(text("before", "list"))),
}  # fmt: skip


async def prepared(engine: Engine) -> None:
    """Series of the main ledger and of ann's, and one that has ended."""
    for name, series, analyst in (("c1", "large", ""), ("c2", "anns", "ann"), ("c3", "gone", "")):
        await engine.tell(text(name, "create", analyst, series=large(series, "0.2")).encode(), "")
    await engine.tell(text("h", "halt", series="gone").encode(), "")
    await engine.tell(text("before", "list").encode(), "")


async def stands(world: MessageWorld, engine: Engine) -> dict[str, Any]:
    ledgers = engine.admission.subledgers
    return {
        "states": (await engine._ensemble.states()).states,
        "ledgers": (dict(ledgers.ledgers), dict(ledgers.running)),
        "seeds": list(world.drawn),
        "series": [live.number for live in engine.admission.registry.live],
        "changes": [commit.changes for commit in world.commits() if commit.changes],
    }


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refusal_changes_nothing(name: str) -> None:
    kind, said = REFUSED[name]
    analyst = json.loads(said).get("analyst", "")
    for by_queue in (False, True):
        world = MessageWorld(WITH_ANALYSTS)

        async def refused(
            engine: Engine, world: MessageWorld = world, by_queue: bool = by_queue
        ) -> None:
            await prepared(engine)
            before = await stands(world, engine)
            number = len(world.answers)
            if by_queue:
                world.script.append((0, sealed(said, analyst)))
                await answered(world, number + 1)
            else:
                signer = "" if analyst == "eve" else analyst
                assert await engine.tell(said.encode(), signer) == world.answers[number]
            assert await stands(world, engine) == before
            answer = json.loads(world.answers[-1])
            assert (answer["id"], answer["refused"]["kind"]) == ("r", kind)
            assert answer["refused"]["exit_code"] == (3 if kind == "budget" else 2)
            for value in ("nobody", "dance", "eve"):
                assert value not in answer["refused"]["detail"]

        await world.told(refused)


async def test_a_question_that_its_mechanism_refuses_takes_no_seed() -> None:
    world = MessageWorld(WITH_ANALYSTS)

    async def refused(engine: Engine) -> None:
        """The first question ends the sparse vector, which then answers no other."""
        await engine.tell(text("w", "ask", series="watched", threshold=-(10**6)).encode(), "")
        before = await stands(world, engine)
        await engine.tell(text("r", "ask", series="watched", threshold=1).encode(), "")
        assert await stands(world, engine) == before

    await world.told(refused)


async def test_what_cannot_be_told_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that says refused must not come with a series that was charged."""
    world = MessageWorld(WITH_ANALYSTS)

    def unknown(proposal: PlannedSeries) -> tuple[int, int]:
        raise UsageError("epsilon: its error is not known")

    async def refused(engine: Engine) -> None:
        await prepared(engine)
        before = await stands(world, engine)
        monkeypatch.setattr(PlannedSeries, "predicted", unknown)
        told = await engine.tell(text("r", "create", series=large("b")).encode(), "")
        assert json.loads(told)["refused"]["kind"] == "usage"
        assert await stands(world, engine) == before
        await engine.tell(text("l", "list").encode(), "")
        assert await stands(world, engine) == before

    await world.told(refused)


async def answered(world: MessageWorld, number: int) -> None:
    for _ in range(200_000):
        if len(world.answers) >= number:
            return
        await asyncio.sleep(0)
    raise AssertionError("no answer comes")


@pytest.mark.parametrize("name", NOT_ACCEPTED)
async def test_what_is_no_message_changes_nothing_and_uses_up_no_id(name: str) -> None:
    kind, value = NOT_ACCEPTED[name]
    world = MessageWorld(WITH_ANALYSTS)

    async def refused(engine: Engine) -> None:
        await prepared(engine)
        before = await stands(world, engine)
        number = len(world.answers)
        world.script += [(0, value), (0, value)]
        await answered(world, number + 1)
        assert await stands(world, engine) == before
        (line,) = world.said()[number:]
        assert (line["refused"]["kind"], refusals(line)[0]["records"]) == (kind, 2)
        good = await engine.tell(text("r", "list").encode(), "")
        assert "queries" in json.loads(good)["answer"]

    await world.told(refused)


async def test_more_messages_than_a_tick_takes_wait_for_the_next() -> None:
    world = MessageWorld(WITH_ANALYSTS, per_tick=3)

    async def asked(engine: Engine) -> None:
        for at in range(3):
            await engine.tell(text(f"b{at}", "list", "bob").encode(), "bob")
        with pytest.raises(NotAccepted) as refused:
            await engine.tell(text("b3", "list", "bob").encode(), "bob")
        assert refused.value.kind == "rate"
        await engine.tell(text("a0", "list", "ann").encode(), "ann")
        world.script.append((3, sealed(text("b3", "list", "bob"), "bob")))

    await world.told(asked)
    assert world.clock.now() == NOW


async def test_each_message_has_its_own_commit_and_each_query_its_own_seed() -> None:
    asks = [text(f"w{at}", "ask", series="watched", threshold=10**6 + at) for at in range(3)]
    world = MessageWorld(WITH_ANALYSTS, script=[(2, sealed(said)) for said in asks])
    await world.live()
    commits = [commit for commit in world.commits() if commit.changes]
    assert [(len(c.changes), len(c.answers), place_of(c)) for c in commits] == [
        (1, 1, at) for at in (1, 2, 3)
    ]
    assert len({seed for commit in commits for seed in commit.seeds}) == 3


@pytest.mark.parametrize("overdue", [False, True])
async def test_what_waits_for_the_rest_of_its_block_is_not_told(
    overdue: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block is published by tick numbers; how much of it is durable depends on how much there was to read."""
    blocks = WITH_ANALYSTS | {"clock": WITH_ANALYSTS["clock"] | {"block": "4"}}
    world, until = MessageWorld(blocks), UNTIL
    if overdue:
        monkeypatch.setattr(run_config, "GROUP", 4)
        after, until = parse_moment("2026-02-01T00:00:00Z"), "2026-02-01T12:00:00Z"
        assert after is not None
        world = MessageWorld(WITH_ANALYSTS, clock=ManualClock(after), hold=500)
    seen = list[tuple[Any, Any]]()
    source = Stopping(3)
    engine = world.messaging(source)
    run = asyncio.create_task(engine.run())
    await world.until(3)
    for tick in (3, 4, 6, 7):
        source.go(tick)
        while world.commits()[-1].ticks[-1:] != (tick,) and world.public_tick() < tick:  # noqa: ASYNC110
            await asyncio.sleep(0)
        asked = await engine.tell(
            text(f"a{tick}", "ask", until=until, series="orders").encode(), ""
        )
        preview = text(f"p{tick}", "preview", until=until, series=large(epsilon="1")).encode()
        priced = json.loads(await engine.tell(preview, ""))["answer"]
        seen.append((json.loads(asked)["answer"], priced))
    assert seen[0] == seen[1] == seen[2] != seen[3]
    assert [told["tick"] for told, _ in seen] == [3, 3, 3, 7]
    source.go(HORIZON)
    await run


@dataclass
class TracedWorld(MessageWorld):
    spans: ToldSpans = field(default_factory=ToldSpans)

    def messaging(self, *arguments: Any) -> Engine:
        engine = super().messaging(*arguments)
        engine._ports = replace(engine._ports, spans=self.spans.traces)
        return engine


async def test_a_query_is_a_span_with_its_commit_and_its_answer() -> None:
    world = TracedWorld(WITH_ANALYSTS, script=SCRIPT)
    await world.live()
    assert findings(world) == []
    found = world.spans.parents()
    assert found["tick", ""] == found["publish", "tick"] == HORIZON
    assert found["query", ""] >= len({at for at, _ in SCRIPT})
    assert found["commit", "query"] >= 1
    assert found["answer", "query"] >= 1
    assert found["commit", "query"] + found["commit", "tick"] + found["commit", "recovery"] == len(
        world.store.commits
    )
    said = [dict(one.attributes or {}) for one in world.spans.ended if one.name == "query"]
    assert said == [{"stream_dp.outcome": "done"}] * found["query", ""]
