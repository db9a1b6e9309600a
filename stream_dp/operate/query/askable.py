"""What a form needs to ask a pipeline: the declared fields, and the keys of each statistic.

Rules: everything here is public: it is in the pipeline file or the same for all pipelines. Keys that a form cannot
show are left out, and so are statistics that require such a key; a definition of a live series may still use all of
them. No statistic is named in this module.
"""

from collections.abc import Mapping
from typing import Any

from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.schema import CategoryField, ListField, TimeField
from stream_dp.statistics import STATISTICS
from stream_dp.statistics.parts.series_spec import SeriesSpec

KINDS: Mapping[str, str] = {
    "by": "grouping", "of": "amount", "clamp": "range", "buckets": "whole", "at": "shares", "k": "whole",
    "rank": "whole", "level": "whole", "threshold": "whole", "below": "flag", "windows": "windows",
}  # fmt: skip
"""The form element for each key of a definition."""
_EVERYWHERE = ("statistic", "name", "epsilon", "where")


def askable_json(spec: PipelineSpec) -> dict[str, Any]:
    """Return the fields of the schema, and the statistics with their keys, for `GET /api/schema`."""
    fields = [
        {"name": name, "type": field.type, **_of_field(field)}
        for name, field in spec.fields.items()
        if not isinstance(field, TimeField)
    ]
    asked = (_statistic(kind) for kind in STATISTICS)
    return {"fields": fields, "statistics": [each for each in asked if each is not None]}


def _of_field(field: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"nullable": field.nullable}
    if isinstance(field, CategoryField | ListField):
        found["domain"] = list(field.domain)
    if isinstance(field, ListField):
        found["most"] = field.most
    return found


def _statistic(kind: type[SeriesSpec]) -> dict[str, Any] | None:
    """Return a statistic with its keys; None if a form cannot ask it, or a running engine cannot create it."""
    own = {key: field for key, field in kind.model_fields.items() if key not in _EVERYWHERE}
    required = [key for key, field in own.items() if field.is_required()]
    priced = kind.model_fields["epsilon"].is_required()
    remembers = kind.identifier is not SeriesSpec.identifier
    if remembers or not priced or any(key not in KINDS for key in required):
        return None
    words = (kind.__doc__ or "").partition("\n\n")[0]
    return {
        "statistic": kind.model_fields["statistic"].default,
        "about": " ".join(words.split()),
        "keys": [
            {"key": key, "kind": KINDS[key], "required": key in required}
            for key in KINDS
            if key in own
        ],
    }
