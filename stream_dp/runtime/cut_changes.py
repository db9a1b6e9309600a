"""Changes at a cut, between two commits with ticks: series created and halted, and mechanisms asked.

Rules: charge first, make it durable, and only then let a mechanism exist. What was read behind the cut is read again
where a series is created, so that it sees whole ticks, whatever the engine had read. Every change that draws has a seed
of its own, and a refusal takes none: neither state nor ledger nor randomness changes. Several queries may share a
commit; a series is created or halted by the last change of one. This file knows no message.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Query
from stream_dp.core.work import WATCH_STEPS, limited
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.runtime.actor import MechanismAnswer
from stream_dp.runtime.admission import Admission
from stream_dp.runtime.asked_parameters import read_parameters, write_parameters
from stream_dp.runtime.commit import (
    Asked,
    Change,
    Charge,
    Commit,
    Created,
    Halted,
    Unwatched,
    Watched,
)
from stream_dp.runtime.commit_chain import CommitChain
from stream_dp.runtime.ensemble import Ensemble
from stream_dp.runtime.made_series import MadeSeries
from stream_dp.runtime.proposals import Proposal
from stream_dp.runtime.reader import Reader
from stream_dp.runtime.recovery import NoiseMaker, initial_states
from stream_dp.runtime.registry import LiveSeries
from stream_dp.runtime.release_asks import selected
from stream_dp.runtime.series import Series
from stream_dp.runtime.tick_assembler import Router


@dataclass(slots=True, repr=False)
class Pending:
    """What the next commit records, and what is done once it is durable."""

    changes: list[Change] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    seeds: list[bytes] = field(default_factory=list)
    then: Callable[[], Awaitable[None]] | None = None


class CutChanges:
    """Changes what runs, at the cut where `chain` stands; `group` says how many ticks may share a commit."""

    def __init__(
        self,
        admission: Admission,
        chain: CommitChain,
        ensemble: Ensemble,
        reader: Reader,
        router: Router,
        seeds: Callable[[], bytes],
        make_noise: NoiseMaker,
        tasks: asyncio.TaskGroup,
        group: Callable[[], int],
    ) -> None:
        self.admission = admission
        self.chain = chain
        self._ensemble = ensemble
        self._reader = reader
        self._router = router
        self._seeds = seeds
        self._make_noise = make_noise
        self._tasks = tasks
        self._group = group
        self._pending = Pending()

    async def create(self, proposal: Proposal, analyst: str) -> Created:
        """Charge for a series that was derived for the ticks from this cut on; it exists after `flush`.

        Raises:
            UsageError, BudgetRefused: nothing has changed.
        """
        start = self.chain.next_tick
        created, charge, live = self.admission.create(proposal, analyst, start)
        await self._reader.end()
        cut = self.chain.opened(self._router.width, self.admission.fresh_columns(live))
        seed = self._seeds()

        async def begin() -> None:
            states = initial_states((live,), seed, self._make_noise)
            self._ensemble.start(live, states[live.number])
            self._ensemble.widen(self._router.width)
            await self._reader.again(self._tasks, cut, self._group())

        self._pending.charges.append(charge)
        self._pending.seeds.append(seed)
        self._change(created, begin)
        return created

    def halt(self, name: str) -> Halted:
        """End a series at this cut; it is durable after `flush`.

        Raises:
            UnknownMechanism: none of this name was created and runs; nothing has changed.
        """
        halted = self.admission.halt(name, self.chain.next_tick)

        async def end() -> None:
            await self._ensemble.halt(halted.number)

        self._change(halted, end)
        return halted

    async def watch(self, live: LiveSeries, watch: bytes | str, analyst: str) -> Mapping[str, Any]:
        """Begin an analyst's watch of this definition at this cut, or end the one of this name.

        It is durable after `flush`.

        Raises:
            UsageError: it is none for this series; nothing has changed.
        """
        at = self.chain.next_tick
        with limited(WATCH_STEPS) as steps:
            try:
                watched = self.admission.watched
                proposal = await asyncio.to_thread(watched, live, watch, at, analyst)
            finally:
                self.chain.now.conversation.worked(analyst, steps.taken)
        proposal.require_room()
        await self._asked(live, proposal.query)
        self._ensemble.change(self.admission.take(live.number, proposal))
        await self._reader.end()
        cut = self.chain.opened(self._router.width, proposal.columns)
        change: Change = (
            Unwatched(live.number, watch, at)
            if isinstance(watch, str)
            else Watched(live.number, watch, proposal.place, at, analyst)
        )
        self._change(change, lambda: self._reader.again(self._tasks, cut, self._group()))
        moment = "end" if isinstance(watch, str) else "start"
        return {"series": live.series.name, "watch": proposal.name, moment: at}

    async def ask(
        self, live: LiveSeries, parameters: Mapping[str, Any], answer: int
    ) -> Mapping[str, Any]:
        """Return what a series answers, now: its mechanism, or its last public release.

        What a mechanism was asked is recorded with the number of the `answer` that tells it. Raises:
            UsageError: it takes no such parameters, or has released nothing yet; nothing has changed.
        """
        series = live.series
        if series.asking is not None:
            form = write_parameters(parameters)
            read = read_parameters(form)
            found = await self._asked(live, series.asking.query(read))
            self._pending.changes.append(Asked(live.number, form, self.chain.next_tick, answer))
            return series.told(read, found.answer, found.band)
        return self.last_of(series, parameters)

    def last_of(
        self, series: Series | MadeSeries, parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return what the last public release of a series says of what is asked.

        Raises:
            UsageError: it takes no such parameters, or has released nothing yet.
        """
        if series.name not in self.chain.now.latest:
            raise UsageError(
                "series: has not released anything yet; ask again after its first tick"
            )
        return selected(series, self.chain.now.latest[series.name], parameters)

    @property
    def pending(self) -> bool:
        """Whether something waits for its commit."""
        return bool(self._pending.changes)

    async def flush(self) -> None:
        """Make what was changed durable with the answers that wait, and let it take effect."""
        done, self._pending = self._pending, Pending()
        chain = self.chain
        commit = Commit(
            0, b"", charges=tuple(done.charges), seeds=tuple(done.seeds),
            changes=tuple(done.changes), answers=chain.now.conversation.drain(chain.standing),
        )  # fmt: skip
        await chain.add(commit)
        self.admission.answered(commit)
        if done.then is not None:
            await done.then()

    async def _asked(self, live: LiveSeries, query: Query) -> MechanismAnswer:
        """What a mechanism answers, now, with noise of its own; the seed of that waits for the commit.

        Raises:
            UsageError: it takes no such query; nothing has changed.
        """
        noise = FreshNoise(self._seeds, lambda seed: self._make_noise(seed, live.number))
        try:
            found = await self._ensemble.ask(live.number, self.chain.next_tick, query, noise)
        except RejectedMessage as refusal:
            raise UsageError(str(refusal)) from None
        self._pending.seeds.append(noise.seed)
        return found

    def _change(self, change: Change, then: Callable[[], Awaitable[None]]) -> None:
        self._pending.changes.append(change)
        self._pending.then = then


class FreshNoise:
    """Noise under a seed that is taken with the first draw: who is refused before takes none.

    `seed` is the one that was taken; of who has not drawn, a fresh one.
    """

    def __init__(self, seeds: Callable[[], bytes], make_noise: Callable[[bytes], Noise]) -> None:
        self._seeds = seeds
        self._make_noise = make_noise
        self._seed: bytes | None = None
        self._noise: Noise | None = None

    @property
    def seed(self) -> bytes:
        """The seed."""
        if self._seed is None:
            self._seed = self._seeds()
        return self._seed

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Draw as `Noise` does."""
        return self._drawn().laplace(scale, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Draw as `Noise` does."""
        return self._drawn().geometric(scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Draw as `Noise` does."""
        return self._drawn().gaussian(variance, size)

    def _drawn(self) -> Noise:
        if self._noise is None:
            self._noise = self._make_noise(self.seed)
        return self._noise
