"""How much the live series of one ledger may take at once: so many series, and so many entries together.

Rules: what one ledger has decides nothing about another's, and a refusal tells of the ledger that would pay and of no
other. It is asked before a creation only: what a journal holds was admitted under the room there was then, and runs
on. A refusal depends on public values alone. This file knows no budget and no journal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stream_dp.core.how_many import how_many
from stream_dp.errors import NoRoom

MOST_SERIES = 100
"""Live series that a ledger may have at once, unless a pipeline says otherwise."""
SHARED_SERIES = 1_000
"""Live series of which every ledger may have the same share at once, one at least, unless a pipeline says otherwise."""
SHARED_ENTRIES = 100_000
"""Entries of which every ledger may have the same share at once, unless a pipeline says otherwise."""
LETTERS = 50
"""Of a key; one that is longer counts again for each of so many: a release holds it at every tick."""
BYTES = 80
"""Of a release, for each entry; what may be larger counts for more: numbers with ends, names that are listed again."""
_SHOWN = 5  # series that a refusal names


@dataclass(frozen=True, slots=True)
class LiveRoom:
    """What the live series of one ledger may have at once; entries as of `entries_of`.

    `key` of the pipeline file says how many `series`.
    """

    series: int
    entries: int
    key: str = "queries.series"

    @classmethod
    def of(cls, ledgers: int, series: int, total: int, entries: int | None) -> "LiveRoom":
        """Return that of each of so many ledgers, which may have so many `series`, and all of them `total`.

        Every ledger has an even share of the total, so nobody's is taken by another; where `entries` is None, so many
        of these.
        """
        share = max(1, total // ledgers)
        room = SHARED_ENTRIES // ledgers if entries is None else entries
        if share < series:
            return cls(share, room, f"an even share of queries.total_series: {total:,}")
        return cls(series, room)

    def require(self, name: str, entries: int, payer: str, running: Mapping[str, int]) -> None:
        """Do nothing where one more series has room; `running` has the entries of the payer's, the oldest first.

        Raises:
            NoRoom: it has none; the text says what was asked, what there is, what would fit, and what to do.
        """
        owner = f"analyst {payer}" if payer else "the operator"
        many, there = len(running), sum(running.values())
        if many >= self.series:
            over = many + 1 - self.series
            which = f"{'one' if over == 1 else f'{over:,}'} of " if many > 1 else ""
            raise NoRoom(
                f"live series: {name} is one series more, and {owner} has {many:,} of the {self.series:,} that may run "
                f"at once ({self.key}), so none fits; halt {which}{_some(list(running))}"
            )
        left = max(0, self.entries - there)
        if entries > left:
            sizes = sorted(running.items(), key=lambda one: -one[1])
            halt = f", or halt what is not needed of {_some([f'{n} ({e:,})' for n, e in sizes])}"
            raise NoRoom(
                f"live series: {name} has {how_many(entries, 'entry', 'entries')} (keys, or places of a monitor; for "
                f"each window, and what is long several times), and {owner} has {there:,} of {self.entries:,} at once "
                f"(queries.entries), so {left:,} {'fits' if left == 1 else 'fit'}; ask for fewer"
                f"{halt if running and entries <= self.entries else ''}"
            )


def entries_of(places: int, names: Sequence[str], windows: int, told: int) -> int:
    """Return how many entries so many places of a row are, whose keys have these names, over so many windows (0: none).

    A release of them may have so many bytes: `told`.

    >>> entries_of(3, ["DE", "FR", "other"], 0, 81), entries_of(2, ["DE", "x" * 99], 2, 500)
    (3, 6)
    >>> entries_of(3, ["DE", "FR", "other"], 0, 800)
    10
    """
    return max(
        max(1, windows) * (places + sum(len(name) // LETTERS for name in names)), told // BYTES
    )


def _some(names: Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
