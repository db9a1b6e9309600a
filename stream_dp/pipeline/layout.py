"""Which entries of a tick's row belong to which series.

A tick's row is one int64 vector. Each distinct feature (by, where) owns one slice of it, and series with the same
feature share the slice. A series of several features has a block of its own, with free entries for more. How the events
of a user may lie in these entries is said here too. The layout depends on the specification alone.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stream_dp.core.box import Box
from stream_dp.core.neighbors import UserShape
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.amount_units import Addend, UserTotal
from stream_dp.records.conditions import Needs, box_of, tests_of
from stream_dp.records.groupings import By, grouping_fields, keys_of, number_of_keys, parts_of
from stream_dp.records.record_columns import CapUse, Identified
from stream_dp.records.schema import CategoryField
from stream_dp.statistics import Series

SCALAR = ("",)


@dataclass(frozen=True, slots=True)
class Feature:
    """Counts the records that pass all of `where`, by `by` (None: a scalar); or, with `of`, sums or identifies."""

    by: By | None
    where: Needs
    of: Addend | Identified | CapUse | None = None

    @property
    def fields(self) -> Iterator[str]:
        """The fields of the schema that it reads; some occur twice."""
        yield from grouping_fields(self.by)
        yield from sorted(name for need in self.where for name in need.fields)
        if self.of is not None and not isinstance(self.of, CapUse):
            yield self.of.field


@dataclass(frozen=True, slots=True)
class Block:
    """The features of the series `owner`, each under its name, in turn in a slice of `places` entries."""

    owner: str
    parts: tuple[tuple[str, Feature], ...]
    places: int


@dataclass(frozen=True, slots=True)
class Slot:
    """The slice of the row that a feature or a block owns, and the name of each of its entries; "" is free."""

    start: int
    keys: tuple[str, ...]

    @property
    def stop(self) -> int:
        return self.start + len(self.keys)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The row vector of shape (width,) and the owner of each part."""

    width: int
    features: dict[Feature | Block, Slot]
    series: dict[str, Feature | Block]

    @classmethod
    def of(cls, spec: PipelineSpec) -> "RowLayout":
        """Return the layout of a pipeline; slices follow the order in which series first need them."""
        width = 0
        features: dict[Feature | Block, Slot] = {}
        series: dict[str, Feature | Block] = {}
        for item in spec.counted:
            feature = feature_of(spec, item)
            series[item.name] = feature
            if feature not in features:
                features[feature] = Slot(width, names_of(spec, feature))
                width = features[feature].stop
        return cls(width, features, series)

    def windows(self, spec: PipelineSpec) -> dict[tuple[int, int], int | None]:
        """Return the length in ticks of windows (None: for ever), by the first and the end of the columns that count
        identifiers in them: those of one feature; the guard's each by itself.
        """
        found: dict[tuple[int, int], int | None] = {}
        for feature, slot in self.features.items():
            of = feature.of if isinstance(feature, Feature) else None
            if isinstance(of, Identified | CapUse):
                window = None if of.span is None else of.span // spec.clock.step
                each = 1 if isinstance(of, CapUse) else len(slot.keys)
                found |= {(at, at + each): window for at in range(slot.start, slot.stop, each)}
        return found

    def totals(self, *, signed: bool) -> dict[tuple[int, int], int]:
        """Return the most units of one user, by the first and the end of the columns that share a total: those of
        amounts of both signs, or the others.
        """
        return {
            (slot.start, slot.stop): feature.of.most
            for feature, slot in self.features.items()
            if isinstance(feature, Feature)
            and isinstance(feature.of, UserTotal)
            and feature.of.signed is signed
        }

    @property
    def cap_uses(self) -> tuple[tuple[Slot, str | None], ...]:
        """The slots where the guard for users counts active users and users who were cut off; by which cap."""
        features = ((f.of, slot) for f, slot in self.features.items() if isinstance(f, Feature))
        return tuple((slot, of.cap) for of, slot in features if isinstance(of, CapUse))

    @classmethod
    def alone(cls, spec: PipelineSpec, feature: Feature | Block) -> "RowLayout":
        """Return the layout of one feature or block that has a row of its own."""
        keys = names_of(spec, feature)
        return cls(len(keys), {feature: Slot(0, keys)}, {})

    def counted(self, spec: PipelineSpec) -> Iterator[tuple[Feature, Slot]]:
        """Yield the features that records count in, those of blocks one by one; not those that guards count."""
        for feature, slot in self.features.items():
            if isinstance(feature, Feature):
                if not isinstance(feature.of, CapUse):
                    yield feature, slot
                continue
            start = slot.start
            for name, part in feature.parts:
                keys = part_names(spec, name, part)
                yield part, Slot(start, keys)
                start += len(keys)

    def slice(self, series: str) -> slice:
        slot = self.features[self.series[series]]
        return slice(slot.start, slot.stop)

    def keys(self, series: str) -> tuple[str, ...]:
        return self.features[self.series[series]].keys


