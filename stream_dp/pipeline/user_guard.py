"""The guard for users: at most a declared number of each user's records counts in each public window, in each tick, and
of each value of a declared field; and these add at most a declared total of an amount, or of several each its own.

Rules: the first records of a user count, in the order of the user's partition. Which ones do depends on that user's
own records, on public windows and ticks, and on the key of the hashes; it does not depend on other users, on how
records come in batches, or on room. A user outside the declared share counts nowhere, by the user's keyed hash. A
record is a dead letter if its user cannot be read, if the user's name is too long, or if it lies in another
partition than its user's. A record that is late, or of a time outside the grid, uses nothing of a cap, and neither
does one that another cap excludes. Where caps go by the values of a field, or a total is of one, it is a dead letter
if that field cannot be read. Of a total each record that counts has what those before it have left, whatever it adds
to another. The other content
of a record plays no part, so later series change nothing here: a record that the router could not decode for them is
decoded again for the guard alone. Nothing raises.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray
from stream_dp.core.time import TickGrid
from stream_dp.engine.memories import (
    KeyCapMemory,
    KeysMemory,
    SharedTotalMemory,
    TickCapMemory,
    UserMemory,
)
from stream_dp.engine.ports import NOBODY, Batch
from stream_dp.engine.tick_reader import EveryRecord, RecordGuard
from stream_dp.engine.user_table import ByColumn, Hashes, Used, in_order
from stream_dp.journal.dead_letters import NAME_TOO_LONG, WRONG_PARTITION, as_spans
from stream_dp.pipeline.layout import RowLayout, Slot
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import (
    BLOCK,
    Alike,
    Homes,
    Texts,
    UserNames,
    grown,
    homes_of,
    naming_field,
)
from stream_dp.records.decoder import Decoded, OwnTicks, RecordDecoder, Refusal
from stream_dp.records.endpoints import ReplayClock
from stream_dp.records.native import Values
from stream_dp.records.privacy import GUESSES, TOTAL, Guesses, Privacy, SharedTotal
from stream_dp.records.record_columns import BoolArray, numbers_of, texts_of
from stream_dp.records.schema import CategoryField
from stream_dp.statistics import Series
from stream_dp.statistics.parts.choice import ENDLESS

_REDUCTION = 0x87


class UserHash:
    """The keyed hash under which a user is remembered: AES-CMAC under a key of 32 bytes, of many texts at once.

    Rules: the hash is a function of the text and the key, so a user has the same hash after every start. Without the
    key nobody can compute a hash or look for two texts that share one. A hash has 128 bits: two of n users share one
    with a chance below n^2 / 2^128 (CMAC is a pseudorandom function: Iwata and Kurosawa 2003). Two users with one
    hash would share a cap, and each could displace up to k events of the other: twice what the guarantee is for, so
    shorter hashes will not do. Source: NIST SP 800-38B, RFC 4493.
    """

    def __init__(self, key: bytes) -> None:
        # single blocks: the mode is CMAC's own, below
        self._cipher = Cipher(AES(key), ECB()).encryptor()  # noqa: S305
        once = _doubled(self._cipher.update(bytes(BLOCK)))
        last = np.zeros((BLOCK + 1, BLOCK), np.uint8)
        np.fill_diagonal(last, 0x80)  # behind the text, where it does not fill its last block
        last[:BLOCK] ^= _bytes(_doubled(once))
        last[BLOCK] = _bytes(once)
        self._last = last.view(np.uint64)

    def of(self, texts: Sequence[bytes]) -> Hashes:
        """Return the hash of each text, of shape (texts, 2)."""
        hashes = np.empty((len(texts), 2), np.uint64)
        for alike in Texts.of(texts).alike:
            hashes[alike.places] = self._alike(alike)
        return hashes.view("<u8").astype(np.uint64, copy=False)

    def _alike(self, texts: Alike) -> Hashes:
        number, width = texts.padded.shape
        words = texts.padded.view(np.uint64).copy()
        words[:, -2:] ^= self._last.take(texts.lengths - (width - BLOCK), axis=0)
        state = np.zeros((number, 2), np.uint64)
        for at in range(0, 2 * width // BLOCK, 2):
            mixed = (state ^ words[:, at : at + 2]).tobytes()
            state = np.frombuffer(self._cipher.update(mixed), np.uint64).reshape(-1, 2)
        return state


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _doubled(block: bytes) -> bytes:
    """Return twice the block in the field of 2^128 elements."""
    value = int.from_bytes(block)
    doubled = (value << 1) & ((1 << 8 * BLOCK) - 1)
    return (doubled ^ (_REDUCTION if value >> (8 * BLOCK - 1) else 0)).to_bytes(BLOCK)


class Rooms(NamedTuple):
    """What is left of a cap before some records, as `UserMemory.room` says."""

    cells: IntArray
    counted: IntArray
    room: IntArray

    def before(self, counting: BoolArray | IntArray) -> IntArray:
        """Return how many records before each, in this order, are `counting` in its cell, or what these numbers of the
        records before it come to; shape (records,).
        """
        order = np.argsort(self.cells, kind="stable")
        cells, counts = self.cells[order], counting[order].astype(np.int64)
        before = np.cumsum(counts) - counts
        found = np.empty_like(before)
        found[order] = before - before[np.searchsorted(cells, cells)]
        return found

    def full(self, counting: BoolArray) -> BoolArray:
        """Return for which records no room is left by those before them that are `counting`."""
        return self.before(counting) >= self.room[self.cells]


def cut_by_cap(rooms: Mapping[str, Rooms], kept: BoolArray) -> dict[str | None, BoolArray]:
    """Return which records each cap cuts off, of those that are not `kept`; under None, any cap.

    It is the first of `rooms`, the cap of the window, where that is used up, and else each one that is. As long as the
    window has room, what a tick's cap let pass has counted. So it goes by a user's own records in their order alone,
    whatever batches they come in.
    """
    refused = ~kept
    if not rooms:
        return {None: refused}
    full = {name: own.full(kept) for name, own in rooms.items()}
    if "keys" in rooms:  # of which a record takes one whose value the user has not yet
        values = rooms["per_key"]
        new = values.counted[values.cells] + values.before(kept) == 0
        full["keys"] = rooms["keys"].full(kept & new) & new
    (window, used_up), *others = full.items()
    cut: dict[str | None, BoolArray] = {None: refused, window: refused & used_up}
    for name, none_left in others:
        cut[name] = refused & ~used_up & none_left
    return cut


def cap_uses(
    slots: Sequence[tuple[Slot, str | None]],
    users: Hashes,
    ticks: IntArray,
    counting: BoolArray,
    cut: Mapping[str | None, BoolArray],
) -> Mapping[int, ByColumn]:
    """Return the distinct users by tick, in two columns of each slot: active users, and users who were cut off.

    A user is active in the tick of a `counting` event, and cut off in that of one that is `cut` off by the slot's cap.
    Both depend on that user's own events alone; a user who is cut off is also active.
    """
    arrivals: dict[int, dict[int, Hashes]] = {}
    for slot, cap in slots:
        for place, which in enumerate((counting, cut[cap])):
            for tick, distinct in _distinct_users(users[which], ticks[which]):
                arrivals.setdefault(tick, {})[slot.start + place] = distinct
    return arrivals


def _distinct_users(users: Hashes, ticks: IntArray) -> Iterator[tuple[int, Hashes]]:
    """Yield the distinct users of each tick, sorted by hash."""
    order, begins = in_order(users, ticks)
    distinct = order[begins]
    names, starts = np.unique(ticks[distinct], return_index=True)
    yield from zip(names.tolist(), np.split(users[distinct], starts[1:]), strict=False)


_HASHES = 1 << 64
_log = logging.getLogger(__name__)
NO_KEY = bytes(32)  # for code that looks at records and remembers nothing of them


def guard_of(spec: PipelineSpec, origin_ms: int, key: bytes) -> RecordGuard:
    """Return the guard of a pipeline whose tick 0 begins at `origin_ms`; `key` is the key of users' hashes."""
    return UserGuard(spec, origin_ms, key) if spec.privacy.unit == "user" else EveryRecord()


