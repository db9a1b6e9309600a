"""The table of a release's fields in `docs/api.md` is the form that is written."""

import re
from pathlib import Path

from stream_dp.journal.release import Released, Shape, read

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
RELEASES = PAGE.partition("## Releases")[2].partition("## Live series")[0]


def test_the_table_has_the_fields_in_their_order() -> None:
    rows = re.findall(r"^\| (`.*?) \|", RELEASES, re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert told == list(Released.__struct_fields__)


def test_the_example_is_a_release() -> None:
    (line,) = re.findall(r"^ {4}(\{.*\})$", RELEASES, re.MULTILINE)
    assert read(line.encode()).shape is Shape.HISTOGRAM
