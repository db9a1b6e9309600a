"""A misspelled kind hides no other mistake of its entry, in a file and in what comes by message."""

from pathlib import Path

import pytest

from stream_dp.errors import UsageError
from stream_dp.pipeline.file.yaml import load, load_series

FILE = """\
version: 1
name: orders
source: {{kind: {source}}}
schema:
  time: {{type: time}}
  amount: {{{amount}}}
privacy: {{epsilon: 2}}
clock: {{kind: replay, field: time, start: "2026-03-01T00:00:00Z", step: 1h, horizon: 48}}
series:
  - {{name: one, {series}}}
"""
RIGHT = {
    "source": "file, path: orders.jsonl",
    "amount": "type: number",
    "series": "statistic: count, epsilon: 1",
}


def told(folder: Path, **wrong: str) -> list[str]:
    """What is wrong with a file, by place."""
    path = folder / "orders.yaml"
    path.write_text(FILE.format(**{**RIGHT, **wrong}))
    with pytest.raises(UsageError) as refused:
        load(path)
    return [line.split(": ", 1)[1] for line in str(refused.value).splitlines()]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"series": "statistic: cuont, epsilom: 1, windws: [1h]"},
            [
                "series[0].statistic: 'cuont' is not a known statistic; did you mean count?",
                "series[0].epsilom: is not a known key; did you mean epsilon?",
                "series[0].windws: is not a known key; did you mean windows?",
            ],
        ),
        (
            {"source": "fil, pth: orders.jsonl"},
            [
                "source.kind: 'fil' is not a known kind; did you mean file?",
                "source.pth: is not a known key; did you mean path?",
            ],
        ),
        (
            {"amount": "type: nmber, nulable: true"},
            [
                "schema.amount.type: 'nmber' is not a known type; did you mean number?",
                "schema.amount.nulable: is not a known key; did you mean nullable?",
            ],
        ),
        (
            {"series": "statistic: histogramm, epsilon: 0"},
            [
                "series[0].statistic: 'histogramm' is not a known statistic; did you mean histogram?",
                "series[0].epsilon: must be greater than 0",
            ],
        ),
    ],
)
def test_the_kind_and_the_keys_are_both_named(
    tmp_path: Path, wrong: dict[str, str], said: list[str]
) -> None:
    """What is missing is not: the histogram's `by` depends on the guess."""
    assert told(tmp_path, **wrong) == said


def test_where_no_kind_is_near_nothing_is_guessed(tmp_path: Path) -> None:
    (said,) = told(tmp_path, series="statistic: xyz, epsilom: 1")
    assert said.startswith("series[0].statistic: 'xyz' is none of count, sum")


def test_of_a_message_both_are_named_and_nothing_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(FILE.format(**RIGHT))
    with pytest.raises(UsageError) as refused:
        load_series(b"{name: two, statistic: cuont, epsilom: 1}", load(path))
    first, second = str(refused.value).splitlines()
    assert first.endswith("is not a known statistic; did you mean count?")
    assert second.endswith("epsilom: is not a known key; did you mean epsilon?")
    assert "cuont" not in str(refused.value)
