"""docs/monitors.md says what the code does: its pipeline is planned, its keys and its watches are those of the code."""

import json
import re
from fractions import Fraction
from pathlib import Path

from stream_dp.journal.release import read
from stream_dp.mechanisms.watches.kinds import SumMonitor
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.statistics.monitor import MonitorSeries, WatchSpec

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "monitors.md").read_text()


def keys(table: str) -> list[str]:
    """The keys in the first column of a table with this head."""
    rows = PAGE.split(f"| {table} | |")[1].split("\n\n")[0]
    return re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)


def test_the_pages_pipeline_is_planned_and_its_release_is_one(tmp_path: Path) -> None:
    block, sums = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "airport.yaml"
    file.write_text(block)
    (chosen,) = build(load(file)).chosen
    shops = "  amount: {type: number, nullable: true}\n  shop: {type: category, domain: [a]}\n"
    head = block.split("series:\n")[0].replace("  delay:", f"{shops}  delay:")
    file.write_text(f"{head}series:\n{sums}")
    (cash,) = build(load(file)).chosen
    assert isinstance(cash.mechanism, SumMonitor)
    assert cash.mechanism.window_scale * cash.spec.grain == Fraction("2") * 500 * 2 / Fraction(
        "0.3"
    )
    (release,) = re.findall(r'^ +(\{"v":1.*\})$', PAGE, re.MULTILINE)
    said = read(release.encode())
    assert said.counts_band == chosen.spec.counts_band(chosen.mechanism, 0.95)
    assert said.band == chosen.choice.expected(said.tick)


def test_the_tables_name_every_key() -> None:
    assert keys("key of a watch") == [
        "name",
        "where",
        "by",
        "above",
        "below",
        "over",
        "rearm",
        "usual",
    ]
    assert set(keys("key of a watch")) == set(WatchSpec.model_fields)
    every = {"name", "statistic", "where", "watch", *keys("key of the monitor")}
    assert every | {"clamp", "step"} == set(MonitorSeries.model_fields) - set(MonitorSeries.words)
    assert "| `of`, `clamp`, `step` |" in PAGE


def test_the_watch_of_the_page_is_one() -> None:
    (message,) = re.findall(r'^ +(\{"do": "watch".*), …\}$', PAGE, re.MULTILINE)
    assert WatchSpec.model_validate(json.loads(message + "}")["watch"]).above == 500
