"""Which entries of a tick's row belong to which series.

Rules: a tick's row is one int64 vector; each distinct feature (by, where) owns one slice of it, and series that
ask for the same feature share the slice. The layout depends on the specification alone.
"""

from dataclasses import dataclass
from typing import Any

from stream_dp.pipeline.conditions import Where, typed
from stream_dp.pipeline.scalars import OTHER
from stream_dp.pipeline.schema import ListField
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.statistics import Series

SCALAR = ("",)


@dataclass(frozen=True, slots=True)
class Test:
    """A condition with its values in the field's type."""

    __test__ = False

    field: str
    operator: str
    values: frozenset[Any]


@dataclass(frozen=True, slots=True)
class Feature:
    """Count the records that pass all `where`, by the category or list `by` (a scalar where it is None)."""

    by: str | None
    where: frozenset[Test]


@dataclass(frozen=True, slots=True)
class Slot:
    """The slice of the row that a feature owns, and the name of each of its entries."""

    start: int
    keys: tuple[str, ...]

    @property
    def stop(self) -> int:
        """One past the last entry."""
        return self.start + len(self.keys)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The row vector of shape (width,) and who owns which part."""

    width: int
    features: dict[Feature, Slot]
    series: dict[str, Feature]

    @classmethod
    def of(cls, spec: PipelineSpec) -> "RowLayout":
        """The layout of a pipeline; slices follow the order in which series first need them."""
        width = 0
        features: dict[Feature, Slot] = {}
        series: dict[str, Feature] = {}
        for item in spec.series:
            feature = feature_of(spec, item)
            series[item.name] = feature
            if feature not in features:
                features[feature] = Slot(width, keys_of(spec, feature.by))
                width = features[feature].stop
        return cls(width, features, series)

    @classmethod
    def alone(cls, spec: PipelineSpec, feature: Feature) -> "RowLayout":
        """The layout of one feature, which then has a row of its own."""
        keys = keys_of(spec, feature.by)
        return cls(len(keys), {feature: Slot(0, keys)}, {})

    def slice(self, series: str) -> slice:
        """Return the slice of the tick row that holds the entries of this series."""
        slot = self.features[self.series[series]]
        return slice(slot.start, slot.stop)

    def keys(self, series: str) -> tuple[str, ...]:
        """The names of the slice's entries: the domain and `other`, or ("",) for a scalar."""
        return self.features[self.series[series]].keys


def feature_of(spec: PipelineSpec, series: Series) -> Feature:
    """What a series counts."""
    return Feature(series.grouped_by, _tests(spec, series.where))


def keys_of(spec: PipelineSpec, by: str | None) -> tuple[str, ...]:
    """The names of a feature's entries."""
    if by is None:
        return SCALAR
    domain: tuple[str, ...] = getattr(spec.fields[by], "domain")  # noqa: B009  # checked by the spec
    return (*domain, OTHER)


def ones_of_rows(spec: PipelineSpec, by: str | None) -> int:
    """The most entries of a feature's row that one record sets."""
    field = None if by is None else spec.fields[by]
    return field.ones if isinstance(field, ListField) else 1


def _tests(spec: PipelineSpec, where: Where) -> frozenset[Test]:
    return frozenset(
        Test(
            condition.field,
            condition.operator,
            frozenset(
                typed(spec.fields[condition.field], condition.operator, text)
                for text in condition.texts
            ),
        )
        for condition in where
    )