_APART, _NULL, _OUTSIDE = b"\xfd", b"\xfe", b"\xfc"  # no text in UTF-8 has these bytes


class KeyCaps:
    """The caps of users' events by the values of a field, and what they remember; null is a value like any other.

    A category has one more value, for all texts outside its domain.
    """

    def __init__(self, privacy: Privacy, field: Any, attribute: str, window: int | None) -> None:
        """`attribute` is that of the `field` in decoded records."""
        self._value_of: Callable[[Any], Any] = attrgetter(attribute)
        self._by_key = KeyCapMemory(privacy.per_key or privacy.cap, window)
        self._keys = None if privacy.keys is None else KeysMemory(privacy.keys, window)
        self._domain = frozenset(field.domain) if isinstance(field, CategoryField) else None

    @property
    def memories(self) -> Sequence[UserMemory]:
        return (self._by_key,) if self._keys is None else (self._by_key, self._keys)

    def pairs(self, users: Iterable[bytes], records: Iterable[Any]) -> list[bytes]:
        """Return a text for each user with the value of the field in its record; no two pairs share one."""
        values = list(map(self._value_of, records))
        known = dict.fromkeys(values)
        texts = dict(zip(known, texts_of(known), strict=True))
        for value in texts:
            if value is None:
                texts[value] = _NULL
            elif self._domain is not None and value not in self._domain:
                texts[value] = _OUTSIDE
        return [user + _APART + texts[value] for user, value in zip(users, values, strict=True)]

    def first(
        self,
        users: Hashes,
        pairs: Hashes,
        ticks: IntArray,
        by_window: UserMemory,
        by_tick: UserMemory | None,
    ) -> tuple[BoolArray, list[Used]]:
        """Return which records, in this order, all caps have room for, of shape (records,), and what these use of the
        caps by key. A record that one cap excludes uses none of the others.
        """
        windows = by_window.windows(ticks)
        own, _, of_window = by_window.room(users, windows)
        cells, counted, of_key = self._by_key.room(pairs, windows)
        places, of_tick, of_keys = np.zeros_like(ticks), np.array([len(ticks)]), of_window
        if by_tick is not None:
            places, _, of_tick = by_tick.room(users, by_tick.windows(ticks))
        if self._keys is not None:
            _, _, of_keys = self._keys.room(users, windows)
        kept, opening = with_room(
            zip(own.tolist(), cells.tolist(), places.tolist(), strict=True),
            counted.tolist(), of_window.tolist(), of_key.tolist(), of_tick.tolist(), of_keys.tolist(),
        )  # fmt: skip
        used = [self._by_key.admit(pairs[kept], windows[kept])[1]]
        if self._keys is not None:
            used.append(self._keys.admit(users[opening], windows[opening])[1])
        stays = np.zeros(len(ticks), np.bool_)
        stays[kept] = True
        return stays, [uses for uses in used if uses is not None]


