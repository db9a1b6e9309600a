"""Messages as fast as they come, most of them hostile: ticks go on, memory is bounded, everything is answered once."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from commit_parts import place_of
from unit.live.live_series_worlds import HORIZON, Stopping
from unit.live.message_worlds import NOW, refusals, sealed, text
from unit.live.monitor_worlds import FR, MonitorWorld

from stream_dp.engine import engine as engines
from stream_dp.engine.commands import Inbox
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.conversation import Conversation
from stream_dp.engine.ports import Question
from stream_dp.journal.commit import Commit

AT_A_TIME = 32
"""How many messages are handed out at once."""
HOLDS_UP = 6
"""How many times messages may be taken before a tick that may be read is on record."""
LARGE = b'{"v":1,"message":"' + b"x" * 70_000 + b'","signature":""}'
ANALYSTS = ("", "ann", "bob")


def good(chance: Random, name: str, analyst: str) -> bytes:
    """A message that is accepted: mostly questions, and watches that come and go."""
    says: list[dict[str, Any]] = [
        {"do": "ask", "series": "orders"},
        {"do": "ask", "series": "m", "watch": "large", "threshold": 10**6},
        {"do": "ask", "series": "nobody"},
        {"do": "list"},
        {"do": "watch", "series": "m", "watch": FR},
        {"do": "unwatch", "series": "m", "watch": "fr"},
    ]
    return sealed(text(name, analyst=analyst, **chance.choice(says)), analyst)


def hostile(chance: Random, name: str, sent: Sequence[bytes]) -> list[bytes]:
    """Some records of one sort that are no messages."""
    kind, many = chance.randrange(6), chance.randint(1, 60)
    match kind:
        case 0:
            return [chance.randbytes(chance.randint(0, 99)) for _ in range(many)]
        case 1:
            return [LARGE] * (many // 10 + 1)
        case 2:
            return [sealed(text(f"{name}-{at}", "list", "ann"), "bob") for at in range(many)]
        case 3:
            return [sealed(text(name, "list", until="2025-10-09T08:00:00Z")) for _ in range(many)]
        case 4:
            return [chance.choice(sent) for _ in range(many)]
        case _:
            return [sealed(text("g0", "preview", series={"name": str(at)})) for at in range(many)]


def flood(messages: int, chance: Random) -> tuple[list[bytes], dict[int, str]]:
    """Return so many messages, runs of good ones and of hostile ones, and the ids of the good ones by their places.

    A copy of a good one is among the hostile, and good itself where the first was refused because there were too many.
    """
    found = [sealed(text("g0", "list"))]
    names = {found[0]: "g0"}
    while len(found) < messages:
        for _ in range(chance.randint(1, 40)):
            name = f"g{len(found)}"
            found.append(good(chance, name, chance.choice(ANALYSTS)))
            names[found[-1]] = name
        found += hostile(chance, f"h{len(found)}", found)
    ids = {at: names[value] for at, value in enumerate(found[:messages]) if value in names}
    return found[:messages], ids


@dataclass
class Flood:
    """A queue that always has the next messages at once; ticks may be read as it goes."""

    messages: Sequence[bytes]
    source: Stopping
    place: int = 0
    freed: dict[int, int] = field(default_factory=dict)
    """The place at which each tick could be read first."""
    begins: set[int] = field(default_factory=set)
    """Where what was handed out at once begins."""

    async def open(self) -> None:
        """Nothing to connect to."""

    async def seek(self, place: int) -> None:
        self.place = max(0, place)

    async def read(self) -> Sequence[Question]:
        if self.place >= len(self.messages):
            await asyncio.Event().wait()
        places = range(self.place, min(self.place + AT_A_TIME, len(self.messages)))
        self.handed(places)
        return [Question(at, self.messages[at], NOW + at) for at in places]

    def handed(self, places: range) -> None:
        """These are handed out: perhaps one more tick may be read."""
        self.place = places.stop
        self.begins.add(places.start)
        tick = min(self.place * (HORIZON - 1) // len(self.messages), HORIZON - 2)
        if tick not in self.freed:
            self.freed[tick] = self.place
            self.source.go(tick)

    async def close(self) -> None:
        """Nothing to give back."""


@dataclass
class FloodedWorld(MonitorWorld):
    """What outlives an engine under a flood; `held` says how much of it was read and not on record, at most."""

    per_tick: int = 10
    at_a_time: int = AT_A_TIME
    held: int = 0
    ids: dict[int, str] = field(default_factory=dict)
    queue: Flood = field(init=False)

    async def flooded(self, messages: int, seed: int) -> None:
        values, self.ids = flood(messages, Random(seed))
        source = Stopping(0)
        self.queue = Flood(values, source)
        engine = self.messaging(source)
        self.plugged(engine)
        run = asyncio.create_task(engine.run())
        while not run.done() and not self.over(engine, messages):  # noqa: ASYNC110 - steps of the loop, no time
            await asyncio.sleep(0)
        source.go(HORIZON)
        await run

    def plugged(self, engine: Engine) -> None:
        engine._ports = replace(engine._ports, questions=self.queue)

    def over(self, engine: Engine, messages: int) -> bool:
        """Whether all is executed and all ticks but the last are on record; notes what is held in memory."""
        if not hasattr(engine, "_chain"):
            return False
        talk = engine._conversation
        self.held = max(self.held, self.queue.place - max(0, talk.place))
        return talk.place >= messages and engine._chain.settled >= HORIZON - 1


def flood_findings(world: FloodedWorld) -> list[str]:
    """What is wrong after a flood; empty where nothing is."""
    found, said, queue = list[str](), world.said(), world.queue
    named = [(each["places"][0], each["id"]) for each in said if each["id"] is not None]
    refused = [part for each in said if each["id"] is None for part in refusals(each)]
    if len(named) + sum(part["records"] for part in refused) != len(queue.messages):
        found.append("places: not each of them answered once")
    shown = [place for place, _ in named] + [place for part in refused for place in part["places"]]
    if len(set(shown)) != len(shown):
        found.append("places: one is answered twice")
    rates = [part for part in refused if part["kind"] == "rate"]
    rated = {place for part in rates for place in part["places"]}
    if any(world.ids.get(place) != name for place, name in named):
        found.append("ids: an answer is not that of the message at its place")
    if max(Counter(name for _, name in named).values()) > 1:
        found.append("ids: one has two answers")
    never = {place for place, name in world.ids.items() if name not in dict(named).values()}
    if not rated <= world.ids.keys() or len(never) > sum(part["records"] for part in rates):
        found.append(
            "rate: refuses what is no message, or a good one is refused for something else"
        )
    if most_lines(world) > 1:
        found.append("refusals: do not share one answer a tick")
    if world.held > world.at_a_time:
        found.append("memory: more was read than is executed at a time")
    return found + _ticks(world)


def most_lines(world: MonitorWorld) -> int:
    """How many answers to what is no message lie between two ticks, at most; one that ends the run is not counted."""
    lines = [0]
    for commit in world.commits():
        if commit.ticks:
            lines.append(0)
        lines[-1] += sum(answer.id is None for answer in commit.answers)
    lines[-1] -= 1
    return max(lines)


def _ticks(world: FloodedWorld) -> list[str]:
    """Whether ticks went on, and each analyst had her messages between two of them and no more."""
    found, taken = list[str](), Counter[str]()
    for commit in world.commits():
        taken.update(_accepted(commit))
        if max(taken.values(), default=0) > world.per_tick:
            found.append("rate: more than so many between two ticks")
        if not commit.ticks:
            continue
        taken.clear()
        freed = world.queue.freed.get(commit.ticks[-1], len(world.queue.messages))
        if place_of(commit) > freed + HOLDS_UP * world.at_a_time:
            found.append(f"ticks: {commit.ticks[-1]} was held up by messages")
    return found


def _accepted(commit: Commit) -> list[str]:
    """Whose messages a commit accepts."""
    answers = [json.loads(answer.body) for answer in commit.answers]
    return [
        answer.analyst for answer, body in zip(commit.answers, answers, strict=True) if body["id"]
    ]


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_flood_holds_nothing_up_and_is_answered_once(seed: int) -> None:
    world = FloodedWorld()
    await world.flooded(3000, seed)
    assert flood_findings(world) == []
    kinds = {part["kind"] for each in world.said() if each["id"] is None for part in refusals(each)}
    assert kinds == {"unreadable", "signature", "expired", "used", "repeated", "rate"}
    assert world.held == AT_A_TIME


class MessagesFirst(Inbox):
    """Takes ticks only where no message waits: a flood stops them."""

    async def get(self, most: int) -> Any:
        self._commanded = False
        return await super().get(most)


class NoRate(Conversation):
    """An analyst may have as much executed between two ticks as she likes."""

    def require_rate(self, analyst: str) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "twin", "why"),
    [
        ("Inbox", MessagesFirst, "was held up by messages"),
        ("Conversation", NoRate, "more than so many between two ticks"),
    ],
)
async def test_the_twin_does_not_stand_the_flood(
    name: str, twin: type[Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FloodedWorld()
    monkeypatch.setattr(engines, name, twin)
    await world.flooded(1500, 3)
    assert any(why in each for each in flood_findings(world))


def junk(records: int) -> list[bytes]:
    """Records without a valid signature, of two kinds in turn, and one good message in the midst of them."""
    forged = sealed(text("forged", "list", "ann"), "bob")
    found = [forged if at % 2 else b"junk" for at in range(records)]
    return [*found[: records // 2], sealed(text("good", "list")), *found[records // 2 :]]


async def junked(records: int, *, killed: bool = False) -> FloodedWorld:
    """A world that was sent junk; where it is killed, once in the midst of it."""
    world = FloodedWorld()
    for again in range(1 + killed):
        source = Stopping(HORIZON)
        source.limit = -1
        world.queue = Flood(junk(records), source)
        engine = world.messaging(source)
        world.plugged(engine)
        run = asyncio.create_task(engine.run())
        while not world.over(engine, len(world.queue.messages)):
            if killed and not again and world.public_tick() >= HORIZON // 2:
                run.cancel()
                break
            await asyncio.sleep(0)
        source.go(HORIZON)
        await asyncio.wait({run})
    return world


async def test_junk_lets_neither_the_journal_nor_the_answers_grow() -> None:
    """Ten times as many records take some more digits, and their ticks one line."""
    small, large = [await junked(records) for records in (400, 4000)]
    for world in (small, large):
        lines = [each for each in world.said() if each["id"] is None]
        assert len(lines) <= HORIZON + 1
        assert all(len(each["places"]) <= 20 for line in lines for each in refusals(line))
    sizes = [
        (sum(map(len, world.answers)), sum(map(len, world.store.commits)))
        for world in (small, large)
    ]
    assert sizes[1][0] < sizes[0][0] + 200 * HORIZON
    assert sizes[1][1] < sizes[0][1] + 1000 * HORIZON


@pytest.mark.parametrize("killed", [False, True])
async def test_each_record_of_junk_is_counted_once_by_its_kind_also_after_a_kill(
    killed: bool,
) -> None:
    world = await junked(1000, killed=killed)
    found = dict.fromkeys(("unreadable", "signature"), 0)
    for line in world.said():
        for each in refusals(line) if line["id"] is None else []:
            found[each["kind"]] += each["records"]
    assert found == {"unreadable": 500, "signature": 500}
    assert [each["id"] for each in world.said() if each["id"]] == ["good"]
