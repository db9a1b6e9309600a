"""Reading a pipeline file: text stays text, and every error is told at once, with its place."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_dp.errors import UsageError
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import SqliteJournalSpec

GOOD = """\
version: 1
name: flights
source: {kind: file, path: flights.csv.gz}
schema:
  time: {type: time}
  airline: {type: category, domain: [9E, NO, 1e-6, "null", 010]}
  delay: {type: integer, nullable: yes}
privacy: {unit: event, neighbors: replace, epsilon: 1e-6}
clock:
  kind: replay
  field: time
  start: 2013-01-01T10:00:00Z
  step: 1h
  horizon: 8760
series:
  - name: departures
    statistic: count
    epsilon: 1/3
  - name: late
    statistic: alerts
    by: airline
    where: [{field: delay, at_least: 60}]
    threshold: 100
    epsilon: 0.000001
"""


def errors(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UsageError) as caught:
        load(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:") for line in lines]


def test_scalars_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(GOOD)
    spec = load(str(path))
    assert spec.fields["airline"].domain == ("9E", "NO", "1e-6", "null", "010")  # type: ignore[union-attr]
    assert str(spec.privacy.epsilon) == "1/1000000"
    assert spec.journal == SqliteJournalSpec(path=tmp_path / "flights.journal")
    assert spec.source.path == tmp_path / "flights.csv.gz"  # type: ignore[attr-defined]


TOP_KEYS = "version, name, public_data, source, schema, privacy, clock, journal, releases, series, confidence, queries"


def test_anchors_are_fine(tmp_path: Path) -> None:
    text = GOOD.replace("[{field: delay, at_least: 60}]", "&late [{field: delay, at_least: 60}]")
    text += "  - {name: n, statistic: count, epsilon: 1, where: *late}\n"
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    spec = load(path)
    assert spec.series[1].where == spec.series[2].where


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("&a [*a]", "must not contain itself"),
        ("!!python/name:os.system x", "must"),
        ("!include x", "the tag '!include' is not supported"),
        ("{[a]: b}", "a key must be text"),
    ],
)
def test_yaml_that_a_pipeline_does_not_use(tmp_path: Path, value: str, message: str) -> None:
    assert any(message in line for line in errors(tmp_path, GOOD + f"confidence: {value}\n"))


def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    bomb = "x0: &x0 [a, a]\n" + "".join(
        f"x{i}: &x{i} [*x{i - 1}, *x{i - 1}]\n" for i in range(1, 60)
    )
    assert errors(tmp_path, bomb + GOOD)[0] == f"1:1: x0: is not a known key; known are {TOP_KEYS}"


BROKEN: list[tuple[str | bytes, str]] = [
    ("# nothing\n", "1:1: is empty; it must hold keys and values"),
    ("- a\n", "1:1: must be a mapping (key: value)"),
    ("name: [a\nversion: 1\n",
     "2:8: not valid YAML: a comma is missing before this, or the ] to what opens in line 1, column 7"),
    ("name: a\n\tb: c\n", "2:1: not valid YAML"),
    ("a: *b\n", "1:4: not valid YAML: found undefined alias 'b'"),
    ("a: 1\n---\nb: 1\n", "2:1: not valid YAML: text stands behind what has ended already"),
    ("a: 1\nbc: d\x07\n", "2:6: not valid YAML: holds a control character; write it in double quotes"),
    ("[" * 5000, " not valid YAML: nested too deeply"),
    (b"a: \xff\n", " is not a text file in UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), BROKEN)
def test_broken_files(tmp_path: Path, text: str | bytes, line: str) -> None:
    (found,) = errors(tmp_path, text)
    assert found.startswith(line)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this file does not exist"):
        load(tmp_path / "gone.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.one_of(
        st.text(),
        st.tuples(st.integers(0, len(GOOD)), st.integers(0, 30), st.text(max_size=5)).map(
            lambda cut: GOOD[: cut[0]] + cut[2] + GOOD[cut[0] + cut[1] :]
        ),
    )
)
def test_whatever_the_file_holds(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with suppress(UsageError):
        load(path)
