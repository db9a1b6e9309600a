"""What an adversary of one event may send to a mechanism that is asked after each update: an oracle's list of moves."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from stream_dp.verify.exact.enumeration import Plain


@dataclass(frozen=True)
class Turns:
    """Update, query, update, query, ...: rows from `rows`, once a pair from `moved`, queries at `levels`."""

    rows: tuple[Plain, ...]
    moved: tuple[tuple[Plain, Plain], ...]
    levels: tuple[Plain, ...] = (None,)
    query: bool = False

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Turns"]]:
        """The pairs allowed next."""
        after = replace(self, query=not self.query)
        if self.query:
            yield from (((level, level), after) for level in self.levels)
        else:
            yield from (((row, row), after) for row in self.rows)
            yield from ((pair, replace(after, moved=())) for pair in self.moved)
