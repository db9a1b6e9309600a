"""The ledgers of one stream: a main ledger, and sub-ledgers of analysts that the main one has paid for in full.

Rules: a sub-ledger is a filter inside a filter: its whole promise is charged to the main ledger when it is opened,
and covers every later charge in it ([HSV] Thm 12.4, nested as in Def 4.1); all analysts together are one adversary.
A name is charged once and halted once. A refusal changes nothing. For this file a tick is only a number; it knows
neither mechanisms nor journals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from stream_dp.accounting.filters.filter import Entry, Filter
from stream_dp.accounting.filters.linear import OPTIMAL, by_ticks
from stream_dp.accounting.ledger import Ledger, Preview
from stream_dp.accounting.rules.groups import whole_at_one_event
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Protected
from stream_dp.core.wording import meant
from stream_dp.errors import BudgetRefused, UnknownMechanism, UsageError

MAIN = ""
ALL: Final[Mapping[str, Box]] = MappingProxyType({})
"""No partitions: every analyst's mechanisms may see all records."""
SHOWN = 5
"""Most mechanisms that a refusal names."""
NESTED = "filter inside a filter ([HSV] Thm 12.4)"


@dataclass(slots=True)
class Subledgers:
    """`ledgers[MAIN]`, one ledger per analyst, and the analyst and entry of each live mechanism in `running`.

    The mechanisms of an analyst see only records of her box in `partitions`, if she has one.

    Ledgers here do not list their entries, so the size depends only on the live mechanisms.
    """

    ledgers: dict[str, Ledger]
    running: dict[str, tuple[str, Entry]] = field(default_factory=dict)
    partitions: Mapping[str, Box] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        main: Filter,
        analysts: Mapping[str, Filter] | None = None,
        protected: Protected | None = None,
        partitions: Mapping[str, Box] = ALL,
        *,
        shares: bool = False,
    ) -> "Subledgers":
        """Return empty ledgers for the neighbours `protected`, every analyst's filter charged to the main one in full;
        `shares` as in `Ledger.under`.

        Raises:
            BudgetRefused: the analysts' filters together do not fit.
            NotDerivable: a filter is not proven for concurrent continual mechanisms.
        """
        ledger = Ledger.under(main, protected=protected, shares=shares)
        users, ledgers = None if protected is None else protected.users, {}
        for name, filter_ in (analysts or {}).items():
            ledgers[name] = Ledger.under(filter_, protected=protected, shares=shares)
            rule = NESTED if users is None else f"{NESTED}, for {users}"
            entry = ledger.ask(analyst_entry(name), filter_.promise, rule)
            box = partitions.get(name, EVERYTHING)
            ledger = ledger.charge(replace(entry, box=box))
        return cls({MAIN: ledger, **ledgers}, partitions=partitions)

    @property
    def main(self) -> Ledger:
        """The ledger whose filter states the guarantee."""
        return self.ledgers[MAIN]

    def price(self, derivation: Derivation, analyst: str = MAIN, box: Box = EVERYTHING) -> Entry:
        """Return the entry that a charge for this derivation would add (UsageError: no such analyst).

        The mechanism sees the records of `box`, see `Ledger.price`.

        Raises:
            UsageError: the mechanism would see records outside of the analyst's partition.
            BudgetRefused: as for `Ledger.price`; or halts free ticks, while a single event of a user, or one of the
                two ticks of a replacement that moves, may cost the full epsilon, and another tick again.
        """
        ledger, partition = self._of(analyst), self.partitions.get(analyst, EVERYTHING)
        if box.cut(partition) != box:
            raise UsageError(
                f"where: the series of analyst {analyst} must read only records with {partition}, "
                f"but this series would read {box}. Add the conditions of privacy.analysts to its "
                "where"
            )
        entry = ledger.price(derivation, box)
        shared = any(each.currency for each in entry.each)
        if shared and analyst and self.main.filter.name == OPTIMAL:
            raise BudgetRefused(
                f"one event of a user may cost {derivation.subject} its full price, but the main "
                f"ledger charges each event of analyst {analyst} only a part. Use another filter "
                "(basic, zcdp), or leave shared_total out"
            )
        if shared and partition.sides:
            raise UsageError(
                f"shared_total: one event with {partition} may use the whole total, but the main "
                f"ledger charges each event of analyst {analyst} only a part. Leave shared_total "
                "out, or give the analysts no where"
            )
        by_parts = shared or not by_ticks(ledger.filter)
        whole = "" if by_parts else whole_at_one_event(derivation)
        if whole:
            raise BudgetRefused(
                f"one event may cost {derivation.subject} its full price {whole}. Use another filter "
                "(it frees nothing at a halt), or put the series into the pipeline file, where a "
                "series is never halted"
            )
        return entry

    def preview(self, entry: Entry, analyst: str = MAIN, start: int = 0) -> Preview:
        """Return the effect of charging the entry, as `charge` would (UsageError: no such analyst)."""
        return self._of(analyst).preview(entry, start)

    def charge(self, entry: Entry, analyst: str = MAIN, start: int = 0) -> None:
        """Charge the analyst's ledger for a mechanism that sees ticks from `start` on; see `Ledger.charge`.

        Raises:
            UsageError: no such analyst, or a mechanism of this name runs.
        """
        if entry.name in self.running:
            raise UsageError(f"a mechanism named {entry.name} runs already; choose another name")
        try:
            self.ledgers[analyst] = self._of(analyst).charge(entry, start).summed()
        except BudgetRefused as refusal:
            whose = f"in the ledger of analyst {analyst}: " if analyst else ""
            raise BudgetRefused(f"{whose}{refusal}{self._met(entry, analyst)}") from None
        self.running[entry.name] = (analyst, entry)

    def halt(self, name: str, end: int) -> tuple[str, Entry]:
        """Record that a mechanism sees no tick from `end` on; return its analyst and entry (UnknownMechanism: none)."""
        if name not in self.running:
            raise UnknownMechanism(
                f"no mechanism named {name!r} runs: it was never created, or it has ended"
            )
        analyst, entry = self.running.pop(name)
        self.ledgers[analyst] = self.ledgers[analyst].halt(entry, end)
        return analyst, entry

    def _met(self, entry: Entry, analyst: str) -> str:
        """Return which mechanisms that can be halted see a record that this one would see; empty if none does."""
        names = [
            name
            for name, (payer, running) in self.running.items()
            if payer == analyst and running.box.meets(entry.box)
        ]
        if not names:
            return ""
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return (
            f". Of what can be halted, these see the same records: {', '.join(names[:SHOWN])}{more}"
        )

    def _of(self, analyst: str) -> Ledger:
        if analyst not in self.ledgers:
            names = sorted(self.ledgers.keys() - {MAIN})
            raise UsageError(
                "analyst: there is no such analyst. privacy.analysts of the pipeline file names "
                f"{', '.join(names) or 'none'}; a request without an analyst is paid from the main "
                f"budget{meant(analyst, names)}"
            )
        return self.ledgers[analyst]


def analyst_entry(name: str) -> str:
    return f"analyst {name}"
