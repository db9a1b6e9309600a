"""What is private does not show in a repr, however it is printed (law 1)."""

from dataclasses import fields, is_dataclass
from io import StringIO
from pprint import pformat
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console
from rich.pretty import pretty_repr

from stream_dp.core.mechanism import Query
from stream_dp.core.time import TickGrid
from stream_dp.engine.ensemble import Actor
from stream_dp.engine.history import History, JournalSummary, Past
from stream_dp.engine.ports import Batch, Ports
from stream_dp.engine.recovery import Coming, Recovered
from stream_dp.engine.tick_assembler import ClosedTick, Cut, OpenRow, Routed, ThinRow, TickAssembler
from stream_dp.journal.checkpoint import Piece, Places, Standing, Totals
from stream_dp.journal.commit import Answer, Commit, DeadLetter, Refused, Release, SavedStates
from stream_dp.journal.dead_letters import DeadLetters, Span
from stream_dp.journal.keys import Sealer
from stream_dp.journal.release import Head, Quantile, Rank, Released, WindowPart
from stream_dp.noise import NoiseStream

SECRET = 987654321
BYTES = b"987654321" + bytes(23)
ONE: Any = None  # a series
ROW = np.full(2, SECRET)
END = "2024-05-01T00:00:00Z"
COMMIT = Commit(
    1, BYTES, None, (), (4,), ((SECRET,),), (BYTES,), (Release(1, "a", 4, BYTES),),
    {0: SECRET}, {0: 4}, {5: {0: SECRET}}, (DeadLetter(0, "junk", None, SECRET, ((SECRET, SECRET),)),), SECRET, SECRET,
    SavedStates({0: BYTES}), answers=(Answer(1, "a", BYTES, 4, BYTES),),
)  # fmt: skip


SPAN = Span("junk", None, SECRET, SECRET)


def letters() -> DeadLetters:
    made = DeadLetters()
    made.add(0, [SPAN])
    return made


def assembler() -> TickAssembler:
    made = TickAssembler((0,), 2)
    made.add(Batch(0, (BYTES,), (SECRET,), SECRET), Routed({0: ROW}, [SPAN], {0: SECRET}))
    return made


PAST = Past(COMMIT, answer=(SECRET, BYTES), totals=Totals(records=SECRET))
PRIVATE: list[Any] = [
    COMMIT,
    COMMIT.releases[0],
    COMMIT.dead_letters[0],
    COMMIT.snapshot,
    COMMIT.answers[0],
    Refused("kind", "detail", SECRET, (SECRET,), SECRET),
    Batch(0, (BYTES,), (SECRET,), SECRET, refused=(SPAN,), capped=SECRET),
    SPAN,
    letters(),
    Routed({4: ROW}, [SPAN], {4: SECRET}),
    ClosedTick(4, ROW, {0: SECRET}, {0: 4}, {5: ROW}, letters(), SECRET, SECRET),
    Coming(0, slice(0, 1), BYTES),
    ThinRow(ROW, ROW),
    OpenRow(SECRET),
    Recovered(PAST, {0: ROW}, BYTES, 1, Cut(5, {0: SECRET}, {}, {4: ROW})),
    Cut(5, {0: SECRET}, {}, {4: ROW}),
    PAST,
    PAST.checkpoint((), Standing(), {"users": BYTES}),
    Piece(SECRET, SECRET, SECRET, BYTES),
    History(PAST, [COMMIT], COMMIT, BYTES, [COMMIT.releases[0]]),
    JournalSummary(PAST, rows=ROW),
    Places(((SECRET, SECRET),)),
    Totals(records=SECRET, late=SECRET, dead={(0, "junk", None): SECRET}),
    assembler(),
    assembler()._partitions[0],
    assembler()._partitions[0].current,
    Sealer(BYTES, "clicks"),
    Head(v=1, sequence=SECRET, series="a", tick=SECRET, end=END),
    Released(
        v=1, sequence=1, series="a", tick=4, end=END, value=SECRET, band=SECRET, confidence=0.95
    ),
    WindowPart(value=SECRET, band=SECRET),
    Quantile(value=SECRET, low=SECRET, high=SECRET),
    Rank(name="n", value=SECRET, tied=()),
]


def shown(value: Any) -> str:
    """Every usual way to print it, and things that hold it."""
    screen = StringIO()
    Console(file=screen, width=200).print(value, [value])
    error = f"{ValueError(value)!r} {ValueError(value)}"
    return f"{value!r} {value} {[value]} {pformat(value)} {pretty_repr(value)} {error} {screen.getvalue()}"


@pytest.mark.parametrize("value", PRIVATE, ids=lambda value: type(value).__name__)
def test_a_repr_shows_nothing_private(value: Any) -> None:
    assert "987654321" not in shown(value).replace(",", "").replace("_", "")
    assert type(value).__name__ in repr(value)


async def test_a_message_to_an_actor_shows_nothing_private() -> None:
    actor, noise = Actor(ONE, ROW, 0), NoiseStream(BYTES, 0)
    replies = [
        await actor.tick(TickGrid(0, 1), 4, [1], ROW, lambda _: noise),
        await actor.ask(3, Query(SECRET), noise),
    ]
    for value in (actor, actor._mailbox, *replies):
        assert "987654321" not in shown(value)


def test_the_check_can_fail() -> None:
    class Careless(msgspec.Struct):
        row: int

    assert "987654321" in shown(Careless(SECRET))


def test_every_private_value_of_the_runtime_is_checked() -> None:
    """A new dataclass or struct of the runtime is either in the list above or public by name."""
    public = {"Asked", "Charge", "Created", "Halted", "Header", "Ports", "Audience", "Sealed", "_Form", "_Part",
              "Private", "_Segment", "_Partition", "Watched", "Unwatched", "Rank", "_Third", "_Written",
              "_Public", "Running", "Ended", "Watch", "Watching", "Spent", "Account", "Standing",
              "Applied", "WrappedKey", "PackedBodies"}  # fmt: skip
    checked = {type(value).__name__ for value in PRIVATE}
    found = set()
    modules = {type(value).__module__ for value in PRIVATE}
    for module in modules | {Ports.__module__}:
        for name, kind in vars(__import__(module, fromlist=["x"])).items():
            here = isinstance(kind, type) and kind.__module__ == module
            if here and (is_dataclass(kind) or issubclass(kind, msgspec.Struct)):
                found.add(name)
    assert found <= public | checked
    assert {f.name for f in fields(Batch) if f.repr} == {"partition", "tick", "mark"}
