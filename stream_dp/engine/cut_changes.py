"""Changes at a cut, between two commits with ticks: series created and halted, and mechanisms asked.

Rules: charge first, make the charge durable, and only then let a mechanism exist. A series or a watch sees whole
ticks only. If the engine has already read records behind the cut, it reads them again, once for all changes at that
cut. Where a tick is too long for that, a change begins after the open tick, at that tick's cut, and nothing of the
tick is read again; the declared step alone decides this. Every change that draws noise has a seed of its own. A
refusal takes no seed, so state, ledger and randomness stay as they were. Several queries may share a commit;
creating or halting a series is the last change of a commit, but a changed pipeline file creates and halts several in
one. This file knows no message.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, TypeAlias

import msgspec

from stream_dp.accounting.subledgers import MAIN
from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.core.wording import meant
from stream_dp.engine.admission import Admission
from stream_dp.engine.ensemble import Ensemble, MechanismAnswer
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
from stream_dp.engine.run_config import FileChange
from stream_dp.engine.series import LiveSeries, MadeSeries, Series, version_of
from stream_dp.engine.tick_reader import Reader
from stream_dp.errors import MostlyNoise, RejectedMessage, UsageError
from stream_dp.journal.commit import (
    Answer,
    Applied,
    Asked,
    Change,
    Charge,
    Commit,
    Created,
    Halted,
    Unwatched,
    Watched,
)
from stream_dp.journal.release import Released, Shape, WindowPart, read, read_by_key

Shown: TypeAlias = Series | MadeSeries
_RANGE = ("keys", "from", "to")
_ANSWERED = (
    "name", "value", "values", "quantiles", "fired", "ranks", "band", "low", "high", "lows", "highs", "ends",
)  # fmt: skip
NONE = slice(0, 0)


def selected(series: Shown, body: bytes, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a release of `series` says about the keys and the window that `parameters` name.

    Keys are chosen by `keys`, or by a range from `from` to `to` in the order of the series, both included; without
    these, all keys. `window` chooses one window; without it, all. This is post-processing ([HSV] 2.14), so it is free.
    Raises `UsageError`, which names the key at fault and never its value.
    """
    names = _windows(series, parameters)
    keys = _chosen(series, {key: value for key, value in parameters.items() if key != "window"})
    released = read_by_key(body, series.keys)
    shown = _of_keys(released, keys)
    if released.windows:
        shown = {"windows": {name: _of_keys(released.windows[name], keys) for name in names}}
    return {
        "series": series.name,
        **version_of(series),
        "sequence": released.sequence,
        "tick": released.tick,
        "end": released.end,
        **shown,
        "confidence": released.confidence,
        **({"not_private": True} if released.not_private else {}),
    }


def _of_keys(part: WindowPart | Released, keys: Sequence[str]) -> dict[str, Any]:
    """Return the content of a release, or of a window, for these keys alone."""
    fields = msgspec.to_builtins(part)
    answer = {field: fields[field] for field in _ANSWERED if field in fields}
    for many in answer.keys() & {"values", "quantiles"}:
        answer[many] = {key: fields[many][key] for key in keys if key in fields[many]}
    if "lows" in answer:
        places = {key: place for place, key in enumerate(fields["values"])}
        for end in ("lows", "highs"):
            answer[end] = [fields[end][places[key]] for key in keys]
    if "fired" in answer:
        fired = set(fields["fired"])
        answer["fired"] = [key for key in keys if key in fired]
    if "ranks" in answer:
        asked = set(keys)
        answer["ranks"] = [rank for rank in fields["ranks"] if rank["name"] in asked]
    return answer


def _windows(series: Shown, parameters: Mapping[str, Any]) -> Sequence[str]:
    names = series.windows
    if "window" not in parameters:
        return names
    if not names:
        raise UsageError("window: this series has no windows")
    if parameters["window"] not in names:
        raise UsageError(
            f"window: this series has no such window; its windows are {', '.join(names)}"
        )
    return [parameters["window"]]


def _chosen(series: Shown, parameters: Mapping[str, Any]) -> Sequence[str]:
    others = sorted(parameters.keys() - set(_RANGE))
    if others:
        raise UsageError(
            f"{', '.join(others)}: unknown parameter. This series is answered from its releases "
            "and takes keys, or from and to"
        )
    if not parameters:
        return series.keys
    scalar = isinstance(series, Series) and series.shape is Shape.SCALAR
    if scalar or not any(series.keys):
        raise UsageError(f"{', '.join(sorted(parameters))}: this series has one value and no keys")
    places = {key: place for place, key in enumerate(series.keys)}
    if "keys" in parameters:
        if len(parameters) > 1:
            raise UsageError("keys: cannot be combined with from and to")
        return _listed(places, parameters["keys"])
    ends = {"from": 0, "to": len(series.keys) - 1}
    for name in [end for end in ends if end in parameters]:
        key = parameters[name]
        if not isinstance(key, str) or key not in places:
            raise UsageError(f"{name}: is not a key of this series{meant(key, places)}")
        ends[name] = places[key]
    if ends["from"] > ends["to"]:
        raise UsageError("from: comes after to in the order of the series' keys")
    return series.keys[ends["from"] : ends["to"] + 1]


def _listed(places: Mapping[str, int], keys: Any) -> Sequence[str]:
    texts = isinstance(keys, list | tuple) and all(isinstance(key, str) for key in keys)
    if not (texts and keys):
        raise UsageError("keys: must be a list of at least one text")
    unknown = [key for key in keys if key not in places]
    if unknown:
        raise UsageError(
            f"keys: names a key that this series does not have{meant(unknown[0], places)}"
        )
    return sorted(set(keys), key=places.__getitem__)


