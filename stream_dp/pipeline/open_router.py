"""A router to which features are added while it runs: what series created later count.

Rules: the rows of the pipeline file's series come first and never change. Every record is decoded once for all
features; what is refused so is read again for the file's series and for the added features that read the same fields,
so that a record that cannot be read for one counts elsewhere as before. Equal features share their columns; those of
closed features are used again, the lowest first. Added features are counted in shards, of which a change touches one:
what it costs does not grow with what there is. This file knows no series and no budget.
"""

from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.errors import FailClosed
from stream_dp.pipeline.layout import Block, Feature, RowLayout, Slot
from stream_dp.pipeline.router import Router, Tally, dead, decoded_fields
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.uncollected import uncollected
from stream_dp.pipeline.user_guard import NO_KEY
from stream_dp.runtime.identifiers import Came
from stream_dp.runtime.ports import Batch
from stream_dp.runtime.tick_assembler import Routed

MOST_IN_A_SHARD = 256  # features, of which each change builds anew what counts them: some ms


@dataclass(slots=True)
class _Added:
    """A feature's part of the row, the numbers of those who count on it, and its own number by age."""

    slot: Slot
    age: int
    shard: "_Shard"
    users: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Shard:
    """Added features that read the same `fields`; `router` counts them, None after a change."""

    fields: tuple[str, ...]
    members: dict[Feature | Block, _Added] = field(default_factory=dict)
    router: Router | None = None

    @property
    def age(self) -> int:
        """That of the oldest member."""
        return next(iter(self.members.values())).age


class OpenRouter:
    """The router of a pipeline file, and of live series. `width` grows when a feature is opened."""

    def __init__(
        self,
        spec: PipelineSpec,
        origin_ms: int,
        layout: RowLayout | None = None,
        key: bytes = NO_KEY,
    ) -> None:
        """`layout` is that of the file, where somebody has it already; `key` as of `Router`."""
        self._spec = spec
        self._origin = origin_ms
        with uncollected():
            self._base = Router(spec, origin_ms, layout, key)
        self._added: dict[Feature | Block, _Added] = {}
        self._shards: list[_Shard] = []
        self._ages = 0
        self._muted: dict[int, list[slice]] = {}
        self._all: Router | None = self._base
        self.width = self._base.width

    @property
    def layout(self) -> RowLayout:
        """The layout of the pipeline file's series."""
        return self._base.layout

    def place(self, feature: Feature | Block) -> int:
        """The column where the feature's entries begin, or would begin."""
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
        self.width = max(self._base.width, *(each.slot.stop for each in self._added.values()))
        return slice(added.slot.start, added.slot.stop)

    def watch(self, block: Block, column: int, user: int) -> None:
        """Count one more watch of the series `user` from here on, in columns that are free within its block."""
        self._add(block, column).users.add(user)

    def unwatch(self, block: Block) -> None:
        """Count a watch no more."""
        self._remove(block)

    def mute(self, columns: slice, user: int) -> None:
        """Let nothing count in these columns of the series `user` from here on; nothing else may have them."""
        self._muted.setdefault(user, []).append(columns)

    def close(self, user: int) -> None:
        """Count for this user no more."""
        self._muted.pop(user, None)
        for feature, added in list(self._added.items()):
            added.users.discard(user)
            if not added.users:
                self._remove(feature)

    def route(self, batch: Batch) -> Routed:
        """Decode and add up a batch; nothing that a payload holds raises."""
        router = self._all = self._all or self._for_all()
        tally = router.tally(batch)
        if tally.refused and router is not self._base:
            tally = self._one_by_one(batch, tally)
        for columns in chain.from_iterable(self._muted.values()):
            for row in tally.rows.values():
                row[columns] = 0
        return Routed(tally.rows, dead(batch, tally.refused), tally.records, tally.arrived)

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
        shard.router = self._all = None
        return added

    def _remove(self, feature: Feature | Block) -> None:
        shard = self._added.pop(feature).shard
        del shard.members[feature]
        shard.router = self._all = None
        if not shard.members:
            self._shards.remove(shard)

    def _for_all(self) -> Router:
        if not self._shards and self.width == self._base.width:
            return self._base
        self._shards.sort(key=_age)
        return self._base.beside([self._counting(shard) for shard in self._shards], self.width)

    def _counting(self, shard: _Shard) -> Router:
        if shard.router is None:
            slots = {feature: added.slot for feature, added in shard.members.items()}
            width = max(slot.stop for slot in slots.values())
            shard.router = Router(self._spec, self._origin, RowLayout(width, slots, {}))
        return shard.router

    def _one_by_one(self, batch: Batch, tally: Tally) -> Tally:
        """The tally of a batch with what each feature can read of the records that were refused for some."""
        places = [each.position for each in tally.refused]
        refused = replace(batch, payloads=[batch.payloads[at] for at in places])
        base = self._base.tally(refused)
        self._count(tally.rows, base)
        for tick, number in base.records.items():
            tally.records[tick] = tally.records.get(tick, 0) + number
        why = {each.position: each for each in base.refused}
        for shard in self._shards:
            some = self._counting(shard).tally(refused)
            self._count(tally.rows, some)
            for each in some.refused:
                why.setdefault(each.position, each)
        dead_ones = [each._replace(position=places[at]) for at, each in why.items()]
        came: dict[int, Came] = {}
        for tick, found in chain(tally.arrived.items(), base.arrived.items()):
            came.setdefault(tick, Came()).add(found)
        arrived = {tick: one.once() for tick, one in came.items()}
        return Tally(tally.rows, tally.records, dead_ones, arrived)

    def _count(self, rows: dict[int, IntArray], tally: Tally) -> None:
        for tick, part in tally.rows.items():
            if tick not in rows:
                rows[tick] = np.zeros(self.width, dtype=np.int64)
            rows[tick][: len(part)] += part


def _start(slot: Slot) -> int:
    return slot.start


def _age(shard: _Shard) -> int:
    return shard.age


def _has_room(shard: _Shard) -> bool:
    return len(shard.members) < MOST_IN_A_SHARD