def with_room(
    records: Iterable[tuple[int, int, int]],
    counted: list[int],
    of_window: list[int],
    of_key: list[int],
    of_tick: list[int],
    of_keys: list[int],
) -> tuple[IntArray, IntArray]:
    """Return the numbers of the records that all caps have room for, and of those that are their key's first. A record
    has a place in `of_window` and `of_keys`, in `counted` and `of_key`, and in `of_tick`: the room that is left there.
    """
    kept, opening = list[int](), list[int]()
    for number, (own, cell, place) in enumerate(records):
        new = not counted[cell]
        if not (of_window[own] and of_key[cell] and of_tick[place] and (of_keys[own] or not new)):
            continue
        of_window[own] -= 1
        of_key[cell] -= 1
        of_tick[place] -= 1
        counted[cell] += 1
        kept.append(number)
        if new:
            of_keys[own] -= 1
            opening.append(number)
    return np.array(kept, np.int64), np.array(opening, np.int64)


def counting_events(privacy: Privacy, guesses: Guesses, ticks: int) -> list[int]:
    """Return how many events of each typical user count in a window of so many ticks."""
    caps = privacy.per_key, privacy.per_tick, privacy.keys
    return [
        _counting(
            events, min(ticks, -(-events // guesses.per_tick)), min(events, guesses.keys),
            (privacy.cap, *(cap or events for cap in caps)),
        )
        for events in guesses.events
    ]  # fmt: skip


@lru_cache(maxsize=4096)
def _counting(events: int, ticks: int, values: int, most: tuple[int, ...]) -> int:
    """Return how many of a user's events count, which come in order of time, of each value of the key in turn."""
    records = ((0, at % values, at * ticks // events) for at in range(events))
    rooms = [most[0]], [most[1]] * values, [most[2]] * ticks, [most[3]]
    return len(with_room(records, [0] * values, *rooms)[0])


def guessed_records(spec: PipelineSpec, series: Series) -> Fraction | str:
    """Return how many records a series counts in a tick by the file's public guesses, or which guess is missing."""
    privacy, guesses = spec.privacy, spec.privacy.expect or Guesses()
    records = guesses.records
    if guesses.users is not None:
        cap = privacy.window_ticks(spec.clock) or spec.clock.horizon or ENDLESS
        users = guesses.users * (privacy.share or Fraction(1))
        counting = sum(counting_events(privacy, guesses, cap))
        records = users * Fraction(counting, len(guesses.events)) / cap
    if records is None:
        return f"{GUESSES}.{'records' if privacy.unit == 'event' else 'users and events'}"
    passing = guesses.passing.get(series.name)
    of = spec.fields.get(getattr(series, "of", ""))
    if passing is None and (series.where or getattr(of, "nullable", False)):
        return f"{GUESSES}.passing.{series.name}"
    return records * (1 if passing is None else passing)


class Added(NamedTuple):
    """What records add within a total, which would add more, and what they use of it."""

    units: IntArray
    cut: BoolArray
    used: list[Used]


class TotalCap:
    """The total of an amount that series share, and what is remembered of it."""

    def __init__(
        self, total: SharedTotal, field: Any, attribute: str, window: int | None, name: str = ""
    ) -> None:
        """`attribute` is that of the total's `field` in decoded records, `name` what its memory has beside others."""
        self._amount, self.of = total.amount, total.of
        self.memory = SharedTotalMemory(total.units, window, name)
        self._read = numbers_of(field, attribute)

    def added(self, users: Hashes, ticks: IntArray, records: Iterable[Any]) -> Added:
        """Return what each record adds, in this order."""
        asked = self._amount.of(self._read(list(records)))
        windows = self.memory.windows(ticks)
        rooms = Rooms(*self.memory.room(users, windows))
        left = np.maximum(rooms.room[rooms.cells] - rooms.before(asked), 0)
        units = np.minimum(asked, left)
        used = self.memory.add(users, windows, units)
        return Added(units, units < asked, [] if used is None else [used])


class UserGuard:
    """The guard of a pipeline with `privacy: {unit: user}`."""

    def __init__(self, spec: PipelineSpec, origin_ms: int, key: bytes) -> None:
        """Raise TypeError if the pipeline protects single events."""
        privacy, clock = spec.privacy, spec.clock
        if privacy.user is None:
            raise TypeError("to protect users, the guard needs the field that names the user")
        self._spec = spec
        self.memory = UserMemory(privacy.cap, privacy.window_ticks(clock))
        self._by_tick = None if privacy.per_tick is None else TickCapMemory(privacy.per_tick, 1)
        self._field, self._hash = privacy.user, UserHash(key)
        self._grid = TickGrid(origin_ms, clock.step, clock.horizon)
        self._highest = int(_HASHES * (1 if privacy.share is None else privacy.share)) - 1
        own = clock.field if isinstance(clock, ReplayClock) else None
        amounts = [total.of for total in privacy.shared]
        others = [name for name in (privacy.key, *amounts, own) if name is not None]
        used = naming_field(spec, privacy.user) | {name: spec.fields[name] for name in others}
        self._decoder = RecordDecoder(used, spec.fields)
        self._user_of = self._decoder.attribute(privacy.user)
        self._by_key: KeyCaps | None = None
        if (name := privacy.key) is not None:
            attribute, window = self._decoder.attribute(name), privacy.window_ticks(clock)
            self._by_key = KeyCaps(privacy, spec.fields[name], attribute, window)
        self._totals: list[TotalCap] = []
        for total in privacy.shared:
            attribute, window = self._decoder.attribute(total.of), privacy.window_ticks(clock)
            own_name = total.of if privacy.totals else ""
            cap = TotalCap(total, spec.fields[total.of], attribute, window, own_name)
            self._totals.append(cap)
        self._time_of = None if own is None else self._decoder.attribute(own)
        self._ticks = OwnTicks(self._grid, spec.own_times)
        self._homes: Homes | None = None
        self._first, self._now = frozenset[int](), 0
        self._uses = RowLayout.of(spec).cap_uses
        self._names_caps = any(cap is not None for _, cap in self._uses)

    @property
    def memories(self) -> Sequence[UserMemory]:
        by_key = () if self._by_key is None else self._by_key.memories
        return (*self._for_all_keys, *by_key, *(total.memory for total in self._totals))

    @property
    def _for_all_keys(self) -> Sequence[UserMemory]:
        return (self.memory,) if self._by_tick is None else (self.memory, self._by_tick)

    def begin(self, partitions: Sequence[int]) -> None:
        self._homes = homes_of(self._spec, partitions)
        self._first, self._now = frozenset(partitions), len(partitions)

    def admit(self, batch: Batch, passed: int) -> Batch:
        """Return a batch without records that do not count; the ticks up to `passed` are over in its partition. Log a
        warning if the partition was added after the first start.
        """
        if self._homes is None:
            raise TypeError("begin the guard before it admits records")
        if batch.partition not in self._first and batch.partition >= self._now:
            self._now = batch.partition + 1  # numbered from 0 on
            _log.warning("%s", grown(len(self._first), self._now))
        if not batch.payloads:
            return batch
        decoded = self._read(batch)
        users = UserNames.in_records(decoded, self._user_of)
        long, astray = users.long, self._homes.of(users.texts) != batch.partition
        sound = ~(long | astray)
        ticks = self._ticks_of(decoded, batch.tick)
        counting = sound & (ticks > passed) & (ticks >= 0)
        kept, used, active, units = self._first_ones(users, ticks, counting, decoded.records)
        stays = sound & (kept | ~counting)
        if decoded.refused:
            readable, stays = stays, np.zeros(len(batch.payloads), np.bool_)
            stays[np.asarray(decoded.positions, np.int64)] = readable
        if units:
            every = {of: np.zeros(len(batch.payloads), np.int64) for of in units}
            for of, added in units.items():
                every[of][np.asarray(decoded.positions, np.int64)] = added
            batch = replace(batch, units=every)
        if stays.all():
            return replace(batch, used=used, users=active)
        refused = [
            *decoded.refused,
            *self._dead(decoded, NAME_TOO_LONG, long),
            *self._dead(decoded, WRONG_PARTITION, astray & ~long),
        ]
        capped = int(np.count_nonzero(counting & ~kept))
        return replace(_part(batch, stays, refused), used=used, capped=capped, users=active)

    def _read(self, batch: Batch) -> Decoded:
        shared: Decoded | None = batch.decoded
        if shared is None:
            return self._decoder.decode(batch.payloads)
        if not shared.refused:
            return shared
        places = [refusal.position for refusal in shared.refused]
        again = self._decoder.decode([batch.payloads[place] for place in places])
        refused = [dead._replace(position=places[dead.position]) for dead in again.refused]
        if not again.records:
            return replace(shared, refused=refused)
        records = dict(zip(shared.positions, shared.records, strict=True))
        for at, record in zip(again.positions, again.records, strict=True):
            records[places[at]] = record
        positions = sorted(records)
        return Decoded([records[position] for position in positions], positions, refused)

    def _ticks_of(self, decoded: Decoded, given: int | None) -> IntArray:
        """Return the tick of each record; less than 0 if it is outside the grid, or if there is none."""
        number = len(decoded.records)
        if given is not None or self._time_of is None:
            tick = given if given is not None and given in self._grid else -1
            return np.full(number, tick, np.int64)
        return self._ticks.of(decoded.values(self._time_of), number)

    def _first_ones(
        self, users: UserNames, ticks: IntArray, counting: BoolArray, records: Sequence[Any]
    ) -> tuple[BoolArray, list[Used], Mapping[int, ByColumn], Mapping[str, IntArray]]:
        """Return which `counting` records are among their users' first ones, what they use, whose they are, and what
        each adds of the totals. The users come by tick and column, where columns count them; only users in the declared
        share are among them.
        """
        kept = np.zeros(len(ticks), np.bool_)
        units = {total.of: np.zeros(len(ticks), np.int64) for total in self._totals}
        if not counting.any():
            return kept, [], NOBODY, units
        hashes = self._hash.of(users.texts)
        counting = counting & (hashes[:, 0] <= np.uint64(self._highest))
        kept, used, own, pairs = counting.copy(), list[Used](), hashes[counting], hashes[:0]
        if self._by_key is not None:
            some = counting.tolist()
            texts = self._by_key.pairs(compress(users.texts, some), compress(records, some))
            pairs = self._hash.of(texts)
        rooms = self._rooms(own, pairs, ticks[counting]) if self._names_caps else {}
        if self._by_key is not None:
            kept[counting], used = self._by_key.first(
                own, pairs, ticks[counting], self.memory, self._by_tick
            )
        # what is beyond the cap of its tick uses none of its window's; the other way round it makes no difference, as
        # no later record of that user counts in that tick: the window has all of it. Caps by key left room for all
        for memory in reversed(self._for_all_keys):
            windows = memory.windows(ticks[kept])
            kept[kept], uses = memory.admit(hashes[kept], windows)
            used += [] if uses is None else [uses]
        cut = {cap: counting.copy() for cap in (None, *rooms)}
        for cap, which in cut_by_cap(rooms, kept[counting]).items():
            cut[cap][counting] = which
        cut[TOTAL], some = np.zeros_like(kept), kept.tolist()
        mine = list(compress(records, some)) if self._totals else []
        for total in self._totals:
            added = total.added(hashes[kept], ticks[kept], mine)
            cut[cut_name := f"{TOTAL} of {total.of}"] = np.zeros_like(kept)
            units[total.of][kept], cut[cut_name][kept] = added.units, added.cut
            cut[TOTAL] |= cut[cut_name]
            used += added.used
        active = cap_uses(self._uses, hashes, ticks, counting, cut)
        return kept, used, active, units

    def _rooms(self, users: Hashes, pairs: Hashes, ticks: IntArray) -> dict[str, Rooms]:
        """Return what is left of each cap before these records, that of the window first."""
        windows = self.memory.windows(ticks)
        rooms = {self._spec.privacy.cap_name: Rooms(*self.memory.room(users, windows))}
        if self._by_tick is not None:
            rooms["per_tick"] = Rooms(*self._by_tick.room(users, self._by_tick.windows(ticks)))
        if self._by_key is not None:
            kinds = zip(("per_key", "keys"), self._by_key.memories, (pairs, users), strict=False)
            rooms |= {name: Rooms(*memory.room(whose, windows)) for name, memory, whose in kinds}
        return rooms

    def _dead(self, decoded: Decoded, reason: str, chosen: BoolArray) -> Iterator[Refusal]:
        for at in np.flatnonzero(chosen).tolist():
            yield Refusal(decoded.positions[at], reason, self._field)


def _part(batch: Batch, stays: BoolArray, refused: Iterable[Refusal]) -> Batch:
    """Return a batch with the records that stay, and with these refusals added to its refused ones."""
    staying, given = stays.tolist(), batch.payloads
    dead = as_spans((batch.labels[at], why, field) for at, why, field in sorted(refused))
    return replace(
        batch,
        payloads=given.chosen(stays)
        if isinstance(given, Values)
        else list(compress(given, staying)),
        labels=list(compress(batch.labels, staying)),
        units={of: units[stays] for of, units in batch.units.items()},
        refused=[*batch.refused, *dead],
        decoded=batch.decoded and batch.decoded.part(staying),
    )
