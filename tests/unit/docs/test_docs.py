"""The pages of docs/ cannot rot: code blocks run, names resolve, links lead somewhere, the index is complete."""

import doctest
import importlib
import json
import re
import tomllib
import traceback
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastapi.routing import APIRoute
from loaded_script import loaded_script
from unit.server.fake_live_series import FakeLiveSeries

from stream_dp import __version__
from stream_dp.accounting.derive import RULES
from stream_dp.accounting.ledger import CONCURRENT
from stream_dp.server.api import create_app
from stream_dp.server.view import PublicView, ReleaseLog

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
NAMES = ROOT / "docs" / "notation.md"
CLIENT = ROOT / "docs" / "client.md"
NOTEBOOK = ROOT / "docs" / "tutorials" / "notebook.md"  # test_site.py gives it a server
RUNS = {"README.md": 1, "docs/python.md": 13, "docs/updates.md": 1}  # blocks at least


def failures(text: str, name: str) -> list[str]:
    """What goes wrong when the page's blocks are run in order, in one namespace: sessions, and plain code."""
    said: list[str] = []
    namespace: dict[str, Any] = {"__name__": name}
    runner = doctest.DocTestRunner(verbose=False)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if ">>>" in block:
            session = doctest.DocTestParser().get_doctest(block, namespace, name, name, 0)
            runner.run(session, out=said.append, clear_globs=False)
            namespace = session.globs
        else:
            try:
                exec(compile(block, name, "exec"), namespace)  # noqa: S102 - our own pages
            except Exception:  # noqa: BLE001 - whatever a page raises is wrong
                said.append(traceback.format_exc())
    return said


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own for what a page writes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "page",
    [README, *(page for page in PAGES if page not in {CLIENT, NOTEBOOK})],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_code_of_the_pages_runs(page: Path) -> None:
    text = page.read_text()
    assert text.count("```python\n") >= RUNS.get(str(page.relative_to(ROOT)), 0)
    assert failures(text, page.name) == []


def kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """What the cells of a notebook show, by kind: the numbers are noise."""
    return [
        sorted(kind for each in cell["outputs"] for kind in each.get("data", ["text"]))
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_the_page_on_the_client_and_the_notebook_run_beside_a_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    script = loaded_script(ROOT / "examples" / "06_notebook" / "execute.py")
    kept = json.loads(script.NOTEBOOK.read_text())
    with script.demo() as url:
        text = CLIENT.read_text().replace(script.URL, url)
        assert text.count("```python\n") >= 5
        assert failures(text, CLIENT.name) == []
        again = json.dumps(kept).replace("very_late", "very_late_too")  # a name is used once
        done = script.executed(json.loads(again), url)
    assert kinds(done) == kinds(kept)
    assert "text" in kinds(kept)[-1]


def test_a_wrong_result_is_found() -> None:
    assert failures("```python\n>>> 1 + 1\n3\n\n```\n", "wrong")
    assert failures("```python\n>>> 1 + 1\n2\n\n```\n", "right") == []
    assert failures("```python\nassert 1 + 1 == 3\n```\n", "wrong")
    several = "```python\nx = 1\n```\n\n```python\n>>> y = x\n\n```\n```python\ny\n```"
    assert failures(several, "one") == []


def resolved(dotted: str) -> Any:
    """The object of a name below the package: module, then attributes or fields.

    Raises:
        LookupError: there is none.
    """
    parts = ["stream_dp", *dotted.split(".")]
    for size in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            found = member(found, part)
        return found
    raise LookupError(dotted)


def member(owner: Any, name: str) -> Any:
    if hasattr(owner, name):
        return getattr(owner, name)
    if is_dataclass(owner):
        for field in fields(owner):
            if field.name == name:
                return field
    raise LookupError(f"{owner} has no {name}")


def names_of(table: str) -> list[str]:
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if line[:1] == "|"]
    assert {len(row) for row in rows} == {3}
    return [name for row in rows[2:] for name in re.findall(r"`([^`]+)`", row[1])]


@pytest.mark.parametrize("name", names_of(NAMES.read_text()))
def test_every_name_of_the_notation_table_is_there(name: str) -> None:
    assert not isinstance(resolved(name), ModuleType)


@pytest.mark.parametrize(
    "name", ["core.nowhere.X", "core.mechanism.Machine", "mechanisms.hss.HSS.x"]
)
def test_a_name_that_is_gone_is_found(name: str) -> None:
    with pytest.raises(LookupError):
        resolved(name)


def missing_links(page: Path) -> list[str]:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    return [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    assert missing_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("[self](a.md#top) [gone](b.md) [web](https://example.org/x)")
    assert missing_links(page) == ["b.md"]


def test_the_index_names_every_page() -> None:
    docs = ROOT / "docs"
    index, pages = (docs / "README.md").read_text(), [str(page.relative_to(docs)) for page in PAGES]
    assert [page for page in pages if index.count(f"]({page}) |") != 1] == ["README.md"]


def test_the_page_on_rules_runs_every_rule_of_derive() -> None:
    text = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    names = {rule.name for rules in RULES.values() for rule in rules}
    assert [n for n in sorted(names) if f"'{n}'" not in text and f'"{n}"' not in text] == []


def test_the_table_of_filters_is_the_codes() -> None:
    page = (ROOT / "docs" / "filters.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| ")][1:]
    rows = [line.strip("| ").split(" | ") for line in table]
    assert {name: (proven == "yes", source) for name, proven, source, _ in rows} == {
        name: (standing.proven, standing.source) for name, standing in CONCURRENT.items()
    }


def test_the_page_on_the_api_names_every_request_and_no_other() -> None:
    """The files of the page and of the reader are no API."""
    view = PublicView(dict, dict, dict, ReleaseLog(), FakeLiveSeries(), "token")
    routes = [r for r in create_app(view, frozenset()).routes if isinstance(r, APIRoute)]
    served = {f"{method} {r.path}" for r in routes for method in r.methods or ()}
    page = (ROOT / "docs" / "api.md").read_text()
    told = set(re.findall(r"`((?:GET|POST|DELETE) /[^`?]*)`", page))
    files = ("", "{name}", "ask/{name}", "cards/{name}", "docs/{name}")
    assert told == served - {f"GET /{name}" for name in files}


@pytest.mark.parametrize("page", [README, *EXAMPLES], ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_to_be_installed_is_a_checkout_or_its_wheel(page: Path) -> None:
    """Nothing is published: an index has no package of this name, or some day another one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    said = re.findall(r"pip install ([^\n`]*)", page.read_text(encoding="utf-8"))
    wheel = f"dist/stream_dp-{__version__}-py3-none-any.whl"
    for what in said:
        found = re.fullmatch(r"'([^'\[]*)\[([a-z,]+)\]'.*", what)
        assert found is not None, what
        assert found[1] in {".", wheel}
        assert set(found[2].split(",")) <= project["optional-dependencies"].keys()
    assert said or page != README
