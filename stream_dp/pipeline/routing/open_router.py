"""A router to which features are added while it runs, for series that are created later.

Rules: the rows of the pipeline file's series come first and never change. Every record is decoded once for all
features. A record that is refused in this way is decoded again for the file's series and for the added features
that read the same fields, so that a record that cannot be read for one feature counts elsewhere as before. Equal
features share their columns; the columns of closed features are used again, the lowest first. Added features are
counted in shards. A change touches one shard only, so its cost does not grow with the number of features. This file
knows no series and no budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from stream_dp.engine.memories.identifiers import Came
from stream_dp.engine.ports import Batch
from stream_dp.engine.ticks.tick_assembler import Routed
from stream_dp.engine.ticks.tick_rows import OpenRow, Row, thin, without
from stream_dp.errors import FailClosed
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.routing.layout import Block, Feature, RowLayout, Slot
from stream_dp.pipeline.routing.router import Router, dead, decoded_fields
from stream_dp.pipeline.routing.uncollected import uncollected
from stream_dp.pipeline.routing.user_guard import NO_KEY
from stream_dp.records.decoder import Refusal

MOST_IN_A_SHARD = 256  # features; each change rebuilds the counters of its shard in some ms


@dataclass(slots=True)
class _Added:
    """A feature's part of the row, the numbers of the series that count on it, and its own number by age."""

    slot: Slot
    age: int
    shard: "_Shard"
    users: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Shard:
    """Added features that read the same `fields`; `router` counts them (None after a change)."""

    fields: tuple[str, ...]
    members: dict[Feature | Block, _Added] = field(default_factory=dict)
    router: Router | None = None

    @property
    def age(self) -> int:
        return next(iter(self.members.values())).age


@dataclass(frozen=True, slots=True)
class _Counting:
    """What is counted: all by `every`, added features also by `shards`; nothing counts in the columns `muted`."""

    every: Router
    shards: Sequence[Router]
    muted: Sequence[slice]
    width: int


