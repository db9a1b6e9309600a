"""A real Prometheus scrapes a real run: what it answers is what was released. `promtool` finds nothing to say.

Prometheus is Debian's package; `STREAM_DP_REQUIRE=prometheus` makes a missing one a failure. Nothing is judged by a
clock: what is waited for has minutes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from free_ports import free_port
from prometheus_client.parser import text_string_to_metric_families

from stream_dp.testing.kafka import missing

pytestmark = pytest.mark.prometheus

PATIENCE_S = 120
ENTRY = "from stream_dp.__main__ import start; start()"
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
DEPLOYED = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
HORIZON = 24
PAGES = ("home", "help", "other")
PIPELINE = f"""\
version: 1
name: clicks
source: {{kind: file, path: clicks.csv}}
schema:
  time: {{type: time}}
  page: {{type: category, domain: [home, help]}}
privacy: {{unit: event, neighbors: add_remove, epsilon: 3}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: {HORIZON}}}
series:
  - {{name: clicks, statistic: count, windows: [3h, ever], epsilon: 0.5}}
  - {{name: by_page, statistic: histogram, by: page, method: tree, epsilon: 0.5}}
  - {{name: busy, statistic: alerts, by: page, threshold: 30, epsilon: 0.5}}
"""
_T = TypeVar("_T")


def program(name: str) -> str:
    return shutil.which(name) or missing("prometheus", f"no {name}: apt install prometheus")


def until(look: Callable[[], _T | None], what: str) -> _T:
    end = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.1)
    return found


@contextmanager
def running(
    command: list[str], folder: Path, log: Path, more: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that says what it says into `log`, until the end of the test."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=said, env=os.environ | (more or {})
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@contextmanager
def served(folder: Path, pipeline: str) -> Iterator[str]:
    """The address of the page of a run in this folder, which is over and still served."""
    rows = [f"2026-01-01T{hour:02}:{minute:02}:00Z,{('home', 'help')[minute % 2]}"
            for hour in range(HORIZON) for minute in range(40)]  # fmt: skip
    (folder / "clicks.csv").write_text("\n".join(["time,page", *rows, ""]))
    (folder / "clicks.yaml").write_text(pipeline)
    (folder / "key").write_bytes(bytes(range(32)))
    (folder / "key").chmod(0o600)
    own = {
        "STREAM_DP_KEY_FILE": str(folder / "key"),
        "STREAM_DP_HOME": str(folder / "state"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "COLUMNS": "200",
    }
    command = [sys.executable, "-c", ENTRY, "run", "clicks.yaml", "--serve", "--port", "0"]
    log = folder / "said"
    with running(command, folder, log, own) as run:

        def address() -> str | None:
            assert run.poll() is None, log.read_text()
            found = re.search(r"The page is at http://(\S+)/", log.read_text())
            return found[1] if found else None

        yield until(address, "the page")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The page of a run that is over and still served, and the folder of its releases."""
    folder = tmp_path_factory.mktemp("clicks")
    with served(folder, PIPELINE) as address:
        yield address, folder


