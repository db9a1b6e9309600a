"""deploy/grafana: dashboards ask for metrics and addresses that exist, of data sources that are provisioned.

Rules: no Grafana here. Names are compared with what /metrics tells, addresses with docs/openapi.json; each check is
shown a broken file.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from deploy.deploy_files import DEPLOY, ROOT, mutated

from stream_dp.server.metrics import CONFIGURED, RELEASED, Described

GRAFANA = DEPLOY / "grafana"
BOARDS = {path.name: path.read_text() for path in sorted((GRAFANA / "dashboards").glob("*.json"))}
SOURCES = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "stream_dp.yaml").read_text())
PROVIDERS = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "stream_dp.yaml").read_text())
API = json.loads((ROOT / "docs" / "openapi.json").read_text())
TOLD: dict[str, Described] = {**CONFIGURED, **RELEASED}
_SELECTOR = re.compile(r"(stream_dp_\w+)(?:\{([^}]*)\})?")


def targets(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield from panel["targets"]


def asked(board: dict[str, Any]) -> Iterator[str]:
    yield from (target["expr"] for target in targets(board) if "expr" in target)
    variables = [one for one in board["templating"]["list"] if one["type"] == "query"]
    yield from (one["query"]["query"] for one in variables)


def metrics(board: dict[str, Any]) -> Iterator[str]:
    for query in asked(board):
        for name, selector in _SELECTOR.findall(query):
            known = ("pipeline", *TOLD[name].labels) if name in TOLD else ()
            labels = re.findall(r"(\w+)(?:=~|!~|!=|=)", selector)
            yield from (f"{name} {label}" for label in labels if label not in known)
            if name not in TOLD:
                yield name
        for label in re.findall(r"label_values\([^)]*, (\w+)\)", query):
            if not any(label in TOLD[name].labels for name, _ in _SELECTOR.findall(query)):
                yield f"{query}: no label {label}"


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = API["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def choices(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found = resolve(schema)
    every = [each for one in found.get("anyOf", ()) for each in choices(one)]
    return every or [found]


def has(schema: dict[str, Any], path: list[str]) -> bool:
    """Whether a value of this schema may hold something at this path."""
    if not path:
        return True
    for one in choices(schema):
        inner = one.get("properties", {}).get(path[0])
        if inner is not None and has(inner, path[1:]):
            return True
    return False


def addresses(board: dict[str, Any]) -> Iterator[str]:
    for target in targets(board):
        if "url" not in target:
            continue
        path = re.sub(r"\$\{\w+\}", "{name}", target["url"])
        if path not in API["paths"] or "get" not in API["paths"][path]:
            yield target["url"]
            continue
        content = API["paths"][path]["get"]["responses"]["200"]["content"]
        schema = resolve(content["application/json"]["schema"])
        rows = schema.get("properties", {}).get(target["root_selector"])
        if rows is None:
            yield f"{path}: no {target['root_selector']}"
            continue
        for column in target["columns"]:
            if not has(resolve(rows)["items"], column["selector"].split(".")):
                yield f"{path}: no {column['selector']}"


def sources(board: dict[str, Any]) -> Iterator[str]:
    known = {(source["uid"], source["type"]) for source in SOURCES["datasources"]}
    named = [panel["datasource"] for panel in board["panels"]]
    named += [target["datasource"] for target in targets(board)]
    named += [one["datasource"] for one in board["templating"]["list"] if "datasource" in one]
    yield from (str(one) for one in named if (one["uid"], one["type"]) not in known)


def layout(board: dict[str, Any]) -> Iterator[str]:
    ids = [panel["id"] for panel in board["panels"]]
    if len(set(ids)) != len(ids):
        yield "two panels have one id"
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        across, down = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        cells = {(x, y) for x in across for y in down}
        if cells & taken or at["x"] + at["w"] > 24:
            yield f"{panel['title']}: no room"
        taken |= cells


CHECKS = (metrics, addresses, sources, layout)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", BOARDS)
def test_it_is_well(name: str, check: Callable[[dict[str, Any]], Iterator[str]]) -> None:
    assert list(check(json.loads(BOARDS[name]))) == []


@pytest.mark.parametrize(
    ("name", "check", "old", "new"),
    [
        ("released.json", metrics, "stream_dp_catching_up{", "stream_dp_behind{"),
        ("released.json", metrics, "budget_epsilon{pipeline=", "budget_epsilon{name="),
        ("released.json", metrics, "pipeline_info, pipeline", "pipeline_info, name"),
        ("released.json", sources, '"stream-dp-prometheus"', '"prometheus"'),
        ("released.json", layout, '"id": 2,', '"id": 1,'),
        ("from_api.json", addresses, "/api/series/${series}", "/api/serie/${series}"),
        ("from_api.json", addresses, '"latest.band"', '"latest.bend"'),
        ("from_api.json", addresses, '"root_selector": "queries"', '"root_selector": "series"'),
    ],
)
def test_a_broken_dashboard_is_noticed(
    name: str, check: Callable[[dict[str, Any]], Iterator[str]], old: str, new: str
) -> None:
    board = BOARDS[name].replace("\\u0022", '"').replace('\\"', "'")
    broken = mutated(board, old.replace('\\"', "'"), new)
    assert list(check(json.loads(broken))) != []


def test_what_is_provisioned_is_what_compose_mounts() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    mounted = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    provided = [one["options"]["path"] for one in PROVIDERS["providers"]]
    assert provided == [mounted["./grafana/dashboards"]]
    for source in SOURCES["datasources"]:
        host, port = source["url"].removeprefix("http://").split(":")
        assert host in compose["services"]
        assert port in {"8765", "9090"}
    plugin = compose["services"]["grafana"]["environment"]["GF_PLUGINS_PREINSTALL"]
    assert plugin in {source["type"] for source in SOURCES["datasources"]}
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    (targets,) = configuration["scrape_configs"][0]["static_configs"]
    allowed = compose["services"]["engine"]["command"]
    for target in targets["targets"]:
        host, port = target.split(":")
        assert ["--allow-host", host] in [allowed[at : at + 2] for at in range(len(allowed))]
        assert host in compose["services"]
        assert port == "8765"
