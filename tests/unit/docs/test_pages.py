"""Pages of docs/ that tell of keys, releases and exit codes say what the code does, and nothing that it does not."""

import ast
import asyncio
import json
import re
import shlex
from bisect import bisect
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from loaded_script import loaded_script

from stream_dp import errors
from stream_dp.core.neighbors import Neighbors
from stream_dp.journal.answer_body import RefusalKind, read_answer
from stream_dp.journal.release import Released, Shape, read
from stream_dp.live.analyst_messages import MESSAGES, Message, read_message
from stream_dp.live.envelope import is_signed, read_envelope
from stream_dp.mechanisms.watches.block import WatchTerms, crossing_chance
from stream_dp.mechanisms.watches.kinds import Monitor, SumMonitor
from stream_dp.operate.doctor import NEEDED
from stream_dp.operate.run.running import INTERRUPTED
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import (
    FileSourceSpec,
    KafkaSourceSpec,
    ReplayClock,
    Security,
    WallClock,
)
from stream_dp.records.privacy import Privacy
from stream_dp.statistics import STATISTICS
from stream_dp.statistics.alerts import AlertsSeries
from stream_dp.statistics.monitor import MonitorSeries, WatchSpec
from stream_dp.statistics.parts.series_spec import SeriesSpec

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGE = (DOCS / "pipeline.md").read_text()
COMMON = {"statistic", "name", "epsilon", "delta", "where", "title", "description", "unit"}


def rows(head: str) -> dict[str, str]:
    """The rows of the table with this head, by the name in their first column."""
    (_, _, rest) = PAGE.partition(f"| {head} |")
    assert rest, f"no table of {head}"
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return {re.findall(r"`(\w+)`", line)[0]: line for line in lines}


@pytest.mark.parametrize(
    ("head", "model"),
    [
        ("key of the file", PipelineSpec),
        ("key of a Kafka source", KafkaSourceSpec),
        ("key of a file source", FileSourceSpec),
        ("key of `privacy`", Privacy),
        ("key of a wall clock", WallClock),
        ("key of a replay clock", ReplayClock),
    ],
)
def test_every_key_has_its_row(head: str, model: Any) -> None:
    keys = {field.alias or name for name, field in model.model_fields.items()}
    assert set(rows(head)) == keys


def test_every_statistic_has_its_row_with_its_keys() -> None:
    listed = rows("statistic")
    found = {kind.model_fields["statistic"].default: kind for kind in STATISTICS}
    assert set(listed) == set(found)
    for name, kind in found.items():
        own = re.findall(r"`(\w+)`", listed[name].split("|")[2])
        keys = {key for key, field in kind.model_fields.items() if not field.exclude}
        assert sorted(own) == sorted(keys - COMMON), name


