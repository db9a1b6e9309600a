"""The model of a pipeline: what it accepts, what it refuses, and what its fingerprint covers."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from stream_dp.core.neighbors import Neighbors
from stream_dp.pipeline.fingerprints import fingerprint, meaning
from stream_dp.pipeline.spec import PipelineSpec, diagnose
from stream_dp.records.endpoints import SqliteJournalSpec

Data = dict[str, Any]
WALL = {"kind": "wall", "step": "1s"}
FILE = {"kind": "file", "path": "flights.csv.gz"}


def told(data: Data) -> list[tuple[str, str]]:
    found = diagnose(data)
    assert not isinstance(found, PipelineSpec)
    return [(".".join(map(str, error["loc"])), error["msg"]) for error in found]


def refuses(data: Data, place: str, message: str) -> None:
    """Some problem is told at `place`, and the model itself refuses too."""
    assert any(p == place and message in m for p, m in told(data)), told(data)
    with pytest.raises(ValidationError):
        PipelineSpec.model_validate(data)


def test_a_valid_pipeline_is_frozen_and_survives_a_round_trip(data: Data) -> None:
    spec = PipelineSpec.model_validate(data)
    assert (spec.relation, spec.privacy.epsilon) == (Neighbors.ADD_REMOVE, Fraction(2))
    assert (spec.series[0].epsilon, spec.confidence) == (Fraction(1, 5), Fraction(19, 20))
    assert (spec.public_data, spec.journal.kind, spec.releases) == (False, "kafka", None)
    with pytest.raises(ValidationError):
        spec.name = "other"  # type: ignore[misc]
    plain = spec.model_dump(by_alias=True)
    written = spec.model_dump_json(by_alias=True, exclude_unset=True)
    assert diagnose(data) == spec == PipelineSpec.model_validate(plain)
    assert PipelineSpec.model_validate_json(written) == spec


def test_defaults_of_a_file_source(data: Data) -> None:
    data["source"] = FILE
    spec = PipelineSpec.model_validate(data, context={"folder": "/somewhere"})
    assert spec.journal == SqliteJournalSpec(path=Path("/somewhere/flights.journal"))
    assert spec.releases is not None
    assert spec.releases.path == Path("/somewhere/flights.releases.jsonl")
    assert spec.source.path == Path("/somewhere/flights.csv.gz")  # type: ignore[attr-defined]


def _set(*path: str | int, value: Any) -> Callable[[Data], None]:
    def change(data: Any) -> None:
        for part in path[:-1]:
            data = data[part]
        data[path[-1]] = value

    return change


def test_files_of_a_login_lie_beside_the_pipeline(data: Data) -> None:
    data["source"]["security"] = {
        "protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": "x", "password_file": "secret",
        "ca_file": "/ca.pem",
    }  # fmt: skip
    spec = PipelineSpec.model_validate(data, context={"folder": "/a"})
    security: Any = spec.source.security  # type: ignore[attr-defined]
    assert (security.password_file, security.ca_file) == (Path("/a/secret"), Path("/ca.pem"))


SAME = [
    _set("source", "bootstrap", value="kafka:9092"),
    _set("source", "topic", value="flights-2"),
    _set("journal", value={"kind": "sqlite", "path": "elsewhere"}),
    _set("privacy", "epsilon", value="4/2"),
    _set("series", 0, "epsilon", value="1/5"),
    _set("series", 2, "where", 0, "at_least", value="+060"),
    _set("clock", "step", value="60m"),
    _set("clock", "start", value="2013-01-01T11:00:00+01:00"),
    _set("confidence", value="0.950"),
    _set("public_data", value="false"),
]
OTHER = [
    _set("name", value="flights2"),
    _set("public_data", value="true"),
    _set("privacy", "epsilon", value="2.000001"),
    _set("privacy", "neighbors", value="replace"),
    _set("schema", "airline", "domain", value=["NO", "AA", "UA"]),
    _set("schema", "delay", "nullable", value="false"),
    _set("schema", "delay", "path", value="delays.minutes"),
    _set("schema", "airline", "map", value={"American": "AA"}),
    _set("clock", "start", value="2013-01-01T09:00:00Z"),
    _set("clock", "block", value="2"),
    _set("series", 0, "name", value="all"),
    _set("series", 2, "where", 0, "at_least", value="61"),
    _set("series", 2, "threshold", value="99"),
    _set("confidence", value="0.9"),
]


def test_the_clock_says_whether_a_replacement_may_move(data: Data) -> None:
    """Broker stamps are no content; a record's own time is, unless the file vouches for it."""

    def relation(clock: Data, **privacy: str) -> tuple[Neighbors, str | None]:
        changed = data | {"clock": clock, "privacy": data["privacy"] | privacy}
        spec = PipelineSpec.model_validate(changed)
        return spec.relation, spec.condition

    vouched = "a replacement keeps its tick (moves: within_tick)"
    assert relation(data["clock"]) == relation(WALL) == (Neighbors.ADD_REMOVE, None)
    assert relation(WALL, neighbors="replace") == (Neighbors.REPLACE, None)
    assert relation(data["clock"], neighbors="replace") == (Neighbors.REPLACE_ANY_TICK, None)
    assert relation(data["clock"], neighbors="replace", moves="within_tick") == (
        Neighbors.REPLACE,
        vouched,
    )
    with pytest.raises(ValidationError, match="the broker's stamp says the tick"):
        relation(WALL, neighbors="replace", moves="within_tick")