def feature_of(spec: PipelineSpec, series: Series) -> Feature | Block:
    tests, amount = tests_of(spec.fields, series.where), series.amount
    if not series.parts:
        return Feature(series.grouped_by, tests, amount or series.identifier)
    wheres = (tests | tests_of(spec.fields, part.where) for part in series.parts)
    parts = tuple(
        (part.name, Feature(part.by, where, part.amount or amount))
        for part, where in zip(series.parts, wheres, strict=True)
    )
    return Block(series.name, parts, series.places(sum(entries_of_parts(spec, series))))


def seen_by(spec: PipelineSpec, series: Series) -> Box:
    """Return a box of all records that the series can see; the watches of a monitor may change, its `where` not."""
    return box_of(tests_of(spec.fields, series.where), spec.fields)


def entries_of_parts(spec: PipelineSpec, series: Series) -> tuple[int, ...]:
    return tuple(number_of_keys(spec.fields, part.by) for part in series.parts)


def names_of(spec: PipelineSpec, feature: Feature | Block) -> tuple[str, ...]:
    if isinstance(feature, Feature):
        own = feature.of.keys if isinstance(feature.of, CapUse) else None
        return own or keys_of(spec.fields, feature.by)
    named = [key for name, part in feature.parts for key in part_names(spec, name, part)]
    return (*named, *[""] * (feature.places - len(named)))


def part_names(spec: PipelineSpec, name: str, part: Feature) -> tuple[str, ...]:
    """Return the names of the entries of a block's part: `name`, or one name for each key of the part."""
    if part.by is None:
        return (name,)
    return tuple(f"{name}/{key}" for key in keys_of(spec.fields, part.by))


@contextmanager
def uncollected() -> Iterator[None]:
    """Make very many objects that stay, without the collector of cyclic garbage.

    It would look at all of them again each time they have grown by a quarter, and find nothing: most of the time that
    it took to read a file of 100,000 watches.
    """
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


def values_of(spec: PipelineSpec, series: Series) -> int | None:
    """Return how many of the identifiers that a series counts a user's events have at most; None: no cap says it.

    A cap takes all that is outside a category's domain for one value, and so does not bound what such a field names.
    The optimal filter takes only steps of which each costs its part (`Ledger.price`).
    """
    privacy, identifier = spec.privacy, series.identifier
    if identifier is None or privacy.keys is None or identifier.field != privacy.key:
        return None
    unbounded = (
        isinstance(spec.fields[identifier.field], CategoryField) or privacy.filter == "optimal"
    )
    return None if unbounded else min(privacy.keys, privacy.most_events(spec.clock))


def user_entries(spec: PipelineSpec, series: Series) -> int:
    """Return in how many entries of a series' rows a user's events lie at most, of one window of the cap.

    What a cap takes for one value of its key lies in one entry of what goes by that field alone.
    """
    privacy, by = spec.privacy, series.grouped_by
    entries = 1
    for part in parts_of(by) if by is not None else ():
        keys = number_of_keys(spec.fields, part)
        capped = privacy.keys if [privacy.key] == list(grouping_fields(part)) else None
        entries *= min(keys, capped or keys)
    return min(entries, privacy.most_events(spec.clock))


def shape_of(spec: PipelineSpec, series: Series) -> UserShape | None:
    """Return how a user's events may lie in the rows of a series, where caps say more than how many count and the
    filter adds up zCDP or Renyi DP; else None.

    Under another filter an event must cost no more than its part of the price (`Protection.of`). Of a category that may
    be null, the entry `other` has two values of the key.
    """
    privacy, users, by = spec.privacy, spec.protection.users, series.grouped_by
    if users is None or not privacy.by_rho or privacy.filter == "gdp":
        return None
    of_entry, key = users.cap, privacy.key
    if key is not None and privacy.per_key is not None and key in grouping_fields(by):
        field = spec.fields[key]
        if isinstance(field, CategoryField):
            of_entry = min(users.cap, privacy.per_key * (2 if field.nullable else 1))
    of_tick = min(users.cap, privacy.per_tick or users.cap)
    if of_tick == of_entry == users.cap:
        return None
    return UserShape(users, of_tick, of_entry)