KAFKA = (DOCS / "kafka.md").read_text()
AROUND = """
version: 1
name: orders
schema: {country: {type: category, domain: [DE]}}
privacy: {epsilon: 1}
clock: {kind: wall, step: 1m}
series: [{name: n, statistic: count, epsilon: 1}]
"""


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", KAFKA, re.DOTALL))
def test_the_pages_sources_are_sources(block: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(block + AROUND)
    source = load(file).source
    assert isinstance(source, KafkaSourceSpec)
    assert source.security is not None
    named = yaml.safe_load(block)["source"]["security"]
    assert {key for key, value in source.security if value is not None} == set(named)


def test_the_kafka_pages_table_of_keys_is_the_codes() -> None:
    table = KAFKA.split("| key | what it is |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(Security.model_fields)


def test_the_commands_grant_what_the_doctor_asks_for() -> None:
    told: dict[str, tuple[str, ...]] = {}
    for line in re.findall(r"^acl (.*)$", KAFKA, re.MULTILINE):
        words = shlex.split(line)
        rights = [words[at + 1] for at, word in enumerate(words) if word == "--operation"]
        told[" ".join(words[2 * len(rights) :])] = tuple(rights)
    assert told == {
        resource.format(name="orders", topic="orders-events"): rights
        for resource, rights in NEEDED.items()
    }


ALERTS = (DOCS / "alerts.md").read_text()
BEFORE = """\
version: 1
name: airport
source: {kind: file, path: flights.jsonl}
schema:
  time: {type: time}
  airline: {type: category, domain: [AA, DL]}
  delay: {type: integer, nullable: true}
privacy: {epsilon: 2}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 8760}
"""


def test_the_series_of_the_alerts_page_are_planned(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", ALERTS, re.DOTALL)
    file = tmp_path / "airport.yaml"
    file.write_text(BEFORE + block)
    by_name = {one.spec.name: one for one in build(load(file)).chosen}
    (release,) = re.findall(r'^ +(\{"v":1.*\})$', ALERTS, re.MULTILINE)
    said = read(release.encode())
    assert said.band == by_name[said.series].choice.expected(said.tick)
    assert by_name["waited"].mechanism.window_scale == 800  # type: ignore[attr-defined]


def test_the_alerts_page_names_every_key() -> None:
    rows = ALERTS.split("| key | |")[1].split("\n\n")[0]
    named = set(
        re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows.splitlines()[2:]))
    )
    assert named == set(AlertsSeries.model_fields) - set(SeriesSpec.model_fields) - {"by"}


def test_the_margins_are_those_of_the_alerts_page() -> None:
    """At epsilon 1/1000, so that margins are thousands: the least with a chance below 1 in 1,000 key-days of hours."""
    small = Fraction(1, 1_000)
    monitor = Monitor(3, small, Neighbors.ADD_REMOVE, (WatchTerms(9, window=6),))
    assert [monitor.scale, monitor.window_scale, monitor.tick_scale] == [1_000, 2_000, 1_000]
    for scale, told in ((monitor.scale, 9.4), (monitor.window_scale, 18.8)):
        found = bisect(range(0, 30_000, 50), -1e-3, key=lambda m: -crossing_chance(m, scale, 24))
        assert abs(50 * found / 1_000 - told) < 0.1


MONITORS = (DOCS / "monitors.md").read_text()


def watch_keys(table: str) -> list[str]:
    """The keys in the first column of a table with this head."""
    rows = MONITORS.split(f"| {table} | |")[1].split("\n\n")[0]
    return re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)


def test_the_pipeline_of_the_monitors_page_is_planned(tmp_path: Path) -> None:
    block, sums = re.findall(r"```yaml\n(.*?)```", MONITORS, re.DOTALL)
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
    (release,) = re.findall(r'^ +(\{"v":1.*\})$', MONITORS, re.MULTILINE)
    said = read(release.encode())
    assert said.counts_band == chosen.spec.counts_band(chosen.mechanism, 0.95)
    assert said.band == chosen.choice.expected(said.tick)


def test_the_monitors_page_names_every_key() -> None:
    assert set(watch_keys("key of a watch")) == set(WatchSpec.model_fields)
    every = {"name", "statistic", "where", "watch", *watch_keys("key of the monitor")}
    assert every | {"clamp", "step", "delta"} == set(MonitorSeries.model_fields) - set(
        MonitorSeries.words
    )
    assert "| `of`, `clamp`, `step` |" in MONITORS


def test_the_watch_of_the_monitors_page_is_one() -> None:
    (message,) = re.findall(r'^ +(\{"do": "watch".*), …\}$', MONITORS, re.MULTILINE)
    assert WatchSpec.model_validate(json.loads(message + "}")["watch"]).above == 500


OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
BY_SIGNAL = {"137, 143 or a signal"}


def incidents(page: str) -> list[tuple[str, str]]:
    table = page.split("## By exit code")[1].split("\n\n")[2]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [(each[0], each[1]) for each in cells]


@cache
def said() -> str:
    """Every text in the code, pieces that stand beside each other joined."""
    files = sorted((ROOT / "stream_dp").rglob("*.py"))
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return "\n".join(value for value in constants if isinstance(value, str))


def unsaid(page: str) -> list[str]:
    """What the table quotes and no code says; paths and words of the shell are not quoted there."""
    return [
        quote
        for _, cell in incidents(page)
        for quote in re.findall(r"`([^`]+)`", cell)
        if quote not in said()
    ]


def codes(page: str) -> set[str]:
    return {code for code, _ in incidents(page)} - BY_SIGNAL


def every_code() -> set[str]:
    kinds, found = [errors.StreamDPError], {0, INTERRUPTED}
    while kinds:
        kind = kinds.pop()
        found.add(kind.exit_code)
        kinds += kind.__subclasses__()
    return {str(code) for code in found}


def test_the_table_quotes_the_code() -> None:
    assert len(incidents(OPERATIONS)) > 15
    assert unsaid(OPERATIONS) == []


def test_every_exit_code_has_a_row() -> None:
    assert codes(OPERATIONS) == every_code()


