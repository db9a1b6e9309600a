"""Changes at a cut, between two commits with ticks: series created and halted, and mechanisms asked.

Rules: charge first, make the charge durable, and only then let a mechanism exist. A series or a watch sees whole
ticks only. If the engine has already read records behind the cut, it reads them again, once for all changes at that
cut. Where a tick is too long for that, a change begins after the open tick, at that tick's cut, and nothing of the
tick is read again; the declared step alone decides this. Every change that draws noise has a seed of its own. A
refusal takes no seed, so state, ledger and randomness stay as they were. Several queries may share a commit;
creating or halting a series is the last change of a commit. This file knows no message.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.core.wording import meant
from stream_dp.engine.actor import MechanismAnswer
from stream_dp.engine.admission import Admission
from stream_dp.engine.ensemble import Ensemble
from stream_dp.engine.gate import CommitChain
from stream_dp.engine.memories import Memories
from stream_dp.engine.messages.addressed import (
    WATCH_STEPS,
    limited,
    read_parameters,
    write_parameters,
)
from stream_dp.engine.proposals import Proposal
from stream_dp.engine.recovery import Coming
from stream_dp.engine.series import LiveSeries, MadeSeries, Series
from stream_dp.engine.tick_reader import Reader
from stream_dp.errors import MostlyNoise, RejectedMessage, UsageError
from stream_dp.journal.commit import (
    Answer,
    Asked,
    Change,
    Charge,
    Commit,
    Created,
    Halted,
    Unwatched,
    Watched,
)
from stream_dp.journal.release import Rank, Released, Shape, WindowPart, read

Shown: TypeAlias = Series | MadeSeries
_TAKEN = ("keys", "from", "to")
_ENDS = ("band", "low", "high")
NONE = slice(0, 0)


def selected(series: Shown, body: bytes, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a release of `series` says about the keys and the window that `parameters` name.

    Keys are chosen by `keys`, or by a range from `from` to `to` in the order of the series, both included; without
    these, all keys. `window` chooses one window; without it, all. This is post-processing ([HSV] 2.14), so it is free.
    Raises `UsageError`, which names the key at fault and never its value.
    """
    names = _windows(series, parameters)
    wanted = _chosen(series, {key: value for key, value in parameters.items() if key != "window"})
    released = read(body)
    return {
        "series": series.name,
        "sequence": released.sequence,
        "tick": released.tick,
        "end": released.end,
        **_shown(released, wanted, names),
        "confidence": released.confidence,
        **({"not_private": True} if released.not_private else {}),
    }