@pytest.fixture(scope="module")
def prometheus(
    page: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = documented("prometheus.yml").replace("15s", "3s").replace("127.0.0.1:8765", page[0])
    (folder / "prometheus.yml").write_text(
        f"global: {{evaluation_interval: 1s}}\n{config}rule_files: [stream_dp.rules.yml]\n"
    )
    (folder / "stream_dp.rules.yml").write_text(documented("stream_dp.rules.yml"))
    command = [program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
               f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]  # fmt: skip
    with (
        running(command, folder, folder / "said") as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=PATIENCE_S) as client,
    ):

        def ready() -> bool | None:
            assert process.poll() is None, (folder / "said").read_text()
            return bool(answer(client, "up == 1")) or None

        until(ready, "the first scrape")
        yield client


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a file that spends its whole budget."""
    folder = tmp_path_factory.mktemp("spent")
    with served(folder, PIPELINE.replace("epsilon: 3}", "epsilon: 1.5}")) as address:
        yield address


@pytest.mark.parametrize("rules", ["deployed", "documented"])
def test_no_alert_fires_on_a_normal_file(spent: str, rules: str, tmp_path: Path) -> None:
    """Every alert at once (`for: 0s`), evaluated each second on what the real program tells: none is even pending. The
    broken twin is a rule for what is normal.
    """
    text = DEPLOYED.read_text() if rules == "deployed" else documented("stream_dp.rules.yml")
    text = re.sub(r"for: \w+", "for: 0s", text)
    twin = 'stream_dp_budget_filter{kind="spent"} / ignoring(kind) stream_dp_budget_filter{kind="capacity"} > 0.9'
    text += f"\n      - {{alert: Twin, expr: '{twin}'}}\n"
    (tmp_path / "rules.yml").write_text(text)
    (tmp_path / "prometheus.yml").write_text(
        "global: {evaluation_interval: 1s, scrape_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n"
        f"  - {{job_name: stream_dp, static_configs: [{{targets: ['{spent}']}}]}}\n"
    )
    port = free_port()
    command = [program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
               f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]  # fmt: skip
    with (
        running(command, tmp_path, tmp_path / "said"),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=PATIENCE_S) as client,
    ):
        until(
            lambda: answer(client, 'count_over_time(up{job="stream_dp"}[1m]) >= 5') or None,
            "scrapes",
        )
        until(lambda: answer(client, 'ALERTS{alertname="Twin"}') or None, "the twin")
        ever = asked(client, "/query", query="count by (alertname) (count_over_time(ALERTS[1h]))")[
            "result"
        ]
        before = (
            "StreamDpNoEngine|StreamDpNothingScraped"  # before the first scrape there is no engine
        )
        assert {one["metric"]["alertname"] for one in ever} - {*before.split("|")} == {"Twin"}
        firing = asked(client, "/query", query='ALERTS{alertname!="Twin"}')["result"]
        assert firing == []


def documented(name: str) -> str:
    """A file as the documentation shows it."""
    (found,) = re.findall(
        rf"^```yaml\n# {re.escape(name)}\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL
    )
    return str(found)


def last_releases(folder: Path) -> dict[str, Any] | None:
    """The releases of the last tick by series, once all of them are there; what has no end yet is being written."""
    lines = (folder / "clicks.releases.jsonl").read_text().split("\n")[:-1]
    bodies = [json.loads(line) for line in lines]
    last = {body["series"]: body for body in bodies if body["tick"] == HORIZON - 1}
    return last if len(last) == 3 else None


def asked(client: httpx.Client, path: str, **parameters: str) -> Any:
    try:
        said = client.get(path, params=parameters)
    except httpx.TransportError:
        return None
    if said.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return None
    assert said.json()["status"] == "success", said.text
    return said.json()["data"]


def answer(client: httpx.Client, query: str) -> dict[tuple[str, ...], float]:
    """What Prometheus has: values by series, key and window."""
    said = asked(client, "/query", query=query) or {"result": ()}
    return {
        tuple(one["metric"].get(label, "") for label in ("series", "key", "window")): float(
            one["value"][1]
        )
        for one in said["result"]
    }


def until_it_has(client: httpx.Client, query: str, values: Mapping[Any, float]) -> None:
    """Wait until Prometheus has just these; a scrape that took too long may hide them for a while."""
    until(lambda: answer(client, query) == values or None, f"{query}: {values}")


def expected(last: dict[str, Any], what: str) -> dict[tuple[str, ...], float]:
    """The values of these releases, or their bands, as Prometheus should have them."""
    windows = last["clicks"]["windows"]
    counts = {("clicks", "", window): part[what] for window, part in windows.items()}
    pages = last["by_page"]
    by_page = {
        ("by_page", key, ""): pages["band"] if what == "band" else value
        for key, value in pages["values"].items()
    }
    return {key: float(value) for key, value in {**counts, **by_page}.items()}


def test_what_prometheus_has_is_what_was_released(
    page: tuple[str, Path], prometheus: httpx.Client
) -> None:
    last = until(lambda: last_releases(page[1]), "the last releases")
    values, bands = expected(last, "value"), expected(last, "band")
    assert len(values) == 6
    until_it_has(prometheus, "stream_dp_release_value", values)
    until_it_has(prometheus, "stream_dp_release_band", bands)
    low = {key: value - bands[key] for key, value in values.items()}
    until_it_has(prometheus, "stream_dp_release_value - stream_dp_release_band", low)
    fired = {("busy", key, ""): float(key in last["busy"]["fired"]) for key in PAGES}
    until_it_has(prometheus, "stream_dp_release_fired", fired)
    ticks = {(series, "", ""): HORIZON - 1.0 for series in last}
    until_it_has(prometheus, "stream_dp_release_tick", ticks)
    until_it_has(prometheus, 'stream_dp_budget_epsilon{kind="total"}', {("", "", ""): 3.0})
    spent = 'stream_dp_budget_filter{kind="spent"}'
    capacity = 'stream_dp_budget_filter{kind="capacity"}'
    until_it_has(prometheus, f"{spent} / ignoring(kind) {capacity}", {("", "", ""): 0.5})


def test_the_documented_queries_and_rules_are_understood(prometheus: httpx.Client) -> None:
    queries = re.findall(r"^    (stream_dp\S.*?)(?:  +#.*)?$", DOCS.read_text(), re.MULTILINE)
    assert len(queries) == 5
    for query in queries:
        answer(prometheus, query)

    def evaluated() -> list[str] | None:
        (group,) = asked(prometheus, "/rules")["groups"]
        return [rule["health"] for rule in group["rules"]] if group["evaluationTime"] else None

    assert {*until(evaluated, "the rules")} == {"ok"}


def test_promtool_has_nothing_to_say(page: tuple[str, Path], tmp_path: Path) -> None:
    text = httpx.get(f"http://{page[0]}/metrics", timeout=PATIENCE_S).content
    assert len([*text_string_to_metric_families(text.decode())]) > 10
    promtool = program("promtool")
    linted = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, b"", b"")
    bad = text + b"stream_dp_release_fired_ticks 1\n"
    twin = subprocess.run(
        [promtool, "check", "metrics"], input=bad, capture_output=True, check=False
    )
    assert twin.returncode != 0
    for kind, name in (("config", "prometheus.yml"), ("rules", "stream_dp.rules.yml")):
        (tmp_path / name).write_text(documented(name))
        checked = subprocess.run(
            [promtool, "check", kind, name], cwd=tmp_path, capture_output=True, check=False
        )
        assert checked.returncode == 0, checked
