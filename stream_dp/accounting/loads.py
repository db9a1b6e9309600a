"""What one event meets: the mechanisms that are alive at its tick and can see it, and what they cost it together.

Rules: an event costs what the mechanisms that it meets cost, and what can be told of others before it comes
(docs/time.md). The part of a cost that only met mechanisms have is local: it counts for the records of the mechanism's
box while it is alive. The rest counts for every event, for ever. Loads are upper bounds: where a search for the
heaviest point gives up, they are larger than need be.

Where users are protected, a user's events may meet some mechanisms, and units of a shared total others, at other ticks
and with other contents (`Entry.currency`). So the heaviest points of all currencies add up, over a whole public window
of the cap: what a halt has freed for one currency counts for the others until the window ends. A mechanism that costs
in several currencies counts in each with that part of its price.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stream_dp.accounting.filters.filter import DP, NOTHING, Entry, Filter, Spend
from stream_dp.accounting.filters.linear import by_ticks
from stream_dp.accounting.heaviest import heaviest
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.guarantee import Protected
from stream_dp.core.neighbors import Neighbors


class Search(NamedTuple):
    """How far the heaviest point is searched: over so many `nodes`, or until the amount is `enough` or cannot be."""

    nodes: int
    enough: int | None = None

    def beside(self, shared: Spend) -> "Search":
        return self if self.enough is None else Search(self.nodes, self.enough - shared.amount)


SHORT, MANY = Search(200), 1_000
"""Nodes of a first look and of what is shown, and of the look before a refusal."""
KEPT = 64
"""Searches whose results loads keep."""


def local_part(filter_: Filter, entry: Entry, protected: Protected | None) -> Spend:
    """Return the part of the entry's cost that only events pay which its mechanism sees while it is alive.

    Where an event has one tick: all of a fresh mechanism's, under every filter; of a mechanism with a delta that is not
    fresh its epsilon, because its delta may show before the event comes ([HSV] Cor 5.7, Thm 5.2); of any other nothing
    ([HSV] Thm 13.5).

    Where the events of a user, or the two ticks of a replacement, meet different mechanisms: what is pure, under a
    filter whose epsilons add up (`by_ticks`), if each event costs only its part (`Ledger.price` checks it).

    Raises:
        BudgetRefused, InvalidCost: as `Filter.cost`.
    """
    cost = filter_.cost(entry)
    if several_ticks(protected):
        pure = entry.measure == DP and not entry.delta
        return cost if by_ticks(filter_) and pure else NOTHING
    if entry.fresh:
        return cost
    return replace(cost, delta=0) if entry.measure == DP else NOTHING


def several_ticks(protected: Protected | None) -> bool:
    """Say whether two neighbouring streams may differ in more ticks than one; not where no neighbours are declared."""
    return protected is not None and (
        bool(protected.unit) or protected.neighbors is Neighbors.REPLACE_ANY_TICK
    )


@dataclass(frozen=True, slots=True)
class Loads:
    """What the mechanisms that are alive now cost, by their boxes: `local`, and `everywhere` for every event.

    A value; `local` is never changed. What a search has shown is kept, so that it is not searched again. `shares`:
    users have a total that several mechanisms share. Then `held` has by currency what was met of it, and is no more, in
    the window that ends before a tick (None: it never ends).
    """

    filter: Filter
    protected: Protected | None = None
    shares: bool = False
    everywhere: Spend = NOTHING
    local: Mapping[tuple[str, Box], Spend] = field(default_factory=dict)
    held: Mapping[str, tuple[int | None, Spend]] = field(default_factory=dict)
    _shown: dict[tuple[str, Box, Search], Spend] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def plus(self, entry: Entry) -> "Loads":
        """Return the loads with one more mechanism; raises as `Filter.cost`."""
        loads = self
        for each in entry.each:
            cost, part = self.filter.cost(each), local_part(self.filter, each, self.protected)
            everywhere = loads.everywhere + (cost - part)
            loads = replace(loads, everywhere=everywhere, local=loads._with(each, part))
        return loads

    def less(self, entry: Entry, end: int) -> "Loads":
        """Return the loads after a halt of a mechanism that `plus` was given; it sees no tick from `end` on."""
        loads = self
        for each in entry.each:
            part = local_part(self.filter, each, self.protected)
            held = loads._holding(each.currency, end) if self.shares else self.held
            loads = replace(loads, local=loads._with(each, NOTHING - part), held=held)
        return loads

    def _holding(self, currency: str, end: int) -> Mapping[str, tuple[int | None, Spend]]:
        """Return what is held once something of this currency ends: all that may have been met in the open window."""
        users = None if self.protected is None else self.protected.users
        until = None
        if users is not None:
            _, last = users.rounded(0, end - 1)
            until = None if last is None else last + 1
        return {**self.held, currency: (until, self._most(currency, end - 1))}

    def _most(self, currency: str, tick: int | None) -> Spend:
        """Return the most that is met of a currency, in the window of a tick (None: from now on alone)."""
        now = self._met(currency, EVERYTHING, SHORT)
        until, before = self.held.get(currency, (0, NOTHING))
        held = tick is not None and (until is None or tick < until)
        return join(now, before) if held else now

    def changed(self, entry: Entry) -> Box:
        """Return the box of the events whose load the entry changes: every event, unless all its cost is local."""
        local = local_part(self.filter, entry, self.protected) == self.filter.cost(entry)
        return entry.box if local else EVERYTHING

    def around(self, entry: Entry, start: int = 0) -> Spend:
        """Return the most that an event meets whose load the entry changes; its mechanism sees ticks from `start` on.

        The search goes on for long only where the filter would refuse the entry. Its parts of several currencies are
        charged in turn: what the one changes is met beside the other.
        """
        if entry.apart:
            loads, most = self, NOTHING
            for each in entry.apart:
                most = join(most, loads.around(each, start) + self.filter.cost(each))
                loads = loads.plus(each)
            return most - self.filter.cost(entry)
        cost, box = self.filter.cost(entry), self.changed(entry)
        met = self.at(box, SHORT, entry.currency, start)
        if self.filter.admits(met, cost):
            return met
        search = Search(MANY, self.filter.capacity.amount - cost.amount)
        return self.at(box, search, entry.currency, start)

    def at(
        self,
        box: Box = EVERYTHING,
        search: Search = SHORT,
        currency: str = "",
        start: int | None = None,
    ) -> Spend:
        """Return the most that an event in the box meets, or a unit of that `currency`, and what users may have of all
        other currencies, from the window of the tick `start` on (None: from now on alone).
        """
        others = {other for other, _ in self.local} | self.held.keys()
        beside = [self._most(other, start) for other in others - {currency}]
        shared = _sum([self.everywhere, *beside])
        return shared + self._met(currency, box, search.beside(shared))

    def _met(self, currency: str, box: Box, search: Search) -> Spend:
        """Return the most that an event in the box meets of one currency.

        A replacement within a tick meets what sees the record before or after it: at most what two points meet
        together, and at most everything.
        """
        shown = self._shown.get((currency, box, search))
        if shown is None:
            if len(self._shown) >= KEPT:  # a thread may add one, too
                self._shown.clear()
            shown = self._shown[currency, box, search] = self._searched(currency, box, search)
        return shown

    def _searched(self, currency: str, box: Box, search: Search) -> Spend:
        boxes = {b: part for (of, b), part in self.local.items() if of == currency and b.sides}
        shared = self.local.get((currency, EVERYTHING), NOTHING)
        if not boxes:
            return shared
        if self.protected is None or self.protected.neighbors is not Neighbors.REPLACE:
            return shared + _heaviest(boxes, box, search.beside(shared))
        twice = _heaviest(boxes, box, SHORT) + _heaviest(boxes, EVERYTHING, SHORT)
        return shared + lighter(_sum(boxes.values()), twice)

    def heaviest_records(self) -> Box:
        """Return a box of records that may meet the most; every record where all meet the same, or where what is met
        of several currencies adds up.
        """
        if len({currency for currency, _ in self.local}) > 1:
            return EVERYTHING
        amounts = {box: part.amount for (_, box), part in self.local.items() if box.sides}
        boxes = heaviest(amounts, nodes=SHORT.nodes).boxes if amounts else ()
        records = Box(tuple(side for box in boxes for side in box.sides))
        return EVERYTHING if records.nowhere else records

    def _with(self, entry: Entry, part: Spend) -> dict[tuple[str, Box], Spend]:
        key = entry.currency, entry.box
        changed = {**self.local, key: self.local.get(key, NOTHING) + part}
        if changed[key] == NOTHING:
            del changed[key]
        return changed


def _heaviest(boxes: Mapping[Box, Spend], inside: Box, search: Search) -> Spend:
    """Return the largest amount, delta and number of each epsilon at one point; each may be at another point."""

    def most(weights: dict[Box, int], enough: int | None = None) -> int:
        weights = {box: weight for box, weight in weights.items() if weight}
        if not weights:
            return 0
        return heaviest(weights, inside, enough=enough, nodes=search.nodes).weight

    epsilons = sorted({epsilon for part in boxes.values() for epsilon, _ in part.epsilons})
    numbers = [
        (epsilon, most({b: dict(part.epsilons).get(epsilon, 0) for b, part in boxes.items()}))
        for epsilon in epsilons
    ]
    if len(numbers) == 1 and all(part.amount == _added(part) for part in boxes.values()):
        amount = _added(Spend(epsilons=(numbers[0],)))  # the heaviest point is the same
    else:
        amount = most({box: part.amount for box, part in boxes.items()}, search.enough)
    delta = most({box: part.delta for box, part in boxes.items()})
    return Spend(amount, delta, tuple((epsilon, number) for epsilon, number in numbers if number))


def _added(part: Spend) -> int:
    return sum(epsilon * number for epsilon, number in part.epsilons)


def _sum(parts: Iterable[Spend]) -> Spend:
    return sum(parts, NOTHING)


def lighter(first: Spend, second: Spend) -> Spend:
    """Return a bound on what is bounded by both."""
    numbers, others = dict(first.epsilons), dict(second.epsilons)
    return Spend(
        min(first.amount, second.amount),
        min(first.delta, second.delta),
        tuple((e, min(n, others[e])) for e, n in sorted(numbers.items()) if e in others),
    )


def join(first: Spend, second: Spend) -> Spend:
    """Return what is at least both."""
    numbers = dict(first.epsilons)
    for epsilon, number in second.epsilons:
        numbers[epsilon] = max(numbers.get(epsilon, 0), number)
    return Spend(
        max(first.amount, second.amount),
        max(first.delta, second.delta),
        tuple(sorted(numbers.items())),
    )