@dataclass(slots=True, repr=False)
class Pending:
    """What the next commit records, and the actions (`then`) that follow once the commit is durable."""

    changes: list[Change] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    seeds: list[bytes] = field(default_factory=list)
    then: list[Callable[[], Awaitable[None]]] = field(default_factory=list)


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
        self._answers, self._seeds = answers, seeds
        self._pending = Pending()
        self._stale = False

    @property
    def stale(self) -> bool:
        """Whether the records behind the cut are to be read again: for a change at it, or because a lane was lost."""
        return self._stale or self._reader.lost

    @property
    def begins(self) -> int:
        return self.chain.next_tick + self.lead

    async def create(
        self, proposal: Proposal, analyst: str, *, accept_noise: bool, version: int = 1
    ) -> Created:
        """Charge for a series that was derived for the ticks from `begins` on; it exists after `flush`.

        Raises `UsageError`, `BudgetRefused`, or `MostlyNoise` where an alarm of it fires mostly by noise and
        `accept_noise` is False; then nothing has changed.
        """
        start = self.begins
        noise = "" if accept_noise else proposal.noise
        if noise and self.admission.preview(proposal, analyst).fits:
            raise _mostly_noise("series", noise)
        with self._held():
            created, charge, live = self.admission.create(proposal, analyst, start, version)
        seed, fresh = self._seeds(), self.admission.fresh_columns(live)
        if self.lead:
            self.chain.now.coming.append(Coming(live.number, fresh, seed))
        else:
            await self._open(fresh)
            begin = partial(self._ensemble.start_new, live, seed, self._reader.width)
            self._pending.then.append(begin)
        self._pending.charges.append(charge)
        self._pending.seeds.append(seed)
        self._pending.changes.append(created)
        return created

    def halt(self, name: str, *, by_file: bool = False) -> Halted:
        """End a series at this cut, or at its start if that lies later; durable after `flush`; may raise
        `UnknownMechanism`.
        """
        halted = self.admission.halt(name, self.chain.next_tick, by_file=by_file)
        self._pending.changes.append(halted)
        self._pending.then.append(partial(self._ensemble.halt, halted.number))
        return halted

    async def apply(self, change: FileChange) -> Applied:
        """Apply a changed pipeline file; durable after `flush`. Ticks wait while its series are derived.

        Errors as of `create`, `halt` and `Admission.apply`. After one, part of it has been done, and the caller ends
        the engine: none of it is durable.
        """
        self.admission.left.clear()
        for name in change.halted:
            self.halt(name, by_file=True)
        for definition in change.created:
            await self._create_of_file(definition, 1)
        applied = msgspec.structs.replace(change.applied, at=self.chain.next_tick)
        for number in self.admission.apply(applied):
            self._pending.then.append(partial(self._ensemble.halt, number))
        self._pending.changes.append(applied)
        for definition, version in change.changed:
            await self._create_of_file(definition, version)
        self.admission.left.clear()
        return applied

    async def _create_of_file(self, definition: bytes, version: int) -> None:
        propose = partial(self.admission.propose, definition, self.begins, version)
        proposal = await asyncio.to_thread(propose)
        await self.create(proposal, MAIN, accept_noise=True, version=version)

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
        ends = isinstance(watch, str)
        self._pending.changes.append(
            Unwatched(live.number, watch, at)
            if isinstance(watch, str)
            else Watched(live.number, watch, proposal.place, at, analyst)
        )
        return {"series": live.series.name, "watch": proposal.name, "end" if ends else "start": at}

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
            raise UsageError(f"series: begins with tick {live.start}; ask from that tick on")
        begins = asking.begins(read)
        if begins is not None and begins > at:
            raise UsageError(f"watch: begins with tick {begins}; ask from that tick on")
        reply = await self._asked(live, query)
        self._pending.changes.append(Asked(live.number, form, at, answer))
        return series.reply(read, reply.answer, reply.band)

    def last_of(self, series: Shown, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the last public release of a series says about the asked parameters, or raise `UsageError`."""
        body = self.chain.now.latest.get(series.name)
        if body is None or (series.version > 1 and read(body).version != series.version):
            raise UsageError("series: has released nothing yet; ask again after its first tick")
        return selected(series, body, parameters)

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
                await ensemble.start_new(live, change.seed, self._reader.width)
            else:
                ensemble.change(live)
                noise = ensemble.make_noise(change.seed, change.number)
                await ensemble.ask(change.number, self.chain.next_tick, change.query, noise)
        ensemble.widen(self._reader.width)

    async def read_on(self) -> None:
        """Read the records behind the cut again, once, if a change at the cut requires it."""
        if self.stale:
            self._stale = False
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
        self._stale = True
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
        for then in done.then:
            await then()

    async def _asked(self, live: LiveSeries, query: Query) -> MechanismAnswer:
        """Return a mechanism's answer to a query made now, with noise of its own; raise `UsageError` if refused."""
        noise = FreshNoise(self._seeds, lambda seed: self._ensemble.make_noise(seed, live.number))
        try:
            reply = await self._ensemble.ask(live.number, self.chain.next_tick, query, noise)
        except RejectedMessage as refusal:
            raise UsageError(str(refusal)) from None
        self._pending.seeds.append(noise.seed)
        return reply


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
