"""`title`, `description`, `unit` of a series and its conditions: in the file, the API and live definitions."""

import json
from pathlib import Path

from stream_dp.live.planner import LiveSeriesPlanner, canonical_series
from stream_dp.operate.observe.public_view import pipeline_json
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import load

FILE = """\
version: 1
name: shop
source: {{kind: file, path: shop.jsonl}}
schema:
  time: {{type: time}}
  country: {{type: category, domain: [DE, FR]}}
  amount: {{type: integer}}
privacy: {{epsilon: 2}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 8}}
series:
  - name: large
    statistic: count
    where: [{{field: amount, at_least: 1000}}, {{field: country, one_of: [DE, FR]}}]
    epsilon: 1
{more}"""
WORDS = """\
    title: Large orders
    description: >
      Orders of 1,000 and more,
      at the time of payment.
    unit: orders
"""


def file(folder: Path, more: str = WORDS) -> Path:
    """A pipeline file with one series."""
    path = folder / "shop.yaml"
    path.write_text(FILE.format(more=more))
    return path


def shown(path: Path) -> dict[str, object]:
    """What the API says of the series."""
    built = build(load(path))
    found: dict[str, object] = pipeline_json(built, built.spec.series)["series"][0]
    return found


def test_the_api_says_what_the_file_says(tmp_path: Path) -> None:
    said = shown(file(tmp_path))
    assert said["title"] == "Large orders"
    assert said["description"] == "Orders of 1,000 and more, at the time of payment."
    assert said["unit"] == "orders"
    assert said["where"] == ["amount at least 1000", "country one of DE, FR"]
    assert not {"title", "description", "unit"} & set(shown(file(tmp_path, "")))


def test_words_may_be_changed_between_runs(tmp_path: Path) -> None:
    """They touch neither data nor guarantee; another threshold does."""
    before = build(load(file(tmp_path, ""))).fingerprint
    path = file(tmp_path)
    assert build(load(path)).fingerprint == before
    path.write_text(path.read_text().replace("at_least: 1000", "at_least: 1001"))
    assert build(load(path)).fingerprint != before


def test_a_live_series_keeps_its_words_in_its_definition(tmp_path: Path) -> None:
    spec = load(file(tmp_path))
    asked = {"name": "new", "statistic": "count", "epsilon": "1"}
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, spec.clock.start or 0))
    plain = planner.propose(json.dumps(asked).encode(), 1).series
    assert b"title" not in canonical_series(plain)
    titled = planner.propose(json.dumps({**asked, "title": "All"}).encode(), 1).series
    assert json.loads(canonical_series(titled))["title"] == "All"
    assert titled.described()["title"] == "All"