def test_a_replacement_within_its_tick_is_what_was_always_meant(data: Data) -> None:
    """Journals of wall clocks, and those whose file vouches for it now, keep their fingerprints; others do not."""

    def found(clock: Data, **privacy: str) -> tuple[str, dict[str, Any]]:
        changed = data | {"clock": clock, "privacy": data["privacy"] | privacy}
        spec = PipelineSpec.model_validate(changed)
        return fingerprint(spec), meaning(spec)["privacy"]

    before = {"unit": "event", "neighbors": "replace", "epsilon": "2"}
    wall, meant = found(WALL, neighbors="replace")
    assert meant == before
    vouched, meant = found(data["clock"], neighbors="replace", moves="within_tick")
    assert meant == before
    moving, meant = found(data["clock"], neighbors="replace")
    assert meant == {**before, "moves": "any_tick"}
    assert len({wall, vouched, moving}) == 3


def test_how_a_topic_is_read_counts_where_it_is_not_what_was_always_meant(data: Data) -> None:
    def found(**keys: str) -> str:
        source = data["source"] | keys
        return fingerprint(PipelineSpec.model_validate(data | {"source": source}))

    assert found() == found(open_transactions="late", largest_batch="16MiB")
    assert len({found(), found(open_transactions="wait"), found(largest_batch="64KiB")}) == 3
    refuses(
        data | {"source": data["source"] | {"largest_batch": "64k"}},
        "source.kafka.largest_batch",
        "64KiB",
    )


@pytest.mark.parametrize("change", SAME)
def test_fingerprint_ignores_places_and_spelling(
    data: Data, change: Callable[[Data], None]
) -> None:
    before = fingerprint(PipelineSpec.model_validate(data))
    change(data)
    assert fingerprint(PipelineSpec.model_validate(data)) == before


@pytest.mark.parametrize("change", OTHER)
def test_fingerprint_covers_the_meaning(data: Data, change: Callable[[Data], None]) -> None:
    before = fingerprint(PipelineSpec.model_validate(data))
    change(data)
    assert fingerprint(PipelineSpec.model_validate(data)) != before


def test_fingerprint_is_stable(data: Data) -> None:
    """A journal refers to it: if this changes, old journals are refused."""
    found = fingerprint(PipelineSpec.model_validate(data))
    data["schema"] = dict(reversed(data["schema"].items()))
    assert fingerprint(PipelineSpec.model_validate(data)) == found
    assert found == "0e20d799bce65f7065f29276c9452b6b9878bf43ea7155e7a5aafebfdaec31dd"
