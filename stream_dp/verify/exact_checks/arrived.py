"""Identifiers that are counted at their first tick: raw events are played, with the memory in front of the answers.

One identifier is enough: every other identifier is the same in both streams, and its units are added independently.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import FirstArrivals
from stream_dp.core.arrivals import Arrivals
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.users import Users
from stream_dp.verify.exact.finite import DifferAtMost, Law, Pairs
from stream_dp.verify.exact.randomized_response import noisy_bit
from stream_dp.verify.exact_checks.instance import ADD, Instance, private

THREE = Fraction(3)
GONE, COME = (1, 0), (0, 1)
FirstState = tuple[int, bool]


@dataclass(frozen=True, slots=True)
class FirstBits:
    """Takes at each tick whether the identifier is there, and answers by a noisy bit whether this is its first time
    in the window of `window` ticks (None: for ever).
    """

    odds: Fraction
    window: int | None

    def initial(self) -> Mapping[FirstState, Fraction]:
        """Return the law of the first state: (ticks so far, not seen)."""
        return {(0, False): Fraction(1)}

    def step(self, state: FirstState, query: int) -> Law[FirstState]:
        """Return the law of the answer to a tick."""
        tick, seen = state
        if self.window is not None and tick % self.window == 0:
            seen = False
        after = (tick + 1, seen or bool(query))
        first = int(bool(query) and not seen)
        return {(bit, after): chance for bit, chance in noisy_bit(first, self.odds).items()}


@dataclass(frozen=True, slots=True)
class OneUserWindow:
    """One user's events, at most `cap` in each window of `window` ticks; in one window the two streams may differ.

    In that window, named by `differs`, one stream has all of its differing events and the other none. `used` counts
    the events of the current window; `kept` says that both streams have events in it.
    """

    window: int
    cap: int
    tick: int = 0
    differs: int | None = None
    used: int = 0
    kept: bool = False

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "OneUserWindow"]]:
        """Yield the pairs that are allowed next."""
        now, begins = self.tick // self.window, self.tick % self.window == 0
        used, kept = (0, False) if begins else (self.used, self.kept)
        after = replace(self, tick=self.tick + 1, used=used, kept=kept)
        yield (0, 0), after
        if used == self.cap:
            return
        if not kept and self.differs in (None, now):
            yield COME, replace(after, differs=now, used=used + 1)
        if self.differs != now:
            yield (1, 1), replace(after, used=used + 1, kept=True)


def _instance(words: str, arrivals: Arrivals, pairs: Pairs, ticks: int) -> Instance:
    premise = leaf("bits", Guarantee(private(THREE), ADD), "verify.exact_checks")
    machine = FirstBits(THREE, arrivals.window)
    situation = FirstArrivals("arrivals", arrivals)
    return Instance(f"bits of ln 3; {words}", (premise,), situation, machine, pairs, ticks)


def arrived() -> tuple[Instance, ...]:
    """Return the instances of the rule for first arrivals."""
    event = DifferAtMost((0, 1), (GONE, COME))
    day, overall = Users(2, 2), Users(3)
    return (
        _instance("one event moves an identifier's first tick", Arrivals(), event, 3),
        _instance("the same in windows of two ticks", Arrivals(2), event, 4),
        _instance("single ticks", Arrivals(1), event, 3),
        _instance(f"{overall}", Arrivals(None, overall), DifferAtMost((0,), (COME,), 3), 4),
        _instance(
            f"{overall}, in each tick", Arrivals(1, overall), DifferAtMost((0,), (COME,), 3), 4
        ),
        _instance(f"{day}, so far", Arrivals(None, day), OneUserWindow(2, 2), 4),
        _instance(f"{day}, in windows of as much", Arrivals(2, day), OneUserWindow(2, 2), 4),
        _instance(f"{day}, in each tick", Arrivals(1, day), OneUserWindow(2, 2), 4),
    )
