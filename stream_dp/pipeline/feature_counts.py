"""From decoded records to rows: how many records count in each entry of their tick's row.

Rules: records come sorted by tick, so that a tick is a stretch of every column. A record adds its own contribution to
each feature whose conditions it passes, and nothing else: one entry, or as many as its list has, each once. Rows are
private.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.record_columns import BoolArray, RecordColumns


class FeatureCounts:
    """Counts records in the features of a layout: `counts(records, numbers)`."""

    def __init__(
        self, layout: RowLayout, fields: Mapping[str, Any], attribute: Callable[[str], str]
    ) -> None:
        """See `RecordColumns` for `fields` and `attribute`."""
        features = layout.features
        scalars = {f.where: slot.start for f, slot in features.items() if f.by is None}
        everything = frozenset[Any]()
        self._totals = scalars.pop(everything, None)
        self._scalars = list(scalars.values())
        wheres = list(dict.fromkeys([*scalars, *(f.where for f in features if f.where)]))
        self._by = [
            (feature.by, wheres.index(feature.where) if feature.where else None, slot)
            for feature, slot in features.items()
            if feature.by is not None
        ]
        self._columns = RecordColumns([by for by, _, _ in self._by], wheres, fields, attribute)
        self._width = layout.width

    def __call__(self, records: Sequence[Any], numbers: IntArray) -> IntArray:
        """Return rows of shape (ticks, width); the first `numbers[0]` records are in the first tick, and so on."""
        codes, passing = self._columns(records)
        ticks = len(numbers)
        rows = np.zeros((ticks, self._width), np.int64)
        if self._totals is not None:
            rows[:, self._totals] = numbers
        if self._scalars:
            rows[:, self._scalars] = _by_tick(passing[: len(self._scalars)], numbers).T
        at = np.repeat(np.arange(ticks), numbers) if ticks > 1 else None
        for by, where, slot in self._by:
            keys = len(slot.keys)
            entries = codes[by]
            cells = entries.codes if at is None else entries.codes + entries.of(at) * keys
            if where is not None:
                cells = cells[entries.of(passing[where]).nonzero()]
            counts = np.bincount(cells, minlength=ticks * keys)
            rows[:, slot.start : slot.stop] = counts.reshape(ticks, keys)
        return rows


def _by_tick(passing: BoolArray, numbers: IntArray) -> IntArray:
    """How many records pass, of shape (conditions, ticks); every tick has a record."""
    if len(numbers) == 1:
        return np.count_nonzero(passing, axis=1, keepdims=True)
    starts = np.cumsum(numbers) - numbers
    return np.add.reduceat(passing, starts, axis=1, dtype=np.int64)
