"""`title`, `description`, `unit` of a series and its conditions: in the file, the API and live definitions."""

import json
from pathlib import Path

from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.observe.public_view import pipeline_json
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import canonical_series, load

FIXTURES = Path(__file__).parents[2] / "fixtures" / "refusals"
FILE = (FIXTURES / "words.yaml").read_text()
"""One series with words, which begin at `WORDS`."""
WORDS = FILE.index("    title:")


def test_the_api_says_what_the_file_says_and_words_may_be_changed(tmp_path: Path) -> None:
    """They touch neither data nor guarantee; another threshold does."""
    path, found = tmp_path / "shop.yaml", []
    for text in (FILE, FILE[:WORDS], FILE.replace("at_least: 1000", "at_least: 1001")):
        path.write_text(text)
        built = build(load(path))
        found.append((pipeline_json(built, built.spec.series)["series"][0], built.fingerprint))
    (said, before), (silent, now), (_, other) = found
    assert (said["title"], said["unit"]) == ("Large orders", "orders")
    assert said["description"] == "Orders of 1,000 and more, at the time of payment."
    assert said["where"] == ["amount at least 1000", "country one of DE, FR"]
    assert not {"title", "description", "unit"} & set(silent)
    assert before == now != other


def test_a_live_series_keeps_its_words_in_its_definition() -> None:
    spec = load(FIXTURES / "words.yaml")
    asked = {"name": "new", "statistic": "count", "epsilon": "1"}
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, spec.clock.start or 0))
    plain = planner.propose(json.dumps(asked).encode(), 1).series
    assert b"title" not in canonical_series(plain)
    titled = planner.propose(json.dumps({**asked, "title": "All"}).encode(), 1).series
    assert json.loads(canonical_series(titled))["title"] == "All"
    assert titled.described()["title"] == "All"
