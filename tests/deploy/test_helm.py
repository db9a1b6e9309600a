"""deploy/helm: the chart gives manifests that Kubernetes accepts, as confined, watched and joined as deploy/kubernetes.

Rules: `helm` is no package of the lock. What it rendered is committed with the digest of the chart, so the rules are
tried on it everywhere, and a chart that was changed without rendering it again is noticed. Where `helm` is there, it
lints the chart, and renders what is committed: `python tests/deploy/test_helm.py` writes it. Where kubeconform is
there, it judges that as well, by the schemas of kubernetes-validate.
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

import kubernetes_validate
import pytest
import yaml
from deploy.deploy_files import DEPLOY, ROOT, mutated, unknown_words
from deploy.test_kubernetes import (
    FILES,
    VERSIONS,
    WORKERS,
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
    workers,
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
SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
BY_WORKERS = mutated(VALUES["pipeline"], "topic: ", "workers: {lanes: 12}, topic: ")
SQLITE = BY_WORKERS + "journal: {kind: sqlite, path: journal.db}\n"


def with_workers(pipeline: str = BY_WORKERS, **given: Any) -> str:
    return yaml.safe_dump({"pipeline": pipeline, "workers": {"replicas": 3, **given}})


RELEASES = {"default": "", "alone": ALONE, "workers": with_workers()}
REFUSED = {
    "no workers in the file": with_workers(VALUES["pipeline"]),
    "a SQLite journal": with_workers(SQLITE),
    "the operator's key": with_workers(keySecret="orders-key"),
    "no number": with_workers(replicas="many"),
    "a negative number": with_workers(replicas=-1),
}
CHECKS = (against_schemas, confined, secrets, life, joined)
TEXT = RENDERED.read_text() if RENDERED.exists() else ""


def digest() -> str:
    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    parts = [f"{path.relative_to(CHART)}\n{path.read_text()}" for path in files]
    given = [*RELEASES.values(), *REFUSED.values()]
    return hashlib.sha256("\n".join([*parts, *given]).encode()).hexdigest()


def helm(*arguments: str, values: str = "") -> subprocess.CompletedProcess[str]:
    command = ["helm", *arguments, str(CHART), *(["--values", "-"] if values else [])]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False)


def template(values: str) -> subprocess.CompletedProcess[str]:
    return helm("template", "orders", "--namespace", "stream-dp", values=values)


def rendered() -> str:
    """Return what `helm` makes of the chart, and what it says where it refuses."""
    parts = [f"# sha256 of the chart: {digest()}\n"]
    parts += [f"## {name}\n{template(values).stdout}" for name, values in RELEASES.items()]
    for name, values in REFUSED.items():
        refused = template(values)
        assert refused.returncode != 0
        [said] = [line for line in refused.stderr.splitlines() if "Error: " in line]
        parts.append(f"## refused: {name}: {said.partition('): ')[2]}\n")
    return "".join(parts)


def release(name: str = "default", text: str = TEXT) -> Manifests:
    _, _, behind = text.partition(f"\n## {name}\n")
    found = [one for one in yaml.safe_load_all(behind.partition("\n## ")[0]) if one is not None]
    # the namespace is the cluster's, and no part of the chart
    return [*found, yaml.safe_load(FILES["namespace.yaml"])]


def test_what_is_committed_is_of_this_chart() -> None:
    assert TEXT.startswith(f"# sha256 of the chart: {digest()}\n"), (
        "render it: python tests/deploy/test_helm.py"
    )


def test_helm_is_content_and_renders_what_is_committed() -> None:
    if shutil.which("helm") is None:
        missing("helm", "no helm")
    for values in RELEASES.values():
        linted = helm("lint", "--strict", values=values)
        assert linted.returncode == 0, linted.stdout
    assert rendered() == TEXT
    assert helm("lint", "--strict", values="pipeline: {a: 1}\nhosts: 1").returncode != 0


def test_kubeconform_is_content(tmp_path: Path) -> None:
    if shutil.which("kubeconform") is None:
        missing("kubeconform", "no kubeconform")
    told = [one for name in RELEASES for one in release(name) if one["kind"] != "ServiceMonitor"]
    named = ("_definitions", *{one["kind"].lower() + "-" for one in told})
    definitions = tmp_path / "_definitions.json"
    form = str(tmp_path / "{{.ResourceKind}}{{.KindSuffix}}.json")
    for version in VERSIONS:
        folder = SCHEMAS / f"v{version}.0-local-strict"
        for path in (path for path in folder.iterdir() if path.name.startswith(named)):
            text = path.read_text().replace("/api/_definitions.json", definitions.as_uri())
            (tmp_path / path.name).write_text(text)
        broken = mutated(WORKERS, "replicas: 3", "replica: 3")
        for text, well in ((yaml.safe_dump_all(told), True), (WORKERS, True), (broken, False)):
            command = ["kubeconform", "-strict", "-schema-location", form]
            judged = subprocess.run(
                command, input=text, capture_output=True, text=True, check=False
            )
            assert (judged.returncode == 0) is well, judged.stdout
            assert well or "'replica'" in judged.stdout


def test_what_does_not_fit_together_is_refused_in_words() -> None:
    said = dict(re.findall("^## refused: (.+?): (.+)$", TEXT, re.MULTILINE))
    assert said.keys() == REFUSED.keys()
    told = "Give its source `workers: {lanes: N}`", "a SQLite journal", "opens the journal", "many"
    for words, text in zip(told, said.values(), strict=False):
        assert words in text
        assert "workers." in text


def test_the_versions_are_the_packages() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert {one["image"] for one in the_pod(release())["spec"]["containers"]} == {
        f"stream-dp:{version}"
    }


def test_every_value_is_known_and_used() -> None:
    templates = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert set(re.findall(r"\.Values\.(\w+)", templates)) == {*VALUES}
    for part in ("image", "storage", "networkPolicy", "serviceMonitor", "workers"):
        assert all(f".{key}" in templates for key in VALUES[part])


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_well(check: Callable[[Manifests], Iterator[str]]) -> None:
    assert list(check(release())) == []


def test_the_workers_are_those_of_the_manifests() -> None:
    there = release("workers")
    (deployed,) = of_kind(there, "Deployment")
    [policy] = [one for one in of_kind(there, "NetworkPolicy") if "workers" in str(one["metadata"])]
    assert list(workers(yaml.safe_dump_all([deployed, policy]))) == []
    assert differences(deployed, next(yaml.safe_load_all(WORKERS))) == [CHECKSUM]
    assert not [one for one in release() if "workers" in one["metadata"]["name"]]
    rest = [one for one in there if one not in (deployed, policy)]
    assert [one["kind"] for one in rest] == [one["kind"] for one in release()]
    (configured,) = of_kind(there, "ConfigMap")
    assert "workers: {lanes: 12}" in configured["data"]["pipeline.yaml"]


def test_the_pipeline_is_that_of_the_manifests(tmp_path: Path) -> None:
    assert list(pipelines(release(), tmp_path)) == []


CHECKSUM = ".spec.template.metadata.annotations.checksum/configuration"


def differences(mine: Any, theirs: Any) -> list[str]:
    """Where a set of pods differs from that of deploy/kubernetes: paths of keys."""

    def paths(one: Any, at: str = "") -> set[tuple[str, str]]:
        if isinstance(one, dict):
            return {found for key in one for found in paths(one[key], f"{at}.{key}")}
        if isinstance(one, list):
            return {found for item in one for found in paths(item, at)}
        return {(at, str(one))}

    return sorted({at for at, _ in paths(mine) ^ paths(theirs)})


def test_the_pods_are_those_of_the_manifests() -> None:
    (mine,) = of_kind(release(), "StatefulSet")
    assert differences(mine, next(yaml.safe_load_all(FILES["engine.yaml"]))) == [CHECKSUM]


def test_one_pod_with_closed_reading(tmp_path: Path) -> None:
    alone = release("alone")
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
    assert list(check(release(text=mutated(TEXT, old, new)))) != []


if __name__ == "__main__":
    sys.stdout.write(f"{RENDERED.write_text(rendered())} bytes\n")
