"""deploy/kubernetes: manifests that Kubernetes' own schemas accept, of pods that are confined, watched and ended well.

Rules: no cluster here; the schemas are those of the package kubernetes-validate. Each check is shown a broken manifest.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from deploy.deploy_files import DEPLOY, ENDS_WITHIN_S, mutated, unknown_words

from stream_dp.pipeline.yaml import load

FOLDER = DEPLOY / "kubernetes"
LISTED = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
FILES = {name: (FOLDER / name).read_text() for name in LISTED}
VERSIONS = ("1.30", "1.34")
CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
Manifests = list[dict[str, Any]]


def parsed(files: Mapping[str, str]) -> Manifests:
    return [one for text in files.values() for one in yaml.safe_load_all(text)]


def of_kind(manifests: Manifests, kind: str) -> Manifests:
    return [one for one in manifests if one["kind"] == kind]


def the_pod(manifests: Manifests) -> dict[str, Any]:
    (found,) = of_kind(manifests, "StatefulSet")
    template: dict[str, Any] = found["spec"]["template"]
    return template


def engine(manifests: Manifests) -> dict[str, Any]:
    (found,) = the_pod(manifests)["spec"]["containers"]
    container: dict[str, Any] = found
    return container


def against_schemas(manifests: Manifests) -> Iterator[str]:
    for version in VERSIONS:
        for one in manifests:
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{version} {one['kind']}: {error.message}"


def confined(manifests: Manifests) -> Iterator[str]:
    """What a pod may do that it need not: the standard `restricted`, and more."""
    pod = the_pod(manifests)["spec"]
    rights = pod["securityContext"]
    if not rights.get("runAsNonRoot") or rights.get("runAsUser", 0) < 1000:
        yield "runs as root"
    if rights.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    if pod.get("automountServiceAccountToken") is not False:
        yield "has a token for the cluster"
    for one in [*pod["containers"], *pod["initContainers"]]:
        if one.get("securityContext") != CONFINED:
            yield f"{one['name']}: {one.get('securityContext')}"
        pinned = re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+", one["image"])
        if not pinned or "memory" not in one["resources"]["limits"]:
            yield f"{one['name']}: image without a version, or memory without a limit"
    (namespace,) = of_kind(manifests, "Namespace")
    if namespace["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted":
        yield "the namespace takes any pod"
    if not of_kind(manifests, "NetworkPolicy"):
        yield "no network policy"


def secrets(manifests: Manifests) -> Iterator[str]:
    """Keys where they do not belong, or that the engine would refuse."""
    yield from (f"a secret: {one['metadata']}" for one in of_kind(manifests, "Secret"))
    pod = the_pod(manifests)["spec"]
    if any("env" in one or "envFrom" in one for one in pod["containers"]):
        yield "an environment: look whether it holds a secret"
    (first,) = pod["initContainers"]
    if first["command"][:3] != ["install", "-m", "0600"]:
        yield "the key keeps the rights of a mounted secret, which the engine refuses"
    mounts = {mount["name"]: mount["mountPath"] for mount in engine(manifests)["volumeMounts"]}
    args = engine(manifests)["args"]
    token = args[args.index("--operator-token-file") + 1]
    if f"/mounted/{token.rpartition('/')[2]}" not in first["command"]:
        yield "the figures have no token"
    if not first["command"][-1].startswith(f"{mounts.get('key')}/") or "mounted-key" in mounts:
        yield "the engine does not get its own copy"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    if volumes["key"].get("emptyDir", {}).get("medium") != "Memory":
        yield "the key's copy lies on a disk"


def life(manifests: Manifests) -> Iterator[str]:
    container, pod = engine(manifests), the_pod(manifests)["spec"]
    yield from (f"no {word}" for word in unknown_words(container["args"]))
    if container["args"][container["args"].index("--log-format") + 1] != "json":
        yield "logs for people"
    if "--standby" not in container["args"]:
        yield "two engines take over from each other"
    if pod["terminationGracePeriodSeconds"] < ENDS_WITHIN_S:
        yield "is killed before it has ended"
    ready = container["readinessProbe"].get("httpGet", {})
    host = {header["name"]: header["value"] for header in ready.get("httpHeaders", [])}
    if ready.get("path") != "/healthz" or host != {"Host": "localhost"}:
        yield "the probe of readiness is not answered"
    for probe in ("startupProbe", "livenessProbe"):
        command = container[probe].get("exec", {}).get("command")
        if command != ["python", "/opt/stream-dp/healthz.py"]:
            yield f"{probe}: would end a standby"
    (sets,) = of_kind(manifests, "StatefulSet")
    if sets["spec"]["podManagementPolicy"] != "Parallel":
        yield "waits until a standby is ready"
    claims = [one["metadata"]["name"] for one in sets["spec"]["volumeClaimTemplates"]]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    if mounts.get("/var/lib/stream-dp") not in claims:
        yield "its high-water mark goes with the pod"
    if {*mounts.values()} - {*claims} - {v["name"] for v in pod["volumes"]}:
        yield "a volume that is not there"


def joined(manifests: Manifests) -> Iterator[str]:
    """What does not fit together: selectors, names, ports."""
    labels = the_pod(manifests)["metadata"]["labels"]
    (sets,) = of_kind(manifests, "StatefulSet")
    selectors = [one["spec"]["selector"] for one in of_kind(manifests, "Service")]
    matched = [one["spec"]["selector"] for one in of_kind(manifests, "PodDisruptionBudget")]
    matched += [one["spec"]["podSelector"] for one in of_kind(manifests, "NetworkPolicy")]
    selectors += [one["matchLabels"] for one in [*matched, sets["spec"]["selector"]]]
    yield from (f"selects nothing: {one}" for one in selectors if one != labels)
    names = {one["metadata"]["name"] for one in of_kind(manifests, "Service")}
    if sets["spec"]["serviceName"] not in names:
        yield "its service is not there"
    args = engine(manifests)["args"]
    called = {args[at + 1] for at, word in enumerate(args) if word == "--allow-host"}
    if not names & called:
        yield "it does not answer to the name of its service"
    (policy,) = of_kind(manifests, "NetworkPolicy")
    ports = {one["name"]: one["containerPort"] for one in engine(manifests)["ports"]}
    readers, operators = policy["spec"]["ingress"]
    for rule, name, label in ((readers, "http", "reads"), (operators, "operator", "operates")):
        (inside,) = rule["from"]
        if rule["ports"] != [{"protocol": "TCP", "port": ports[name]}]:
            yield f"the network lets nobody come to {name}"
        if inside["namespaceSelector"]["matchLabels"] != {f"stream-dp/{label}": "yes"}:
            yield f"others come to {name}"


def pipelines(manifests: Manifests, folder: Path) -> Iterator[str]:
    """What is wrong with the pipeline that is mounted: its file, its brokers."""
    (found,) = of_kind(manifests, "ConfigMap")
    name = engine(manifests)["args"][1]
    if name not in found["data"]:
        yield f"no {name}"
        return
    file = folder / "pipeline.yaml"
    file.write_text(found["data"][name])
    spec: Any = load(file)
    brokers = "kafka-bootstrap.kafka.svc:9092"
    (policy,) = of_kind(manifests, "NetworkPolicy")
    reached = yaml.safe_dump(policy["spec"]["egress"])
    allowed = "port: 9092" in reached and ": kafka\n" in reached
    if spec.source.bootstrap != brokers or not allowed:
        yield "its brokers cannot be reached"
    compose = "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    ours = mutated((DEPLOY / "orders.yaml").read_text(), compose, brokers)
    if yaml.safe_load(ours) != yaml.safe_load(found["data"][name]):
        yield "it is another one than that of compose.yaml"


CHECKS = (against_schemas, confined, secrets, life, joined)


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_well(check: Callable[[Manifests], Iterator[str]]) -> None:
    assert list(check(parsed(FILES))) == []


def test_the_pipeline_is_one(tmp_path: Path) -> None:
    assert list(pipelines(parsed(FILES), tmp_path)) == []
    for file, old, new in (
        ("configuration.yaml", "pipeline.yaml:", "orders.yaml:"),
        ("configuration.yaml", ".svc:9092", ".svc:9093"),
        ("configuration.yaml", "epsilon: 0.2", "epsilon: 0.3"),
        ("network.yaml", "port: 9092", "port: 9094"),
    ):
        broken = {**FILES, file: mutated(FILES[file], old, new)}
        assert list(pipelines(parsed(broken), tmp_path)) != []


@pytest.mark.parametrize(
    ("check", "file", "old", "new"),
    [
        (against_schemas, "engine.yaml", "readOnlyRootFilesystem", "readOnlyFilesystem"),
        (against_schemas, "service.yaml", "targetPort: http", "target: http"),
        (confined, "engine.yaml", "runAsNonRoot: true", "runAsNonRoot: false"),
        (confined, "engine.yaml", "drop: [ALL]", "drop: []"),
        (confined, "engine.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true"),
        (confined, "engine.yaml", "image: stream-dp:0.1.0", "image: stream-dp:latest"),
        (confined, "namespace.yaml", "restricted", "privileged"),
        (confined, "network.yaml", "kind: NetworkPolicy", "kind: Policy"),
        (secrets, "configuration.yaml", "kind: ConfigMap", "kind: Secret"),
        (secrets, "engine.yaml", '"0600"', '"0640"'),
        (secrets, "engine.yaml", "medium: Memory, ", ""),
        (life, "engine.yaml", "--standby, ", ""),
        (life, "engine.yaml", "--allow-host, orders,", "--allow, orders,"),
        (life, "engine.yaml", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 5"),
        (life, "engine.yaml", "podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady"),
        (life, "engine.yaml", "name: state, mountPath", "name: tmp, mountPath"),
        (life, "engine.yaml", "healthz.py]}\n            periodSeconds: 30", "healthz.py, --ready]}"),
        (joined, "service.yaml", "app.kubernetes.io/instance: orders", "app.kubernetes.io/instance: order"),
        (joined, "engine.yaml", "--allow-host, orders,", "--allow-host, order,"),
        (joined, "network.yaml", "port: 8765", "port: 8080"),
        (joined, "network.yaml", "stream-dp/operates: ", "stream-dp/reads: "),
        (secrets, "engine.yaml", "/mounted/figures.token, ", ""),
        (life, "engine.yaml", "--log-format, json", "--log-format, text"),
    ],
)  # fmt: skip
def test_a_broken_manifest_is_noticed(
    check: Callable[[Manifests], Iterator[str]], file: str, old: str, new: str
) -> None:
    assert list(check(parsed({**FILES, file: mutated(FILES[file], old, new)}))) != []


def test_every_file_is_listed() -> None:
    there = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert there == set(LISTED)


WORKERS = (FOLDER / "workers" / "workers.yaml").read_text()


def workers(text: str = WORKERS) -> Iterator[str]:
    """What is wrong with the workers, beside the engine's manifests."""
    manifests, beside = list(yaml.safe_load_all(text)), parsed(FILES)
    yield from against_schemas(manifests)
    deployed, policy = manifests
    as_engine = {**deployed, "kind": "StatefulSet"}
    yield from confined([as_engine, policy, *of_kind(beside, "Namespace")])
    template = deployed["spec"]["template"]
    yield from worker_pod(template["spec"])
    (container,) = template["spec"]["containers"]
    yield from (f"no {word}" for word in unknown_words(container["args"]))
    if container["args"][:2] != ["worker", engine(beside)["args"][1]]:
        yield "it is no worker of the engine's file"
    labels = template["metadata"]["labels"]
    selectors = (deployed["spec"]["selector"], policy["spec"]["podSelector"])
    yield from (f"selects {one}" for one in selectors if one["matchLabels"] != labels)
    if labels == the_pod(beside)["metadata"]["labels"]:
        yield "the service and the policy of the engine take it for one"
    if policy["spec"].get("ingress") or "Ingress" not in policy["spec"]["policyTypes"]:
        yield "others come to it"
    (ours,) = of_kind(beside, "NetworkPolicy")
    if policy["spec"]["egress"] != ours["spec"]["egress"]:
        yield "it reaches others than the engine does"


