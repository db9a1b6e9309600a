"""A pipeline in memory that takes messages: a live series, a series that is asked itself, a queue, and crashes."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from commit_parts import place_of
from unit.journal.runtime_worlds import CrashingJournal, CrashingSink, Fuse
from unit.live.live_series_worlds import HORIZON, PIPELINE, SEALER, Stopping, World

from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.cut_changes import CutChanges
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.answering import Answering
from stream_dp.engine.ports import Ports, Question
from stream_dp.engine.series import Series
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.files.memory import MemoryAnswers
from stream_dp.journal.commit import Answer, Asked
from stream_dp.journal.release import Shape
from stream_dp.live.envelope import write_envelope
from stream_dp.mechanisms.hss.sparse_vector import SparseVector, SparseVectorState
from stream_dp.testing.manual_clock import ManualClock

NOW = 1_760_000_000_000
UNTIL = "2025-10-09T12:00:00Z"  # some hours later
WITH_ANALYSTS = PIPELINE | {
    "privacy": {
        "epsilon": "6",
        "analysts": [{"name": "ann", "epsilon": "1"}, {"name": "bob", "epsilon": "1"}],
    },
    "series": [
        {"name": "orders", "statistic": "count", "epsilon": "1"},
        {"name": "watched", "statistic": "count", "epsilon": "1"},
    ],
}


class Watched:
    """A sparse vector that is asked at any time, and tells each tick whether it has fired; then it takes no more."""

    width = 1
    inner = SparseVector(1, Fraction(1), Fraction(1), Neighbors.ADD_REMOVE, (0,))
    guarantee, rows = inner.guarantee, inner.rows

    def init(self, noise: Noise) -> SparseVectorState:
        return self.inner.init(noise)

    def step(
        self, state: SparseVectorState, message: Message, noise: Noise
    ) -> tuple[SparseVectorState, IntArray | None]:
        if isinstance(message, Update):
            return (state if state.halted else self.inner.step(state, message, noise)[0]), None
        if message.threshold is None:
            return state, np.array([int(state.halted)])
        if state.halted:
            raise RejectedMessage("watch: has fired; it answers no more")
        return self.inner.step(state, message, noise)


class ThresholdAsking:
    """Takes `threshold`, a whole number."""

    def query(self, parameters: Mapping[str, Any]) -> Query:
        threshold = parameters.get("threshold")
        if type(threshold) is not int:
            raise UsageError("threshold: must be a whole number")
        return Query(threshold)

    def begins(self, parameters: Mapping[str, Any]) -> int | None:
        return None

    def content(self, parameters: Mapping[str, Any], answer: IntArray) -> Mapping[str, Any]:
        return {"threshold": parameters["threshold"], "above": bool(answer[0])}

    def answered(self, content: Mapping[str, Any], at: int) -> "ThresholdAsking":
        return self


WATCHED = Series(
    "watched", Watched(), slice(0, 1), ("",), Shape.SCALAR, lambda tick, state: 0, 0.95,
    asking=ThresholdAsking(), askers=None,
)  # fmt: skip


def text(name: str, do: str, analyst: str = "", until: str = UNTIL, **more: Any) -> str:
    """The text of a message; one that creates or watches accepts noise, unless it says otherwise."""
    accepting = {"accept_noise": True} if do in ("create", "watch") else {}
    said = {"id": name, "analyst": analyst, "until": until, "do": do, **accepting, **more}
    return json.dumps({key: value for key, value in said.items() if key != "analyst" or value})


def sealed(said: str, token: str = "") -> bytes:
    """A message's envelope, signed by the operator or with the token of an analyst."""
    return write_envelope(SEALER.query_token(token), "shop", said)


def large(name: str = "large", epsilon: str = "0.5", **more: Any) -> dict[str, Any]:
    where = [{"field": "amount", "at_least": 5}]
    return {"name": name, "statistic": "count", "where": where, "epsilon": epsilon, **more}


