"""What a pipeline file says, as journals keep it, means what the file means."""

from pathlib import Path

import pytest

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


def test_what_is_no_file_is_refused() -> None:
    spec = load(ROOT / "examples/01_flights/pipeline.yaml")
    for text in (b"", b"{}", text_of(spec)[:-3], told(spec)):
        with pytest.raises(FailClosed, match="does not read"):
            earlier(text, spec)
