"""A router to which features are added while it runs: what series created later count.

Rules: the rows of the pipeline file's series come first and never change. One router reads every record for all
features; what it refuses is read again for the file's series and for each added feature by itself, so that a record
that cannot be read for one counts elsewhere as before. Equal features share their columns; those of closed features
are used again, the lowest first. This file knows no series and no budget.
"""

from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.errors import FailClosed
from stream_dp.pipeline.layout import Block, Feature, RowLayout, Slot, names_of
from stream_dp.pipeline.router import Router, Tally, dead
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.runtime.ports import Batch
from stream_dp.runtime.tick_assembler import Routed


@dataclass(slots=True)
class _Added:
    """A feature's router, its first column, and the numbers of those who count on it."""

    router: Router
    column: int
    users: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.column + self.router.width


class OpenRouter:
    """The router of a pipeline file, and of live series. `width` grows when a feature is opened."""

    def __init__(self, spec: PipelineSpec, origin_ms: int) -> None:
        self._spec = spec
        self._origin = origin_ms
        self._base = Router(spec, origin_ms)
        self._added: dict[Feature | Block, _Added] = {}
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
            return self._added[feature].column
        column, wanted = self._base.width, RowLayout.alone(self._spec, feature).width
        for other in sorted(self._added.values(), key=lambda added: added.column):
            if other.column - column >= wanted:
                break
            column = max(column, other.end)
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
        if feature not in self._added:
            alone = RowLayout.alone(self._spec, feature)
            self._added[feature] = _Added(Router(self._spec, self._origin, alone), column)
            self._all = None
        added = self._added[feature]
        added.users.add(user)
        self.width = max(self._base.width, *(each.end for each in self._added.values()))
        return slice(added.column, added.end)

    def watch(self, block: Block, column: int, user: int) -> None:
        """Count one more watch of the series `user` from here on, in columns that are free within its block."""
        alone = RowLayout.alone(self._spec, block)
        self._added[block] = _Added(Router(self._spec, self._origin, alone), column, {user})
        self._all = None

    def unwatch(self, block: Block) -> None:
        """Count a watch no more."""
        del self._added[block]
        self._all = None

    def mute(self, columns: slice, user: int) -> None:
        """Let nothing count in these columns of the series `user` from here on; nothing else may have them."""
        self._muted.setdefault(user, []).append(columns)

    def close(self, user: int) -> None:
        """Count for this user no more."""
        self._muted.pop(user, None)
        for feature, added in list(self._added.items()):
            added.users.discard(user)
            if not added.users:
                del self._added[feature]
                self._all = None

    def route(self, batch: Batch) -> Routed:
        """Decode and add up a batch; nothing that a payload holds raises."""
        router = self._all = self._all or self._for_all()
        tally = router.tally(batch)
        if tally.refused and router is not self._base:
            tally = self._one_by_one(batch, tally)
        for columns in chain.from_iterable(self._muted.values()):
            for row in tally.rows.values():
                row[columns] = 0
        return Routed(tally.rows, dead(batch, tally.refused), tally.records)

    def _for_all(self) -> Router:
        features = dict(self.layout.features)
        for feature, added in self._added.items():
            features[feature] = Slot(added.column, names_of(self._spec, feature))
        return Router(self._spec, self._origin, RowLayout(self.width, features, {}))

    def _one_by_one(self, batch: Batch, tally: Tally) -> Tally:
        """The tally of a batch with what each feature can read of the records that were refused for some."""
        places = [each.position for each in tally.refused]
        refused = replace(batch, payloads=[batch.payloads[at] for at in places])
        base = self._base.tally(refused)
        self._add(tally.rows, 0, base)
        for tick, number in base.records.items():
            tally.records[tick] = tally.records.get(tick, 0) + number
        why = {each.position: each for each in base.refused}
        for added in self._added.values():
            alone = added.router.tally(refused)
            self._add(tally.rows, added.column, alone)
            for each in alone.refused:
                why.setdefault(each.position, each)
        dead_ones = [each._replace(position=places[at]) for at, each in why.items()]
        return Tally(tally.rows, tally.records, dead_ones)

    def _add(self, rows: dict[int, IntArray], column: int, tally: Tally) -> None:
        for tick, part in tally.rows.items():
            if tick not in rows:
                rows[tick] = np.zeros(self.width, dtype=np.int64)
            rows[tick][column : column + len(part)] += part
