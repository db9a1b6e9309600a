"""Time: mechanisms that come and go; a pure event-level guarantee costs the largest load of a tick (docs/time.md)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from stream_dp.accounting.rules.moved import moved
from stream_dp.accounting.rules.of_users import of_users
from stream_dp.accounting.situations import Alive, Moved, OfUsers, Ticks
from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.users import Users
from stream_dp.verify.exact.randomized_response import NoisyBits
from stream_dp.verify.exact.time_rule import OneTick, TickComposition
from stream_dp.verify.exact_checks.instance import (
    Instance,
    OneBitDiffers,
    Part,
    composed,
    private,
)

TWO, THREE = Fraction(2), Fraction(3)
ODDS = (THREE, TWO, Fraction(5, 2))
LIVES = (Alive(0, 1), Alive(1, 2), Alive(2, None))
TICKS = 3
BITS: tuple[Any, Any] = (0, 1)


def bits(odds: Fraction) -> Part:
    """A noisy bit at every tick."""
    return Part("bits", NoisyBits(odds), private(odds), OneBitDiffers())


def schedule(parts: tuple[Part, ...]) -> tuple[tuple[int, Create | Halt | int], ...]:
    """(tick, creation, halt, or index of the mechanism asked), in order."""
    steps: list[tuple[int, Create | Halt | int]] = []
    for tick in range(TICKS):
        lives = list(enumerate(LIVES))
        steps += [(tick, parts[i].create) for i, life in lives if life.first == tick]
        steps += [(tick, Halt(i)) for i, life in lives if life.last == tick - 1]
        steps += [
            (tick, i)
            for i, life in lives
            if life.first <= tick and (life.last is None or tick <= life.last)
        ]
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class OneTickDiffers:
    """Messages by schedule; the pairs of one tick may differ, of every mechanism alive then."""

    steps: tuple[tuple[int, Create | Halt | int], ...]
    differs: int | None = None

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "OneTickDiffers"]]:
        """The pairs allowed next."""
        if not self.steps:
            return
        (tick, what), after = self.steps[0], replace(self, steps=self.steps[1:])
        if not isinstance(what, int):
            yield (what, what), after
            return
        yield (Ask(what, BITS[0]), Ask(what, BITS[0])), after
        if self.differs in (None, tick):
            yield (Ask(what, BITS[0]), Ask(what, BITS[1])), replace(after, differs=tick)


def lives() -> Instance:
    """Three lives that overlap: the loads are ln 3, ln 6 and ln 5."""
    parts = tuple(bits(odds) for odds in ODDS)
    steps = schedule(parts)
    return Instance(
        "bits of ln 3, ln 2, ln 2.5, alive at ticks 0-1, 1-2, 2; one tick differs",
        tuple(part.leaf for part in parts),
        Ticks("time", LIVES),
        composed(),
        OneTickDiffers(steps),
        len(steps),
    )


def coming_and_going() -> Instance:
    """Begun and ended at any time by the adversary, within ln 6 at every tick."""
    kinds = (bits(THREE), bits(TWO))
    pairs = OneTick((THREE, TWO), Fraction(6), (0,), ((0, 1), (1, 0)), ticks=3, creations=3)
    return Instance(
        "begun and ended at will, at most ln 3 and ln 2 alive at a tick",
        tuple(part.leaf for part in kinds),
        Ticks("time", (Alive(0, None), Alive(0, None))),
        TickComposition(tuple(part.machine for part in kinds)),
        pairs,
        2 * pairs.creations + pairs.ticks,
    )


def moving() -> Instance:
    """Begun and ended at any time, also between the tick that an event leaves and the one that it moves to."""
    kinds = (bits(THREE), bits(TWO))
    pairs = OneTick(
        (THREE**2, TWO**2), Fraction(36), (0,), ((0, 1), (1, 0)),
        ticks=2, creations=4, times=2, once_each=True,
    )  # fmt: skip
    return Instance(
        "begun and ended at will, at most ln 9 and ln 4 alive at a tick; an event moves",
        tuple(moved((part.leaf,), Moved("an event moves")) for part in kinds),
        Ticks("time", (Alive(0, None), Alive(0, None))),
        TickComposition(tuple(part.machine for part in kinds)),
        pairs,
        2 * pairs.creations + pairs.ticks,
    )


def used() -> Instance:
    """Begun and ended at any time, also between the ticks of one user's two events."""
    kinds, users = (bits(THREE), bits(TWO)), Users(2)
    pairs = OneTick(
        (THREE**2, TWO**2), Fraction(36), (0,), ((0, 1), (1, 0)), ticks=2, creations=3, times=2
    )
    return Instance(
        f"begun and ended at will, at most ln 9 and ln 4 alive at a tick; {users}",
        tuple(of_users((part.leaf,), OfUsers("user", users)) for part in kinds),
        Ticks("time", (Alive(0, None), Alive(0, None))),
        TickComposition(tuple(part.machine for part in kinds)),
        pairs,
        2 * pairs.creations + pairs.ticks,
    )


def ticks() -> tuple[Instance, ...]:
    """Return the instances of the time rule."""
    return lives(), coming_and_going(), moving(), used()
