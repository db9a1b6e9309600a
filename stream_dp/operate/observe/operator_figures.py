"""Figures for a run's operator: warnings of dead or late records, the ledger's origin, and exact totals.

Rules: none of these figures is public. They go to the operator's own terminal or to the guarded operator's port,
never to releases, API, page or lines of JSON. A warning names no count: it says that a declared share is exceeded
over at least `FEWEST` records, and why; at most one warning comes in `WINDOW_S`. The figures are added up from
durable commits. This file prints nothing.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from fractions import Fraction

from stream_dp.engine.ports import Journal, Ports, Positions, closing
from stream_dp.journal.commit import Commit

FEWEST = 20
"""No share is computed over fewer records, because single records would decide it."""
WINDOW_S = 600.0
LATE = "late"
"""The reason of records that came after the end of their tick."""
_NAMED = 3


class OperatorFigures:
    """Adds up the durable commits of a run; calls `warn` with the reasons if too large a share is dead or late.

    The figures are exact and NOT PRIVATE. `origin` (ms) is public; it is set only if this run began the ledger.
    """

    def __init__(
        self, warn: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.records = self.late = self.dead = self.capped = self.commits = 0
        self.dead_by_reason: Counter[tuple[str, str]] = Counter()
        self.origin: int | None = None
        self._attempts = 0
        self._committed: float | None = None
        self._positions: dict[int, int] = {}
        self._ends: Callable[[], Positions] = dict
        self._limit, self._warn, self._now = Fraction(1), warn, now
        self._reasons: Counter[str] = Counter()
        self._recent = 0
        self._since: float | None = None
        self._told = False

    def __repr__(self) -> str:
        return "<OperatorFigures>"

    def take(self, commit: Commit) -> None:
        """Add a durable commit."""
        if commit.header is not None:
            self.origin = commit.header.origin
        dead = sum(letter.records for letter in commit.dead_letters)
        self.records += commit.records
        self.late += commit.late
        self.dead += dead
        self.capped += commit.capped
        self.commits += 1
        self._committed = self._now()
        self._positions.update(commit.positions)
        for letter in commit.dead_letters:
            self.dead_by_reason[letter.reason, letter.field or ""] += letter.records
        self._begin_window()
        self._recent += commit.records + dead
        for letter in commit.dead_letters:
            blamed = letter.reason if letter.field is None else f"{letter.reason} in {letter.field}"
            self._reasons[blamed] += letter.records
        if commit.late:
            self._reasons[LATE] += commit.late
        enough = self._recent >= FEWEST
        if enough and not self._told and self._reasons.total() > self._limit * self._recent:
            self._told = True
            most = [reason for reason, _ in self._reasons.most_common(_NAMED)]
            self._warn(", ".join(sorted(most)))

    def _begin_window(self) -> None:
        """Begin a new window if the old one has ended with enough records to compute a share."""
        now = self._now()
        if self._since is None or (now - self._since > WINDOW_S and self._recent >= FEWEST):
            self._since, self._recent, self._told = now, 0, False
            self._reasons.clear()

    @property
    def restarts(self) -> int:
        """Number of attempts after the first one."""
        return max(0, self._attempts - 1)

    @property
    def since_commit(self) -> float | None:
        """Seconds since the last durable commit of this process; None before the first."""
        return None if self._committed is None else self._now() - self._committed

    @property
    def lag(self) -> int | None:
        """Number of places between the last commit and the ends of the source; None if these are unknown."""
        ends = {one: end for one, end in self._ends().items() if one in self._positions}
        if not ends:
            return None
        return sum(max(0, end - self._positions[one]) for one, end in ends.items())

    def watching(
        self, ports: Ports, limit: Fraction, ends: Callable[[], Positions] = dict
    ) -> Ports:
        """Return these ports for another attempt, with a journal that reports its durable commits to this object.

        A warning comes above the share `limit`; `ends` returns the known ends of the source's partitions.
        """
        self._limit, self._ends = limit, ends
        self._attempts += 1
        return replace(ports, journal=_Told(ports.journal, self.take))


class _Told:
    """A journal that reports each commit once it is durable."""

    def __init__(self, journal: Journal, tell: Callable[[Commit], None]) -> None:
        self._journal = journal
        self._tell = tell

    async def open(self) -> None:
        await self._journal.open()

    async def read(self) -> AsyncIterator[bytes]:
        async with closing(self._journal.read()) as commits:
            async for sealed in commits:
                yield sealed

    async def verify(self, positions: Positions) -> None:
        await self._journal.verify(positions)

    async def append(self, commit: Commit, sealed: bytes) -> None:
        await self._journal.append(commit, sealed)
        self._tell(commit)

    async def close(self) -> None:
        await self._journal.close()