class OpenRouter:
    """The router of a pipeline file, and of live series. `width` grows when a feature is opened.

    From `hold` to `renew` it counts what it counted at the hold, whatever is opened or closed meanwhile.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        origin_ms: int,
        layout: RowLayout | None = None,
        key: bytes = NO_KEY,
    ) -> None:
        """`layout` is that of the file, if it is known already; `key` as of `Router`."""
        self._spec = spec
        self._origin = origin_ms
        with uncollected():
            self._base = Router(spec, origin_ms, layout, key)
        self._added: dict[Feature | Block, _Added] = {}
        self._shards: list[_Shard] = []
        self._ages = 0
        self._muted: dict[int, list[slice]] = {}
        self._width = self._base.width
        self._now: _Counting | None = None
        self._held: _Counting | None = None

    @property
    def width(self) -> int:
        """The number of entries of a row."""
        return self._width if self._held is None else self._held.width

    def hold(self) -> None:
        """Keep counting what is counted now, until `renew`."""
        self._held = self._held or self._counted()

    def renew(self) -> None:
        """Start counting what has been opened since `hold`, and stop counting what has been closed."""
        self._held = None

    @property
    def layout(self) -> RowLayout:
        """The layout of the pipeline file's series."""
        return self._base.layout

    def place(self, feature: Feature | Block) -> int:
        """Return the column where the feature's entries begin, or would begin."""
        if feature in self.layout.features:
            return self.layout.features[feature].start
        if feature in self._added:
            return self._added[feature].slot.start
        column, wanted = self._base.width, RowLayout.alone(self._spec, feature).width
        for other in sorted((each.slot for each in self._added.values()), key=_start):
            if other.start - column >= wanted:
                break
            column = max(column, other.stop)
        return column

    def open(self, feature: Feature | Block, column: int, user: int) -> slice:
        """Count the feature for `user` from here on, and return its part of the row.

        Raises:
            FailClosed: its place is not `column`, so this is not the router that chose it.
        """
        if self.place(feature) != column:
            raise FailClosed(
                "the journal keeps the counts of a live series in other columns than this version would; run the "
                "version that wrote it"
            )
        if feature in self.layout.features:
            slot = self.layout.features[feature]
            return slice(slot.start, slot.stop)
        added = self._added.get(feature) or self._add(feature, column)
        added.users.add(user)
        self._width = max(self._base.width, *(each.slot.stop for each in self._added.values()))
        self._now = None
        return slice(added.slot.start, added.slot.stop)

    def watch(self, block: Block, column: int, user: int) -> None:
        """Count one more watch of the series `user` from here on, in free columns within its block."""
        self._add(block, column).users.add(user)

    def unwatch(self, block: Block) -> None:
        """Stop counting a watch."""
        self._remove(block)

    def mute(self, columns: slice, user: int) -> None:
        """Let nothing count in these columns of the series `user` from here on.

        Nobody else may have the columns.
        """
        self._muted.setdefault(user, []).append(columns)
        self._now = None

    def close(self, user: int) -> None:
        """Stop counting for this user."""
        self._muted.pop(user, None)
        self._now = None
        for feature, added in list(self._added.items()):
            added.users.discard(user)
            if not added.users:
                self._remove(feature)

    def decode(self, batch: Batch) -> Batch:
        """Return the batch with its payloads decoded for all that is counted now."""
        return (self._held or self._counted()).every.decode(batch)

    def route(self, batch: Batch) -> Routed:
        """Add up a batch, decoding it first if nobody has; nothing that a payload holds raises."""
        counting = self._held or self._counted()
        routed, refused = counting.every.tally(batch)
        if refused and counting.every is not self._base:
            refused = self._one_by_one(batch, routed, refused, counting)
        for columns in counting.muted:
            routed.rows = {tick: without(row, columns) for tick, row in routed.rows.items()}
        routed.dead = dead(batch, refused)
        return routed

    def _add(self, feature: Feature | Block, column: int) -> _Added:
        alone = RowLayout.alone(self._spec, feature)
        fields = tuple(decoded_fields(self._spec, (one for one, _ in alone.counted(self._spec))))
        shard = next((one for one in self._shards if one.fields == fields and _has_room(one)), None)
        if shard is None:
            shard = _Shard(fields)
            self._shards.append(shard)
        slot = Slot(column, alone.features[feature].keys)
        added = _Added(slot, self._ages, shard)
        self._added[feature] = shard.members[feature] = added
        self._ages += 1
        shard.router = self._now = None
        return added

    def _remove(self, feature: Feature | Block) -> None:
        shard = self._added.pop(feature).shard
        del shard.members[feature]
        shard.router = self._now = None
        if not shard.members:
            self._shards.remove(shard)

    def _counted(self) -> _Counting:
        """Return what is counted when nothing is held."""
        if self._now is None:
            self._shards.sort(key=_age)
            shards, width, every = (
                [self._router(one) for one in self._shards],
                self._width,
                self._base,
            )
            if shards or width != self._base.width:
                every = self._base.beside(shards, width)
            muted = list(chain.from_iterable(self._muted.values()))
            self._now = _Counting(every, shards, muted, width)
        return self._now

    def _router(self, shard: _Shard) -> Router:
        if shard.router is None:
            slots = {feature: added.slot for feature, added in shard.members.items()}
            width = max(slot.stop for slot in slots.values())
            shard.router = Router(self._spec, self._origin, RowLayout(width, slots, {}))
        return shard.router

    def _one_by_one(
        self, batch: Batch, routed: Routed, refused: Sequence[Refusal], counting: _Counting
    ) -> list[Refusal]:
        """Add what each feature can read of the refused records; return the refusals that remain."""
        places = [refusal.position for refusal in refused]
        again = replace(batch, payloads=[batch.payloads[place] for place in places], decoded=None)
        base, dead_for_file = self._base.tally(again)
        _count(routed.rows, base, counting.width)
        for tick, number in base.records.items():
            routed.records[tick] = routed.records.get(tick, 0) + number
        why = {refusal.position: refusal for refusal in dead_for_file}
        for shard in counting.shards:
            added, dead_for_shard = shard.tally(again)
            _count(routed.rows, added, counting.width)
            for refusal in dead_for_shard:
                why.setdefault(refusal.position, refusal)
        came: dict[int, Came] = {}
        for tick, arrived in chain(routed.arrived.items(), base.arrived.items()):
            came.setdefault(tick, Came()).add(arrived)
        routed.arrived = {tick: identifiers.once() for tick, identifiers in came.items()}
        return [refusal._replace(position=places[at]) for at, refusal in why.items()]


def _count(rows: dict[int, Row], routed: Routed, width: int) -> None:
    """Add the routed rows, which may be narrower, to `rows`."""
    for tick, part in routed.rows.items():
        row = OpenRow(width)
        for each in (rows.get(tick), part):
            if each is not None:
                row.add(thin(each))
        rows[tick] = row.row()


def _start(slot: Slot) -> int:
    return slot.start


def _age(shard: _Shard) -> int:
    return shard.age


def _has_room(shard: _Shard) -> bool:
    return len(shard.members) < MOST_IN_A_SHARD
