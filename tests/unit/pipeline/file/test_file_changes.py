"""What a pipeline file says, as journals keep it, means what the file means."""

import json
from pathlib import Path

import pytest
from unit.records.value_worlds import spec_of

from stream_dp.errors import FailClosed
from stream_dp.pipeline.fingerprints import (
    FileChanges,
    Said,
    compared,
    earlier,
    fingerprint,
    going_on,
    text_of,
    told,
)
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load

ROOT = Path(__file__).resolve().parents[4]
FILES = sorted(
    [
        *ROOT.glob("examples/*/pipeline.yaml"),
        *(file for file in ROOT.glob("deploy/*.yaml") if file.name != "compose.yaml"),
        *ROOT.glob("tests/fixtures/**/*.yaml"),
    ]
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_file_comes_back_from_its_journal_with_its_meaning(file: Path) -> None:
    spec = load(file)
    text = text_of(spec)
    said = earlier(text, spec)
    assert fingerprint(said.spec) == fingerprint(spec)
    assert compared(said, Said.of(spec)) == FileChanges()
    assert going_on(said.spec, spec).series == spec.series
    assert len(text) < len(told(spec))


@pytest.mark.parametrize("every", ["1d", "[1d]"])
def test_a_running_number_of_one_window_comes_back_as_it_was_written(
    tmp_path: Path, every: str
) -> None:
    file = tmp_path / "visits.yaml"
    file.write_text(
        "version: 1\nname: visits\nsource: {kind: file, path: visits.csv}\n"
        "schema: {time: {type: time}, customer: {type: text}}\nprivacy: {epsilon: 1}\n"
        "clock: {kind: replay, field: time, start: 2026-03-01T00:00:00Z, step: 1h, horizon: 648}\nseries:\n"
        f"  - {{name: visitors, statistic: distinct, of: customer, every: {every}, running: true, epsilon: 0.2}}\n"
    )
    spec = load(file)
    assert fingerprint(earlier(text_of(spec), spec).spec) == fingerprint(spec)


def test_what_is_no_file_is_refused() -> None:
    spec = load(ROOT / "examples/01_flights/pipeline.yaml")
    for text in (b"", b"{}", text_of(spec)[:-3], told(spec)):
        with pytest.raises(FailClosed, match="cannot read"):
            earlier(text, spec)


def test_only_schemas_that_are_added_are_no_other_source(tmp_path: Path) -> None:
    avsc = (tmp_path / "a.avsc", tmp_path / "b.avsc")
    for at, file in enumerate(avsc):
        field = {"name": f"f{at}", "type": "long"}
        file.write_text(json.dumps({"type": "record", "name": "R", "fields": [field]}))

    def reading(**schemas: Path) -> PipelineSpec:
        numbered = {number[1:]: str(path) for number, path in schemas.items()}
        return spec_of(tmp_path, {"format": "avro", "schemas": numbered})

    first, more = reading(s7=avsc[0]), reading(s7=avsc[0], s9=avsc[0])
    waiting = more.source.model_copy(update={"open_transactions": "wait"})
    for now, added in (
        (reading(s7=avsc[0], s12=avsc[1], s9=avsc[0]), ("9", "12")),
        (reading(s7=avsc[1], s9=avsc[0]), None),
        (reading(s9=avsc[0]), None),
        (more.model_copy(update={"source": waiting}), None),
        (spec_of(tmp_path, None), None),
        (spec_of(tmp_path, {"format": "json", "ids": [7, 9]}), None),
    ):
        said = earlier(text_of(first), now)
        changes = compared(said, Said.of(now))
        assert changes.schemas == (added or ())
        assert bool(changes.refused) == (added is None)
        if added:
            assert fingerprint(said.spec) == fingerprint(first) != fingerprint(now)
            assert not changes.equal
