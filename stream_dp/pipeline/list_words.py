"""What a plan says of list fields: how many entries of a row one event sets, and when that makes the relation ~_H.

Rules: everything here is public and declared. This file knows no mechanism.
"""

from typing import Any

from stream_dp.core.how_many import how_many
from stream_dp.core.neighbors import Neighbors
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.groupings import (
    By,
    grouping_fields,
    grouping_text,
    most_ones,
    number_of_keys,
)
from stream_dp.records.schema import ListField

ANY_ROW = "any row in its tick for any other: ~_H of [HSV]"


def lists_json(spec: PipelineSpec) -> dict[str, list[dict[str, Any]]]:
    """The lists that the file's series go by, under `lists`; nothing where there are none.

    Of each its `field`, or in words what a series goes by with it, how many `entries` its rows have, and the `most` of
    them that one event sets.
    """
    named = dict.fromkeys(series.grouped_by for series in spec.series)
    found = [
        {
            "field": grouping_text(by),
            "entries": number_of_keys(spec.fields, by),
            "most": most_ones(spec.fields, by),
        }
        for by in named
        if by is not None and _has_a_list(spec, by)
    ]
    return {"lists": found} if found else {}


def _has_a_list(spec: PipelineSpec, by: By) -> bool:
    return any(isinstance(spec.fields[name], ListField) for name in grouping_fields(by))


def lists_words(spec: PipelineSpec) -> str:
    """How many entries one event sets, as a part of a sentence; empty where the series go by no list."""
    said = []
    for each in lists_json(spec).get("lists", []):
        entries, most = each["entries"], each["most"]
        whole = spec.relation is Neighbors.REPLACE and most == entries
        many = f"up to {most} of the {how_many(entries, 'entry', 'entries')} of {each['field']}"
        said.append(f"{many} ({ANY_ROW})" if whole else many)
    return f"an event sets {' and '.join(said)}" if said else ""