@pytest.mark.parametrize(
    ("old", "new"), [("was written with key", "was sealed by key"), ("| 130 |", "| 131 |")]
)
def test_a_page_that_is_wrong_is_noticed(old: str, new: str) -> None:
    assert old in OPERATIONS
    page = OPERATIONS.replace(old, new)
    assert (unsaid(page), codes(page)) != ([], every_code())


API_PAGE = (DOCS / "api.md").read_text(encoding="utf-8")
RELEASES = API_PAGE.partition("## Releases")[2].partition("## Live series")[0]


def test_the_table_has_the_fields_in_their_order() -> None:
    rows = re.findall(r"^\| (`.*?) \|", RELEASES, re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert told == list(Released.__struct_fields__)


def test_the_example_is_a_release() -> None:
    (line,) = re.findall(r"^ {4}(\{.*\})$", RELEASES, re.MULTILINE)
    assert read(line.encode()).shape is Shape.HISTOGRAM


MESSAGES_PAGE = (DOCS / "messages.md").read_text()


def maker() -> Any:
    return loaded_script(DOCS / "messages.py")


def test_the_schema_is_that_of_the_models() -> None:
    assert (DOCS / "messages.json").read_text() == maker().text()


def rows_of(heading: str) -> list[list[str]]:
    table = MESSAGES_PAGE.split(f"\n| {heading} |")[1].split("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def test_the_tables_are_those_of_the_code() -> None:
    assert [row[0].strip("`") for row in rows_of("key")] == [*Message.model_fields, "do"]
    assert [row[0].strip("`") for row in rows_of("do")] == list(MESSAGES)
    assert [row[0].strip("`") for row in rows_of("kind")] == list(RefusalKind)
    for do, keys, _ in rows_of("do"):
        fields = MESSAGES[do.strip("`")].model_fields
        assert set(re.findall(r"`(\w+)`:", keys)) <= set(fields)


def test_the_message_and_the_answers_of_the_page_are_some() -> None:
    (shown,) = re.findall(r'^    (\{"id": "c1f", "analyst".*\})$', MESSAGES_PAGE, re.MULTILINE)
    assert read_message(shown).do == "ask"
    answers = re.findall(r'^    (\{"v":1,.*\})$', MESSAGES_PAGE, re.MULTILINE)
    assert [read_answer(line.encode()).number for line in answers] == [7, 8, 9]


def namespace() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", MESSAGES_PAGE, re.DOTALL):
        exec(compile(block, "messages.md", "exec"), found)  # noqa: S102 - our own page
    return found


class Silent:
    """A topic that takes everything at place 17, and one that brings these answers and then nothing."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    async def send_and_wait(self, topic: str, value: bytes) -> SimpleNamespace:
        return SimpleNamespace(offset=17)

    def __aiter__(self) -> "Silent":
        return self

    async def __anext__(self) -> SimpleNamespace:
        if not self.answers:
            await asyncio.Event().wait()
        return SimpleNamespace(value=self.answers.pop(0))


async def test_the_code_of_the_page_takes_its_own_answer_and_waits_no_longer() -> None:
    page = namespace()
    said = page["message"]("list")
    others = [
        json.dumps({"id": said["id"], "number": 1, "places": [5]}).encode(),
        json.dumps({"id": None, "number": 3, "places": [16]}).encode(),
    ]
    mine = json.dumps({"id": None, "number": 4, "places": [16, 17]}).encode()
    topic = Silent(*others, mine)
    assert (await page["told"](topic, topic, "5e", "orders", said))["number"] == 4
    topic = Silent(*others)
    with pytest.raises(TimeoutError, match=r"no engine of orders answered within 0.01 s: is one"):
        await page["told"](topic, topic, "5e", "orders", said, seconds=0.01)


@pytest.mark.parametrize("do", ["list", "create", "unwatch"])
def test_the_envelope_that_the_page_makes_is_one(do: str) -> None:
    page, token = namespace(), "5e" * 32
    key = MESSAGES[do].definition_key
    content = {} if do == "list" else {"series": "m"}
    if do == "unwatch":
        content["watch"] = "w"
    said = page["message"](do, **{**content, **({key: {"name": "m"}} if key else {})})
    found = read_envelope(page["envelope"](token, "orders", said))
    assert is_signed(token, "orders", found)
    assert not is_signed("5f" * 32, "orders", found)
    assert (read_message(found.message).do, read_message(found.message).analyst) == (do, "ann")
