"""deploy/helm: the chart gives manifests that Kubernetes accepts, as confined, watched and joined as deploy/kubernetes.

Rules: `helm` is no package of the lock. What it rendered is committed with the digest of the chart, so the rules are
tried on it everywhere, and a chart that was changed without rendering it again is noticed. Where `helm` is there, it
lints the chart, and renders what is committed: `python tests/deploy/test_helm.py` writes it.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.deploy_files import DEPLOY, ROOT, mutated, unknown_words
from deploy.test_kubernetes import (
    FILES,
    Manifests,
    against_schemas,
    confined,
    engine,
    joined,
    life,
    of_kind,
    pipelines,
    secrets,
    the_pod,
)

from stream_dp.pipeline.yaml import load_as
from stream_dp.server.access import Access
from stream_dp.testing.kafka import missing

CHART = DEPLOY / "helm"
RENDERED = Path(__file__).with_name("helm_rendered.yaml")
ALONE = """\
standby: false
access: |
  reads: known
  proxy: {header: X-Forwarded-Email, from: [10.1.0.0/16], readers: ["*"]}
tokensSecret: orders-tokens
keySecret: other
hosts: [stats.example.org]
serviceMonitor: {enabled: true, tokenSecret: scraper}
"""
"""Values of another release than the default: one pod, closed reading, the Prometheus operator."""
CHECKS = (against_schemas, confined, secrets, life, joined)
TEXT = RENDERED.read_text() if RENDERED.exists() else "# \n--- default\n--- alone\n"


def digest() -> str:
    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    parts = [f"{path.relative_to(CHART)}\n{path.read_text()}" for path in files]
    return hashlib.sha256("\n".join([*parts, ALONE]).encode()).hexdigest()


def helm(*arguments: str, values: str = "") -> subprocess.CompletedProcess[str]:
    command = ["helm", *arguments, str(CHART), *(["--values", "-"] if values else [])]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False)


def rendered() -> str:
    """Return what `helm` makes of the chart, with the default values and with `ALONE`."""
    parts = [
        helm("template", "orders", "--namespace", "stream-dp", values=values).stdout
        for values in ("", ALONE)
    ]
    return f"# sha256 of the chart: {digest()}\n# default\n{parts[0]}# alone\n{parts[1]}"


def releases(text: str = TEXT) -> tuple[Manifests, Manifests]:
    default, _, alone = text.partition("# alone\n")
    found = [
        [one for one in yaml.safe_load_all(part) if one is not None] for part in (default, alone)
    ]
    namespace = yaml.safe_load(
        FILES["namespace.yaml"]
    )  # it is the cluster's, and no part of the chart
    return [*found[0], namespace], [*found[1], namespace]


def test_what_is_committed_is_of_this_chart() -> None:
    assert TEXT.startswith(f"# sha256 of the chart: {digest()}\n"), (
        "render it: python tests/deploy/test_helm.py"
    )


def test_helm_is_content_and_renders_what_is_committed() -> None:
    if shutil.which("helm") is None:
        missing("helm", "no helm")
    for values in ("", ALONE):
        linted = helm("lint", "--strict", values=values)
        assert linted.returncode == 0, linted.stdout
    assert rendered() == TEXT
    assert helm("lint", "--strict", values="pipeline: {a: 1}\nhosts: 1").returncode != 0


def test_the_versions_are_the_packages() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert {one["image"] for one in the_pod(releases()[0])["spec"]["containers"]} == {
        f"stream-dp:{version}"
    }


def test_every_value_is_known_and_used() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    templates = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert set(re.findall(r"\.Values\.(\w+)", templates)) == {*values}
    for part in ("image", "storage", "networkPolicy", "serviceMonitor"):
        assert all(f".{key}" in templates for key in values[part])


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_well(check: Callable[[Manifests], Iterator[str]]) -> None:
    assert list(check(releases()[0])) == []


def test_the_pipeline_is_that_of_the_manifests(tmp_path: Path) -> None:
    default, _ = releases()
    assert list(pipelines(default, tmp_path)) == []


def differences() -> list[str]:
    """Where the StatefulSet differs from that of deploy/kubernetes: paths of keys."""

    def paths(one: Any, at: str = "") -> set[tuple[str, str]]:
        if isinstance(one, dict):
            return {found for key in one for found in paths(one[key], f"{at}.{key}")}
        if isinstance(one, list):
            return {found for item in one for found in paths(item, at)}
        return {(at, str(one))}

    (mine,) = of_kind(releases()[0], "StatefulSet")
    theirs = yaml.safe_load_all(FILES["engine.yaml"])
    return sorted({at for at, _ in paths(mine) ^ paths(next(theirs))})


def test_the_pods_are_those_of_the_manifests() -> None:
    assert differences() == [".spec.template.metadata.annotations.checksum/configuration"]


def test_one_pod_with_closed_reading(tmp_path: Path) -> None:
    _, alone = releases()
    (sets,) = of_kind(alone, "StatefulSet")
    assert sets["spec"]["replicas"] == 1
    assert of_kind(alone, "PodDisruptionBudget") == []
    container, pod = engine(alone), the_pod(alone)["spec"]
    assert "--standby" not in container["args"]
    assert unknown_words(container["args"]) == []
    monitored = of_kind(alone, "ServiceMonitor")
    plain = [one for one in alone if one not in monitored]
    assert list(against_schemas(plain)) == []
    assert list(confined(alone)) == []
    (configured,) = of_kind(alone, "ConfigMap")
    named = container["args"][container["args"].index("--access") + 1]
    (tmp_path / named).write_text(configured["data"][named])
    assert load_as(tmp_path / named, Access).reads == "known"
    volumes = {
        volume["name"]: volume.get("secret", {}).get("secretName") for volume in pod["volumes"]
    }
    assert (volumes["tokens"], volumes["mounted-key"]) == ("orders-tokens", "other")
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert environment["STREAM_DP_TOKEN_LIST"] == f"{mounts['tokens']}/tokens"
    assert {"stats.example.org", "$(POD_IP)"} <= {*container["args"]}
    assert "POD_IP" in environment
    (monitor,) = monitored
    pages = [one for one in of_kind(alone, "Service")
             if monitor["spec"]["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()]  # fmt: skip
    assert [one["metadata"]["name"] for one in pages] == ["orders"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "scraper", "key": "token"}}


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (against_schemas, "replicas: 2", "replica: 2"),
        (confined, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
        (life, "- --standby", "- --serve"),
        (joined, '- "orders"', '- "order"'),
        (secrets, '"0600"', '"0640"'),
    ],
)
def test_a_broken_chart_is_noticed(
    check: Callable[[Manifests], Iterator[str]], old: str, new: str
) -> None:
    assert list(check(releases(mutated(TEXT, old, new))[0])) != []


if __name__ == "__main__":
    sys.stdout.write(f"{RENDERED.write_text(rendered())} bytes\n")