def _shown(released: Released, wanted: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    match released.shape:
        case Shape.SCALAR:
            named = {} if released.name is UNSET else {"name": released.name}
            return {**named, **_number(released)}
        case Shape.HISTOGRAM:
            return _numbers(released, wanted)
        case Shape.FLAGS:
            fired = set(released.fired or ())
            return {"fired": [key for key in wanted if key in fired], "band": released.band}
        case Shape.RANKS:
            return {"ranks": _ranks(released.ranks or (), wanted), "band": released.band}
        case Shape.WINDOWS:
            windows = released.windows or {}
            return {"windows": {name: _part(windows[name], wanted) for name in names}}


def _part(part: WindowPart, wanted: Sequence[str]) -> dict[str, Any]:
    if part.quantiles is not UNSET:
        quantiles = msgspec.to_builtins(part.quantiles)
        return {
            "quantiles": {key: quantiles[key] for key in wanted if key in quantiles},
            "band": part.band,
        }
    if part.ranks is not UNSET:
        return {"ranks": _ranks(part.ranks, wanted), "band": part.band}
    return _number(part) if part.values is UNSET else _numbers(part, wanted)


def _number(part: WindowPart | Released) -> dict[str, Any]:
    """Return one value with its band, or with its two ends."""
    ends = {key: getattr(part, key) for key in _ENDS}
    return {"value": part.value, **{key: end for key, end in ends.items() if end is not UNSET}}


def _numbers(part: WindowPart | Released, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the values of some keys with their band, or with the two ends of each."""
    values = part.values or {}
    told = {"values": {key: values[key] for key in wanted}}
    if part.lows is UNSET or part.highs is UNSET:
        return {**told, "band": part.band}
    ends = dict(zip(values, zip(part.lows, part.highs, strict=True), strict=True))
    lows, highs = zip(*(ends[key] for key in wanted), strict=True)
    return {**told, "lows": list(lows), "highs": list(highs)}


def _ranks(ranks: Sequence[Rank], wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ranks that these keys hold, in the order of the ranks."""
    asked = set(wanted)
    return [msgspec.to_builtins(rank) for rank in ranks if rank.name in asked]


def _windows(series: Shown, parameters: Mapping[str, Any]) -> Sequence[str]:
    names = series.windows
    if "window" not in parameters:
        return names
    if not names:
        raise UsageError("window: this series has no windows")
    if parameters["window"] not in names:
        raise UsageError(f"window: is none of this series; it has {', '.join(names)}")
    return [parameters["window"]]


def _chosen(series: Shown, parameters: Mapping[str, Any]) -> Sequence[str]:
    others = sorted(parameters.keys() - set(_TAKEN))
    if others:
        raise UsageError(
            f"{', '.join(others)}: not taken by a series that is answered from its releases; it takes keys, or from "
            "and to"
        )
    if not parameters:
        return series.keys
    scalar = isinstance(series, Series) and series.shape is Shape.SCALAR
    if scalar or not any(series.keys):
        raise UsageError(f"{', '.join(sorted(parameters))}: this series has one value and no keys")
    if "keys" in parameters:
        if len(parameters) > 1:
            raise UsageError("keys: cannot stand beside from and to")
        return _listed(series, parameters["keys"])
    places = {key: place for place, key in enumerate(series.keys)}
    first = _place(places, parameters, "from", 0)
    last = _place(places, parameters, "to", len(series.keys) - 1)
    if first > last:
        raise UsageError("from: lies behind to, in the order of the series' keys")
    return series.keys[first : last + 1]


def _listed(series: Shown, keys: Any) -> Sequence[str]:
    if (
        not isinstance(keys, list | tuple)
        or not keys
        or not all(isinstance(key, str) for key in keys)
    ):
        raise UsageError("keys: must be a list of one or more texts")
    wanted, there = set(keys), set(series.keys)
    if not wanted <= there:
        near = meant(next(key for key in keys if key not in there), series.keys)
        raise UsageError(f"keys: names what is no key of this series{near}")
    return [key for key in series.keys if key in wanted]


def _place(
    places: Mapping[str, int], parameters: Mapping[str, Any], name: str, default: int
) -> int:
    if name not in parameters:
        return default
    if not isinstance(parameters[name], str) or parameters[name] not in places:
        raise UsageError(f"{name}: is no key of this series{meant(parameters[name], places)}")
    return places[parameters[name]]


@dataclass(slots=True, repr=False)
class Pending:
    """What the next commit records, and the action (`then`) that follows once the commit is durable."""

    changes: list[Change] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    seeds: list[bytes] = field(default_factory=list)
    then: Callable[[], Awaitable[None]] | None = None


class CutChanges:
    """Changes series and watches at the cut where `chain` stands; new ones begin `lead` ticks later."""

    def __init__(
        self,
        admission: Admission,
        chain: CommitChain,
        ensemble: Ensemble,
        reader: Reader,
        memories: Memories,
        answers: Callable[[], tuple[Answer, ...]],
        seeds: Callable[[], bytes],
        lead: int = 0,
    ) -> None:
        self.admission, self.chain, self.lead = admission, chain, lead
        self._ensemble, self._reader, self._memories = ensemble, reader, memories
        self._answers = answers
        self._seeds = seeds
        self._pending = Pending()
        self.stale = False
        """Whether a change at the cut requires that the records behind it are read again."""

    @property
    def begins(self) -> int:
        return self.chain.next_tick + self.lead

    async def create(self, proposal: Proposal, analyst: str, *, accept_noise: bool) -> Created:
        """Charge for a series that was derived for the ticks from `begins` on; it exists after `flush`.

        Raises `UsageError`, `BudgetRefused`, or `MostlyNoise` where an alarm of it fires mostly by noise and
        `accept_noise` is False; then nothing has changed.
        """
        start = self.begins
        noise = "" if accept_noise else proposal.noise
        if noise and self.admission.preview(proposal, analyst).fits:
            raise _mostly_noise("series", noise)
        with self._held():
            created, charge, live = self.admission.create(proposal, analyst, start)
        seed, fresh = self._seeds(), self.admission.fresh_columns(live)

        async def begin() -> None:
            self._ensemble.start_new(live, seed, self._reader.width)

        if self.lead:
            self.chain.now.coming.append(Coming(live.number, fresh, seed))
        else:
            await self._open(fresh)
        self._pending.charges.append(charge)
        self._pending.seeds.append(seed)
        self._change(created, None if self.lead else begin)
        return created

    def halt(self, name: str) -> Halted:
        """End a series at this cut, or at its start if that lies later; durable after `flush`; may raise
        `UnknownMechanism`.
        """
        halted = self.admission.halt(name, self.chain.next_tick)

        async def end() -> None:
            await self._ensemble.halt(halted.number)

        self._change(halted, end)
        return halted

    async def watch(
        self,
        live: LiveSeries,
        watch: bytes | str,
        analyst: str,
        *,
        accept_noise: bool,
        worked: Callable[[str, int], None],
    ) -> Mapping[str, Any]:
        """Begin a watch at tick `begins` (`watch` is its definition), or end one (`watch` is its name).

        Durable after `flush`. `worked` is called with the analyst and the steps that the definition took. Raises
        `UsageError` or, unless `accept_noise`, `MostlyNoise`; then nothing has changed.
        """
        at = self.begins
        with limited(WATCH_STEPS) as steps:
            try:
                watched = self.admission.watched
                proposal = await asyncio.to_thread(watched, live, watch, at, analyst)
            finally:
                worked(analyst, steps.taken)
        proposal.require_room()
        if not accept_noise and proposal.noise:
            raise _mostly_noise("watch", proposal.noise)
        if self.lead:
            seed = self._seeds()
            self._pending.seeds.append(seed)
            self.chain.now.coming.append(
                Coming(live.number, proposal.columns, seed, proposal.query, live.series)
            )
            with self._held():
                self.admission.take(live.number, proposal)
        else:
            await self._asked(live, proposal.query)
            self._ensemble.change(self.admission.take(live.number, proposal))
            await self._open(proposal.columns)
        change: Change = (
            Unwatched(live.number, watch, at)
            if isinstance(watch, str)
            else Watched(live.number, watch, proposal.place, at, analyst)
        )
        self._change(change)
        moment = "end" if isinstance(watch, str) else "start"
        return {"series": live.series.name, "watch": proposal.name, moment: at}

    async def ask(
        self, live: LiveSeries, parameters: Mapping[str, Any], answer: int
    ) -> Mapping[str, Any]:
        """Return the answer of a series now: of its mechanism, or from its last public release.

        A query to a mechanism is recorded with the number of the `answer` that reports it. Raises `UsageError` if the
        series takes no such parameters, or has released nothing yet; then nothing has changed.
        """
        series, asking, at = live.series, live.series.asking, self.chain.next_tick
        if asking is None:
            return self.last_of(series, parameters)
        form = write_parameters(parameters)
        read = read_parameters(form)
        query = asking.query(read)
        if live.start > at:
            raise UsageError(f"series: begins with tick {live.start}; ask it from then on")
        begins = asking.begins(read)
        if begins is not None and begins > at:
            raise UsageError(f"watch: begins with tick {begins}; ask it from then on")
        reply = await self._asked(live, query)
        self._pending.changes.append(Asked(live.number, form, at, answer))
        return series.told(read, reply.answer, reply.band)

    def last_of(
        self, series: Series | MadeSeries, parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return what the last public release of a series says about the asked parameters, or raise `UsageError`."""
        if series.name not in self.chain.now.latest:
            raise UsageError(
                "series: has not released anything yet; ask again after its first tick"
            )
        return selected(series, self.chain.now.latest[series.name], parameters)

    @property
    def pending(self) -> bool:
        return bool(self._pending.changes)

    async def begin(self) -> None:
        """Start the series and watches that waited for the end of the open tick; the chain stands at its cut."""
        now, ensemble, registry = self.chain.now, self._ensemble, self.admission.registry
        coming, now.coming = now.coming, []
        if not coming:
            return
        await self._reader.forget()
        self.admission.renew()
        for change in coming:
            await self._open(change.fresh)
            live = registry.numbered(change.number)
            if live is None:  # halted since
                continue
            if change.query is None:
                ensemble.start_new(live, change.seed, self._reader.width)
            else:
                ensemble.change(live)
                noise = ensemble.make_noise(change.seed, change.number)
                await ensemble.ask(change.number, self.chain.next_tick, change.query, noise)
        ensemble.widen(self._reader.width)

    async def read_on(self) -> None:
        """Read the records behind the cut again, once, if a change at the cut requires it."""
        if self.stale:
            self.stale = False
            await self._reader.again(self.chain.opened(self._reader.width, NONE))

    @contextmanager
    def _held(self) -> Generator[None, None, None]:
        """Let changes made inside count only once they begin; undo the hold if the block raises and none waits."""
        if self.lead:
            self.admission.hold()
        try:
            yield
        except BaseException:
            if not self.chain.now.coming:
                self.admission.renew()
            raise

    async def _open(self, fresh: slice) -> None:
        """Let the columns in `fresh` count from this cut on; nothing is read before `read_on`."""
        self.stale = True
        await self._reader.forget()
        self.chain.opened(self._reader.width, fresh)

    async def flush(self) -> None:
        """Commit the changes with the answers that wait; then let the changes take effect."""
        done, self._pending = self._pending, Pending()
        _, parts = self._memories.record(())
        commit = Commit(
            0, b"", charges=tuple(done.charges), seeds=tuple(done.seeds),
            changes=tuple(done.changes), answers=self._answers(), parts=parts,
        )  # fmt: skip
        await self.chain.add(commit)
        self.admission.answered(commit)
        if done.then is not None:
            await done.then()

    async def _asked(self, live: LiveSeries, query: Query) -> MechanismAnswer:
        """Return a mechanism's answer to a query made now, with noise of its own; raise `UsageError` if refused."""
        noise = FreshNoise(self._seeds, lambda seed: self._ensemble.make_noise(seed, live.number))
        try:
            reply = await self._ensemble.ask(live.number, self.chain.next_tick, query, noise)
        except RejectedMessage as refusal:
            raise UsageError(str(refusal)) from None
        self._pending.seeds.append(noise.seed)
        return reply

    def _change(self, change: Change, then: Callable[[], Awaitable[None]] | None = None) -> None:
        self._pending.changes.append(change)
        self._pending.then = then


def _mostly_noise(key: str, noise: str) -> MostlyNoise:
    return MostlyNoise(
        f"{key}: {noise}. Nothing was done; to run it all the same, confirm it: accept_noise"
    )


class FreshNoise:
    """Noise whose seed is taken at the first draw, so that a query refused before takes no seed."""

    def __init__(self, seeds: Callable[[], bytes], make_noise: Callable[[bytes], Noise]) -> None:
        self._seeds, self._make_noise = seeds, make_noise

    @cached_property
    def seed(self) -> bytes:
        return self._seeds()

    @cached_property
    def _noise(self) -> Noise:
        return self._make_noise(self.seed)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._noise.laplace(scale, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self._noise.geometric(scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self._noise.gaussian(variance, size)
