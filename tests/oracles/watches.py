"""Exact law of a block of watches that are asked, created and halted while they run, as a finite machine.

Written from the definition and not from the code. A watch over events since its last crossing is AboveThreshold with
one-sided geometric noise (`oracles.svt`): its hidden noisy threshold is summed out in closed form, so the state holds
the margins of the comparisons that failed. One over a window is the same of the sum of its last rows, none older than
its last crossing; `under` fires below its threshold, and is compared with whole windows only. A watch of single ticks
draws one discrete Laplace count a tick, to which whatever is asked of that tick is compared. Counts that are told are
clamped, which keeps every loss (`oracles.exact`).

Messages: ("row", counts), "tick", ("ask", place, threshold), ("arm", place, kind, threshold, once), ("disarm", place);
of a window "arm" has its length behind these.
Answers: "" to a row; to a tick a pair (fired, told) for each place; one pair to an ask; None: refused.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from oracles.exact import clamped_laplace
from oracles.svt import Decays, pattern_probability

Kind: TypeAlias = Literal["since", "above", "below", "window", "under"]
Outcome: TypeAlias = tuple[tuple[int, int], "Place | None", Fraction]
SILENT = (0, 0)


@dataclass(frozen=True, slots=True)
class Place:
    """One live watch.

    `count`: since its last crossing, or in this tick; `failed`: margins of comparisons that failed; `heard`: the last
    tick's noisy count. `window`: how many rows count; `rows`: the last ones of this instance.
    """

    kind: Kind
    threshold: int
    once: bool = False
    count: int = 0
    failed: tuple[int, ...] = ()
    heard: int | None = None
    window: int = 0
    rows: tuple[int, ...] = ()

    @property
    def sparse(self) -> bool:
        return self.kind in ("since", "window", "under")

    @property
    def compares(self) -> bool:
        return self.kind != "under" or len(self.rows) == self.window

    def with_row(self, x: int) -> "Place":
        if not self.window:
            return replace(self, count=self.count + x)
        rows = (*self.rows, x)[-self.window :]
        return replace(self, rows=rows, count=sum(rows))

    def margin(self, threshold: int) -> int:
        """It fires iff its noise is at least this, more than that on the threshold."""
        return self.count - (threshold - 1) if self.kind == "under" else threshold - self.count


State: TypeAlias = tuple[Place | None, ...]


@dataclass(frozen=True, slots=True)
class Watches:
    """Watches in places, and the decays of their noises.

    `decay`: of both noises of a watch since its crossing; `tick`: of a tick's count; `value`: of a count that is told
    at a crossing, None where none is. `wide`: of both noises of a watch over a window; `wide_value`: of a count that
    such a one tells.
    """

    start: State
    decay: Fraction
    tick: Fraction
    value: Fraction | None = None
    bound: int = 5
    wide: Fraction = Fraction(0)
    wide_value: Fraction | None = None

    def initial(self) -> Mapping[State, Fraction]:
        return {self.start: Fraction(1)}

    def step(self, state: State, message: Any) -> dict[tuple[Any, State], Fraction]:
        """The joint law of (answer, next state)."""
        match message:
            case "tick":
                return self._ticked(state)
            case ("row", counts):
                moved = tuple(
                    place and place.with_row(x) for place, x in zip(state, counts, strict=True)
                )
                return {("", moved): Fraction(1)}
            case ("ask", at, threshold):
                return self._asked(state, at, threshold)
            case ("arm", at, kind, threshold, once, *window) if state[at] is None:
                begun = Place(kind, threshold, once, window=window[0] if window else 0)
                return {("", _put(state, at, begun)): Fraction(1)}
            case ("disarm", at):
                return {("", _put(state, at, None)): Fraction(1)}
        return {(None, state): Fraction(1)}

    def _ticked(self, state: State) -> dict[tuple[Any, State], Fraction]:
        law: dict[tuple[Any, State], Fraction] = {}
        for outcomes in itertools.product(*(list(self._compared(place)) for place in state)):
            answer, after = tuple(o[0] for o in outcomes), tuple(o[1] for o in outcomes)
            chance = Fraction(1)
            for _, _, p in outcomes:
                chance *= p
            law[answer, after] = law.get((answer, after), Fraction(0)) + chance
        return law

    def _asked(self, state: State, at: int, threshold: int) -> dict[tuple[Any, State], Fraction]:
        place = state[at]
        if place is None or not place.compares or not (place.sparse or place.heard is not None):
            return {(None, state): Fraction(1)}
        law: dict[tuple[Any, State], Fraction] = {}
        found = (
            self._crossed(place, threshold)
            if place.sparse
            else [self._judged(place, threshold, place.heard or 0)]
        )
        for answer, after, chance in found:
            key = answer, _put(state, at, after)
            law[key] = law.get(key, Fraction(0)) + chance
        return law

    def _compared(self, place: Place | None) -> Iterator[Outcome]:
        """What becomes of one place when its tick ends."""
        if place is None or not place.compares:
            yield SILENT, place, Fraction(1)
        elif place.sparse:
            yield from self._crossed(place, place.threshold)
        else:
            for heard, chance in clamped_laplace(place.count, self.bound, self.tick).items():
                after = replace(place, count=0, heard=heard)
                answer, then, _ = self._judged(after, place.threshold, heard)
                yield answer, then, chance

    def _crossed(self, place: Place, threshold: int) -> Iterator[Outcome]:
        decay = self.wide if place.window else self.decay
        noise = Decays(decay, decay)
        margins = (*place.failed, place.margin(threshold))
        below = (False,) * len(margins)
        stays = pattern_probability(margins, below, noise)
        stays /= pattern_probability(place.failed, below[1:], noise)
        yield SILENT, replace(place, failed=margins), stays
        after = None if place.once else replace(place, count=0, failed=(), rows=())
        for told, chance in self._told(place):
            yield (1, told), after, (1 - stays) * chance

    def _told(self, place: Place) -> Iterator[tuple[int, Fraction]]:
        decay = self.wide_value if place.window else self.value
        if decay is None:
            yield 0, Fraction(1)
        else:
            yield from clamped_laplace(place.count, self.bound, decay).items()

    def _judged(self, place: Place, threshold: int, heard: int) -> Outcome:
        fired = (heard >= threshold) != (place.kind == "below")
        after = None if fired and place.once else place
        told = heard if fired and self.value is not None else 0
        return (int(fired), told), after, Fraction(1)


def _put(state: State, at: int, place: Place | None) -> State:
    return (*state[:at], place, *state[at + 1 :])