def worker_pod(pod: dict[str, Any]) -> Iterator[str]:
    """What is wrong with what a worker has."""
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (configured,) = of_kind(parsed(FILES), "ConfigMap")
    if volumes["pipeline"]["configMap"]["name"] != configured["metadata"]["name"]:
        yield "it has another pipeline"
    if volumes["mounted-key"]["secret"]["secretName"] == "orders-key":
        yield "it has the operator's key"
    (first,) = pod["initContainers"]
    if first["command"][:3] != ["install", "-m", "0600"]:
        yield "the key keeps the rights of a mounted secret"
    if volumes["key"].get("emptyDir", {}).get("medium") != "Memory":
        yield "the key's copy lies on a disk"
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    if mounts - volumes.keys() or "mounted-key" in mounts:
        yield "a volume that is not there, or the mounted secret itself"
    if pod["terminationGracePeriodSeconds"] < ENDS_WITHIN_S:
        yield "is killed before it has ended"


def test_workers_are_well() -> None:
    assert list(workers()) == []
    listed = yaml.safe_load((FOLDER / "workers" / "kustomization.yaml").read_text())
    assert listed["resources"] == ["workers.yaml"]
    assert (
        listed["namespace"]
        == yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["namespace"]
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("replicas: 3", "replica: 3"),
        ("args: [worker, ", "args: [workers, "),
        ("pipeline.yaml]", "orders.yaml]"),
        ("runAsNonRoot: true", "runAsNonRoot: false"),
        ("secretName: orders-worker-key", "secretName: orders-key"),
        ('"0600"', '"0640"'),
        ("medium: Memory, ", ""),
        ("matchLabels: {app.kubernetes.io/name: stream-dp-worker", "matchLabels: {app: worker"),
        ("policyTypes: [Ingress, Egress]", "policyTypes: [Egress]"),
        ("port: 9092", "port: 9093"),
        ("configMap: {name: orders}", "configMap: {name: order}"),
        ("{name: tmp, mountPath", "{name: temp, mountPath"),
        ("terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 5"),
        ("image: stream-dp:0.1.0", "image: stream-dp:latest"),
    ],
)
def test_broken_workers_are_noticed(old: str, new: str) -> None:
    assert list(workers(mutated(WORKERS, old, new))) != []
