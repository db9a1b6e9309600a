"""For each field: how many records of a sample have it, lack it, or hold a value outside of the schema.

Rules: the product's own decoder decides, one field at a time, so the counts match what the engine would count.
Counts are exact and NOT PRIVATE.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stream_dp.core.moments import own_time
from stream_dp.journal.dead_letters import MISSING_FIELD, TOO_MANY_ENTRIES, WRONG_TYPE
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.routing.layout import RowLayout
from stream_dp.records.decoder import Decoded, RecordDecoder
from stream_dp.records.endpoints import ReplayClock
from stream_dp.records.schema import CategoryField, ListField, TimeField


@dataclass(frozen=True, slots=True)
class FieldFit:
    """One field in a sample: positions of records by outcome; `used` says whether series or clock need the field.

    `wrong` includes lists that are too long. `other` holds values outside of the domain. Nulls are in `null` only.
    """

    name: str
    type: str
    used: bool
    fits: Sequence[int]
    null: Sequence[int]
    missing: Sequence[int]
    wrong: Sequence[int]
    other: Sequence[int]


def field_fits(spec: PipelineSpec, payloads: Sequence[bytes]) -> list[FieldFit]:
    """Return how each declared field fits, in the order of the schema."""
    used = used_fields(spec)
    return [_fit(name, field, name in used, payloads) for name, field in spec.fields.items()]


def used_fields(spec: PipelineSpec) -> set[str]:
    """Return the fields without which a record cannot be counted."""
    features = [feature for feature, _ in RowLayout.of(spec).counted(spec)]
    found = {name for feature in features for name in feature.fields}
    if spec.privacy.user is not None:
        found.add(spec.privacy.user)
    return found | ({spec.clock.field} if isinstance(spec.clock, ReplayClock) else set())


def _fit(name: str, field: Any, used: bool, payloads: Sequence[bytes]) -> FieldFit:
    decoder = RecordDecoder({name: field})
    decoded, attribute = decoder.decode(payloads), decoder.attribute(name)
    fits: list[int] = []
    null: list[int] = []
    other: list[int] = []
    wrong = [*_refused(decoded, WRONG_TYPE, name), *_refused(decoded, TOO_MANY_ENTRIES, name)]
    known = _known(field)
    for record, at in zip(decoded.records, decoded.positions, strict=True):
        value = getattr(record, attribute)
        if value is None:
            null.append(at)
        elif isinstance(field, TimeField) and own_time(value, field.form) is None:
            wrong.append(at)
        else:
            fits.append(at)
        if value is not None and not known(value):
            other.append(at)
    missing = _refused(decoded, MISSING_FIELD, name)
    return FieldFit(name, field.type, used, fits, null, missing, sorted(wrong), other)


def _known(field: Any) -> Callable[[Any], bool]:
    """Return a test that is False for a value which counts in `other`."""
    if not isinstance(field, CategoryField | ListField):
        return lambda value: True
    domain = frozenset(field.domain)
    if isinstance(field, CategoryField):
        return domain.__contains__
    return domain.issuperset


def _refused(decoded: Decoded, reason: str, name: str) -> list[int]:
    return [one.position for one in decoded.refused if (one.reason, one.field) == (reason, name)]