class CrashingAnswers(MemoryAnswers):
    """Passes a place before and behind each answer that becomes public."""

    def __init__(self, bodies: list[bytes], fuse: Fuse) -> None:
        super().__init__(bodies)
        self._fuse = fuse

    async def publish(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._fuse.burn()
            await super().publish([answer])
        self._fuse.burn()


@dataclass
class ScriptedQuestions:
    """Messages that are there once their tick is public: (tick, value)."""

    script: Sequence[tuple[int, bytes]]
    public: Callable[[], int]
    place: int = 0

    async def open(self) -> None:
        """Nothing to connect to."""

    async def seek(self, place: int) -> None:
        self.place = max(0, place)

    async def read(self) -> Sequence[Question]:
        """Wait for the next ones, three at most."""
        while True:
            places = range(self.place, min(self.place + 3, len(self.script)))
            there = [at for at in places if self.script[at][0] <= self.public()]
            if there:
                self.place = there[-1] + 1
                return [Question(at, self.script[at][1], NOW + at) for at in there]
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Nothing to give back."""


@dataclass
class MessageWorld(World):
    """What outlives an engine that takes messages; where `watched`, its second series is one that is asked."""

    script: list[tuple[int, bytes]] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    kind: type[Engine] = Engine
    per_tick: int = 100
    watched: bool = True
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    hold: int | None = None

    def public_tick(self) -> int:
        return json.loads(self.bodies[-1])["tick"] if self.bodies else -1

    def messaging(self, source: Stopping, fuse: Fuse | None = None) -> Engine:
        fuse = fuse or Fuse()
        ports = Ports(
            source, CrashingJournal(self.store, fuse), CrashingSink(self.bodies, fuse), self.clock, SEALER, self.seed,
            ScriptedQuestions(self.script, self.public_tick), CrashingAnswers(self.answers, fuse),
        )  # fmt: skip
        plan = self.built.run_config(0)
        series = (plan.series[0], WATCHED) if self.watched else plan.series
        return self.started(
            ports, self.kind, series=series, group=1, per_tick=self.per_tick, hold=self.hold
        )

    async def live(self, fuse: Fuse | None = None) -> None:
        """Run an engine until its last tick is public and the script is answered."""
        source = Stopping(HORIZON - 2)
        run = asyncio.create_task(self.messaging(source, fuse).run())
        while not run.done() and not self.done():  # noqa: ASYNC110 - steps of the loop, no time
            await asyncio.sleep(0)
        source.go(HORIZON)
        await run

    def done(self) -> bool:
        """Whether the whole script is answered, and all ticks but the last are public."""
        read = max(map(place_of, self.commits()), default=0)
        return read >= len(self.script) and self.public_tick() >= HORIZON - 2

    async def told(self, then: Callable[[Engine], Awaitable[None]], tick: int = 2) -> None:
        source = Stopping(tick)
        engine = self.messaging(source)
        run = asyncio.create_task(engine.run())
        await self.until(tick)
        try:
            await then(engine)
        finally:
            source.go(HORIZON)
            await run

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.answers]


def commit_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a question share a commit with the message behind it, as in journals of former versions."""
    hear, flush = Answering.hear, CutChanges.flush

    async def heard(self: Answering, questions: deque[Question], *_: Any, **__: Any) -> None:
        while questions:
            await hear(self, questions, hold=True)

    async def joined(self: CutChanges) -> None:
        if [type(change) for change in self._pending.changes] != [Asked]:
            await flush(self)

    monkeypatch.setattr(Answering, "hear", heard)
    monkeypatch.setattr(CutChanges, "flush", joined)


SCRIPT: list[tuple[int, bytes]] = [
    (-1, sealed(text("first", "list"))),
    (1, sealed(text("c1", "create", series=large()))),
    (2, sealed(text("a1", "ask", series="orders"))),
    (2, sealed(text("w1", "ask", series="watched", threshold=10**6))),
    (2, b"no message"),
    (2, sealed(text("c9", "list"))[:-9]),
    (3, sealed(text("w2", "ask", series="watched", threshold=10**5))),
    (3, sealed(text("a1", "ask", series="orders"))),
    (4, sealed(text("x1", "ask", series="nobody"))),
    (4, sealed(text("w3", "ask", series="watched", threshold="7"))),
    (5, sealed(text("p1", "preview", "ann", series=large("anns", "0.1")), "ann")),
    (5, sealed(text("c2", "create", "ann", series=large("anns", "0.1")), "ann")),
    (5, sealed(text("c3", "create", series=large("dear", "5")))),
    (6, sealed(text("b1", "ask", "bob", series="anns"), "bob")),
    (6, sealed(text("w4", "ask", series="watched", threshold=-(10**6)))),
    (6, sealed(text("w5", "ask", series="watched", threshold=1))),
    (7, sealed(text("h1", "halt", series="large"))),
    (7, sealed(text("a2", "ask", series="large"))),
]
"""Messages of every kind, with the tick after which they come."""
IDS = [
    "first", "c1", "a1", "w1", "w2", "x1", "w3", "p1", "c2", "c3", "b1", "w4", "w5", "h1", "a2",
]  # fmt: skip
"""Those whose message is accepted."""


def refusals(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The reasons of an answer to what is no message, each with the places that it names and how many records."""
    every = [{**said["refused"], "places": said["places"]}, *said.get("also", [])]
    return [{"records": len(each["places"]), **each} for each in every]


def findings(world: MessageWorld) -> list[str]:
    """What is wrong with the answers of a world whose script is done; empty where nothing is."""
    said, found = world.said(), list[str]()
    recorded = [answer for commit in world.commits() for answer in commit.answers]
    if [answer.body for answer in recorded] != world.answers:
        found.append("bytes: what is public is not what the journal holds")
    if [each["number"] for each in said] != list(range(1, len(said) + 1)):
        found.append("numbers: not 1, 2, 3, ...")
    if [each["id"] for each in said if each["id"] is not None] != IDS:
        found.append("ids: not each of them once, in the order of the queue")
    parts = [part for each in said if each["id"] is None for part in refusals(each)]
    if sorted(place for part in parts for place in part["places"]) != [4, 5, 7]:
        found.append("places: not each record once that is no message")
    seeds = [seed for commit in world.commits() for seed in commit.seeds]
    if len(set(seeds)) != len(seeds):
        found.append("seeds: one is used twice")
    return found
