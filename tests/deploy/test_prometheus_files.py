"""deploy/prometheus: promtool reads it, each alert rings where it must, and all names are told by /metrics."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from deploy.deploy_files import DEPLOY, mutated

from stream_dp.server.metrics import CONFIGURED, RELEASED
from stream_dp.testing.kafka import missing

pytestmark = pytest.mark.prometheus
CONFIGURATION = (DEPLOY / "prometheus" / "prometheus.yaml").read_text()
OPERATOR = (DEPLOY / "prometheus" / "operator.yaml").read_text()
ALERTMANAGER = (DEPLOY / "prometheus" / "alertmanager.yaml").read_text()
RULES = (DEPLOY / "prometheus" / "alerts.yaml").read_text()
CASES = (Path(__file__).parent / "alerts_test.yaml").read_text()


def promtool(folder: Path, *arguments: str) -> str:
    if shutil.which("promtool") is None:
        missing("prometheus", "no promtool")
    command = ["promtool", *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


def checked(folder: Path, configuration: str = CONFIGURATION, rules: str = RULES) -> str:
    (folder / "prometheus.yaml").write_text(configuration)
    (folder / "alerts.yaml").write_text(rules)
    return promtool(folder, "check", "config", "prometheus.yaml")


def tried(folder: Path, rules: str = RULES) -> str:
    (folder / "alerts.yaml").write_text(rules)
    (folder / "cases.yaml").write_text(CASES)
    return promtool(folder, "test", "rules", "cases.yaml")


def unknown(rules: str) -> set[str]:
    return set(re.findall(r"stream_dp_\w+", expressions(rules))) - {*CONFIGURED, *RELEASED}


def expressions(rules: str) -> str:
    """All that is asked, but for names of jobs."""
    found = [rule["expr"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
    return "\n".join(found)


def unrouted(alertmanager: str) -> Iterator[str]:
    """What is wrong with who is told: severities that lead nowhere, receivers that are not there or tell nobody."""
    read = yaml.safe_load(alertmanager)
    receivers = {one["name"]: one for one in read["receivers"]}
    routes = {
        match: route["receiver"] for route in read["route"]["routes"] for match in route["matchers"]
    }
    rules = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
    severities = {rule["labels"]["severity"] for rule in rules}
    yield from (
        f"no {name}"
        for name in [read["route"]["receiver"], *routes.values()]
        if name not in receivers
    )
    for severity in severities - {"info"}:
        receiver = receivers.get(routes.get(f'severity="{severity}"', ""), {})
        if not receiver.get("webhook_configs"):
            yield f"{severity} is told to nobody"
    named = re.findall('alertname="(.*?)"', yaml.safe_dump(read["inhibit_rules"]))
    yield from (
        f"no alert {name}" for name in named if name not in {rule["alert"] for rule in rules}
    )
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    target = yaml.safe_load(CONFIGURATION)["alerting"]["alertmanagers"][0]["static_configs"][0][
        "targets"
    ][0]
    service = compose["services"].get(target.partition(":")[0], {})
    if "watched" not in service.get("networks", []) or not str(service["ports"][0]).endswith(
        target.partition(":")[2]
    ):
        yield "Prometheus cannot reach it"


def untried(rules: str) -> Iterator[str]:
    for group in yaml.safe_load(rules)["groups"]:
        yield from (rule["alert"] for rule in group["rules"] if rule["alert"] not in CASES)


def test_promtool_is_content(tmp_path: Path) -> None:
    assert checked(tmp_path) == ""
    assert checked(tmp_path, mutated(CONFIGURATION, "scrape_interval", "scraping_interval")) != ""
    assert checked(tmp_path, rules=mutated(RULES, "sum by (job) (", "sum by (job) ((")) != ""


def test_promtool_is_content_with_the_operators_scraping(tmp_path: Path) -> None:
    for text, well in (
        (OPERATOR, True),
        (mutated(OPERATOR, "authorization", "authorisation"), False),
    ):
        (tmp_path / "operator.yaml").write_text(text)
        said = promtool(tmp_path, "check", "config", "--syntax-only", "operator.yaml")
        assert (said == "") is well


def test_each_alert_rings_where_it_must_and_nowhere_else(tmp_path: Path) -> None:
    assert tried(tmp_path) == ""
    assert list(untried(RULES)) == []


def test_each_severity_is_told_to_somebody(tmp_path: Path) -> None:
    assert list(unrouted(ALERTMANAGER)) == []
    for old, new in (
        ('severity="ticket"', 'severity="tickets"'), ("receiver: pager", "receiver: pagers"),
        ("name: tickets\n    webhook_configs", "name: tickets\n    mail_configs"), ("StreamDpLate", "StreamDpSlow"),
    ):  # fmt: skip
        assert list(unrouted(mutated(ALERTMANAGER, old, new))) != []
    if shutil.which("amtool") is not None:
        (tmp_path / "alertmanager.yaml").write_text(ALERTMANAGER)
        command = ["amtool", "check-config", str(tmp_path / "alertmanager.yaml")]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('sum by (job) (up{job="stream_dp"}) == 0', 'up{job="stream_dp"} == 0'),
        ("> 60", "> 6000"),
        ("> 0.9", "> 0.99"),
        ('and ignoring(kind) changes(stream_dp_budget_filter{kind="spent"}[1d]) > 0', ""),
        ("not_private == 1", "not_private == 0"),
    ],
)
def test_a_broken_rule_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    assert tried(tmp_path, mutated(RULES, old, new)) != ""


def test_the_rules_name_what_is_told() -> None:
    assert unknown(RULES) == set()
    other = mutated(RULES, "stream_dp_catching_up)", "stream_dp_behind)")
    assert unknown(other) == {"stream_dp_behind"}
