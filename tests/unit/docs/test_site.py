"""What is true of the pages that the site adds: keys from the models, limits, words, commands, and tutorials that run.

`make docs` itself fails where a page is in no part; nothing here needs Sphinx.
"""

import asyncio
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from math import exp
from pathlib import Path
from typing import Any, get_args

import pytest
from loaded_script import loaded_script
from typer.main import get_command
from unit.server import public_world as world
from unit.server.conftest import listening
from unit.server.fake_live_series import FakeLiveSeries

import stream_dp
from stream_dp.cli.main import app
from stream_dp.journal.commit import Release
from stream_dp.journal.release import release_of
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.server.view import PublicView, ReleaseLog
from stream_dp.statistics import STATISTICS

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
READ = [
    path
    for path in (
        *DOCS.rglob("*.md"), *ROOT.glob("examples/*/README.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md",
        ROOT / "deploy" / "README.md",
    )
    if path.name != "glossary.md"
]  # fmt: skip
NEW = [
    *sorted(DOCS.glob("tutorials/*.md")), *sorted(DOCS.glob("how_to/*.md")), DOCS / "choosing_epsilon.md",
]  # fmt: skip


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page, indented ones too, without what follows the language in their first line."""
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL
    )
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


# --- every key ------------------------------------------------------------------------------------


@cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "pipeline.schema.json").read_text())
    return found


@cache
def keys() -> Any:
    return loaded_script(DOCS / "site" / "keys.py")


def all_keys() -> str:
    page: str = keys().keys_page(schema(), (DOCS / "pipeline.md").read_text())
    return page


def sections(page: str) -> dict[str, dict[str, str]]:
    """The rows of each table by the heading above it, by key."""
    found = {}
    for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", part, re.MULTILINE)
        found[part.partition("\n")[0]] = dict(rows)
    return found


def test_every_key_of_the_schema_has_its_row() -> None:
    told = sections(all_keys())
    assert list(told["The file"]) == list(schema()["properties"])
    for name, part in schema()["$defs"].items():
        assert list(told[keys().heading(name, part)]) == list(part["properties"]), name


def test_every_statistic_names_its_page() -> None:
    told = re.findall(r"^### (\w+)\n\n.*?^\| key", all_keys(), re.MULTILINE | re.DOTALL)
    assert all_keys().count(" More: [") == len(STATISTICS) <= len(told)
    assert "or so far. More: [Quantiles](quantiles.md)." in all_keys()


def anchors(text: str) -> set[str]:
    """The places of all headings, as `myst_heading_anchors` of docs/site/conf.py makes them."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {keys().anchor(title) for title in re.findall(r"^#{1,6} (.+)$", prose, re.MULTILINE)}


def dead_anchors(texts: dict[Path, str]) -> list[str]:
    links = [
        (page, (page.parent / file).resolve() if file else page, place)
        for page, text in texts.items()
        for file, place in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text)
    ]
    return [
        f"{page.name}: {target.name}#{place}"
        for page, target, place in links
        if target in texts and place not in anchors(texts[target])
    ]


def test_links_lead_to_headings() -> None:
    texts = {
        page: page.read_text() for page in (*READ, DOCS / "glossary.md", ROOT / "CHANGELOG.md")
    }
    assert dead_anchors(texts | {DOCS / "keys.md": all_keys()}) == []


def test_a_link_to_a_heading_that_is_gone_is_found() -> None:
    texts = {
        DOCS / "a.md": "# Top\n[there](#top) [gone](b.md#old-name)",
        DOCS / "b.md": "# New name",
    }
    assert dead_anchors(texts) == ["a.md: b.md#old-name"]


@pytest.mark.parametrize(
    ("heading", "key", "row"),
    [
        ("kafka (source)", "patience", "duration | `5m`"),
        ("kafka (source)", "largest_batch", "size | `16MiB`"),
        ("privacy", "epsilon", "decimal or fraction | must be there"),
        ("privacy", "max_events", "whole number, 1 to 10,000 | none"),
        ("privacy", "total", "[shared total](#shared-total) | none"),
        (
            "category",
            "domain",
            "list of: text, at most 200 characters, 1 to 1,000,000 | must be there",
        ),
        ("quantiles", "clamp", "list of: decimal or fraction, 2 of them | none"),
        ("count", "running", "true or false | false"),
        ("kafka (source)", "token", None),
    ],
)
def test_a_row_says_type_limits_and_default(heading: str, key: str, row: str | None) -> None:
    told = sections(all_keys())[heading]
    assert (told.get(key) if row is None else told[key].strip()) == row


def test_a_part_without_a_group_is_noticed() -> None:
    parts = {**schema()["$defs"], "Nowhere": {"properties": {}}}
    with pytest.raises(ValueError, match=r"without a group: \['Nowhere'\]"):
        keys().keys_page({**schema(), "$defs": parts}, "")


# --- names of Python ------------------------------------------------------------------------------


@cache
def names() -> Any:
    return loaded_script(DOCS / "site" / "names.py")


def test_the_page_has_every_public_name_once_and_each_says_what_it_is() -> None:
    listed = names().NAME.findall((DOCS / "python_names.md").read_text())
    inner = [name for name in listed if "." in name]
    assert sorted(set(listed) - set(inner)) == sorted(stream_dp.__all__)
    assert len(set(listed)) == len(listed)
    values = {name: names().value_of(name) for name in listed}
    assert {value.__module__.removeprefix("stream_dp.") for name, value in values.items() if name in inner} == {
        name.rpartition(".")[0] for name in inner
    }  # fmt: skip
    assert [name for name, value in values.items() if not value.__doc__] == []


@pytest.mark.parametrize(
    ("line", "page"),
    [
        ("- `connect`", "```{eval-rst}\n.. autofunction:: stream_dp.connect\n```\n"),
        ("- `Measure`", "**Measure**: one of `PureDP`, `ApproxDP`, "),
        ("- `UsageError`", "```{eval-rst}\n.. autoclass:: stream_dp.UsageError\n   :members:\n"),
        ("- no name", "- no name"),
    ],
)
def test_a_name_becomes_a_directive(line: str, page: str) -> None:
    assert names().names_page(line).startswith(page)


def test_a_docstring_and_a_signature_are_rewritten_for_the_site() -> None:
    lines = ["The `value` of ``x``.", ">>> `1`"]
    names().as_markup(lines)
    assert lines == ["The ``value`` of ``x``.", ">>> `1`"]
    union = " | ".join(
        f"~{each.__module__}.{each.__name__}" for each in get_args(stream_dp.Measure)
    )
    shown = [names().as_read(text) for text in (f"(m: {union} = <factory>)", "", None)]
    assert shown == ["(m: ~stream_dp.Measure = ...)", "", None]


# --- notebooks ------------------------------------------------------------------------------------


def test_a_notebook_becomes_a_page_with_its_outputs() -> None:
    script = loaded_script(DOCS / "site" / "notebooks.py")
    text, image = {"text/plain": ["<Axes>"]}, {"image/png": "AAAA"}
    code = [
        {"output_type": "stream", "text": ["3\n"]},
        {"data": text},
        {"data": image},
        {"data": {**text, "text/html": ["<table>", "</table>"]}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "and # text"]},
        {"cell_type": "code", "source": ["print(3)"], "outputs": code},
    ]
    assert script.page({"cells": cells}).split("\n\n") == [
        "## Title\nand # text",
        "```python\nprint(3)\n```",
        "```text\n3\n```",
        "```text\n<Axes>\n```",
        "![What the cell above draws](data:image/png;base64,AAAA)",
        "```{raw} html\n<table></table>\n```",
    ]


# --- limits ---------------------------------------------------------------------------------------


def limits(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^\| [^|]+ \| ([^|]+) \| `([\w.]+)` \|$", page, re.MULTILINE)


def written(value: Any) -> set[str]:
    """How the page may write a constant."""
    whole = [
        f"{value // size} {unit}"
        for unit, size in (("MiB", 2**20), ("KiB", 2**10))
        if value % size == 0
    ]
    return {str(value), f"{value:,}" if isinstance(value, int) else "", *whole}


def wrong_limits(page: str) -> list[str]:
    wrong = []
    for told, name in limits(page):
        module, _, constant = name.rpartition(".")
        if told not in written(getattr(importlib.import_module(f"stream_dp.{module}"), constant)):
            wrong.append(name)
    return wrong


def test_the_limits_are_those_of_the_code() -> None:
    page = (DOCS / "limits.md").read_text()
    assert len(limits(page)) == page.count("| `") > 15
    assert wrong_limits(page) == []
    assert wrong_limits(page.replace("| 512 |", "| 513 |")) == ["server.connections.MOST"]


# --- words ----------------------------------------------------------------------------------------

THEIRS = {"comparison.md"}  # has the words of other systems


def replaced() -> list[str]:
    """The words of the glossary's last column."""
    rows = re.findall(r"^\|.*\| ([^|]*) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    return [word.strip() for row in rows if row != "not" for word in row.split(",") if word.strip()]


def places(word: str, texts: dict[str, str]) -> list[str]:
    pattern = re.compile(rf"(?<![\w`#-]){re.escape(word)}s?(?![\w-])", re.IGNORECASE)
    return [name for name, text in texts.items() for _ in pattern.finditer(text)]


def commands_of(command: Any) -> dict[str, Any]:
    """Those below it, which are loaded when they are asked for."""
    if not hasattr(command, "list_commands"):
        return {}
    context = command.make_context("stream-dp", ["--help"], resilient_parsing=True)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


def helps(command: Any, name: str = "stream-dp") -> Iterator[tuple[str, str]]:
    """The help of a command, of its parameters and of the commands below it."""
    said = [getattr(parameter, "help", "") for parameter in command.params]
    yield name, " ".join(text for text in [command.help, *said] if text)
    for below, inner in commands_of(command).items():
        yield from helps(inner, f"{name} {below}")


def test_no_page_and_no_help_has_a_word_that_the_glossary_replaces() -> None:
    texts = {
        str(page.relative_to(ROOT)): page.read_text() for page in READ if page.name not in THEIRS
    }
    texts |= dict(helps(get_command(app)))
    found = {word: places(word, texts) for word in replaced()}
    assert {w: where for w, where in found.items() if where} == {}


def test_a_replaced_word_is_found() -> None:
    assert len(replaced()) > 40
    assert places(
        "time step", {"a": "Each Time Step counts; `time step` and #time-steps do not."}
    ) == ["a"]
    assert places("time step", {"a": "in time steps."}) == ["a"]
    assert len(dict(helps(get_command(app)))) > 25


# --- commands and files ---------------------------------------------------------------------------


def unknown_options(line: str) -> list[str]:
    """What of a `stream-dp` line no command takes."""
    words = shlex.split(line, comments=True)
    words = words[words.index("stream-dp") + 1 :]
    words = words[: next((at for at, word in enumerate(words) if word in "|>&"), len(words))]
    command: Any = get_command(app)
    while words and words[0][:2] != "--" and (below := commands_of(command)):
        if words[0] not in below and not hasattr(command, "default"):
            return [words[0]]
        command = below[words.pop(0)] if words[0] in below else below[command.default]
    options = {name for parameter in command.params for name in parameter.opts}
    return [word for word in words if word.startswith("--") and word not in options]


def lines() -> list[tuple[str, str]]:
    found = [
        (page.name, line)
        for page in NEW
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", "").splitlines()
    ]
    found += [
        (page.name, quoted)
        for page in [*NEW, DOCS / "upgrades.md", DOCS / "how_we_know.md"]
        for quoted in re.findall(r"`(stream-dp [^`]+)`", page.read_text())
    ]
    return [(page, line) for page, line in found if re.search(r"(^|[ |;])stream-dp ", line)]


def test_every_command_of_the_new_pages_is_one() -> None:
    assert len(lines()) > 30
    assert [(page, line, bad) for page, line in lines() if (bad := unknown_options(line))] == []
    assert unknown_options("umask 077; stream-dp token a.yaml --analyst ann > f --no") == []
    assert unknown_options("stream-dp run a.yaml --nowhere") == ["--nowhere"]
    assert unknown_options("stream-dp walk a.yaml") == ["walk"]


FILES = [
    (page, text) for page in NEW for text in blocks(page, "yaml") if text.startswith("version")
]


@pytest.mark.parametrize(("page", "text"), FILES, ids=lambda value: getattr(value, "name", ""))
def test_every_file_of_the_new_pages_is_planned_by_the_command(
    page: Path, text: str, tmp_path: Path
) -> None:
    (tmp_path / "file.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "stream_dp", "plan", "file.yaml"], cwd=tmp_path, capture_output=True, text=True
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for said in re.findall(r"`plan` says `([^`]+)`", page.read_text()):
        assert said.split(":")[0] in done.stdout


def test_the_table_of_questions_has_the_lines_of_its_file() -> None:
    page = DOCS / "how_to" / "choose_a_statistic.md"
    (file,) = blocks(page, "yaml")
    asked = re.findall(r"`(\{name: [^`]*\})`", page.read_text())
    assert len(asked) == 13
    assert [line for line in asked if f"  - {line}\n" not in file] == []


# --- numbers --------------------------------------------------------------------------------------

COUNT = """\
version: 1
name: n
source: {{kind: file, path: n.csv}}
schema: {{time: {{type: time}}}}
privacy: {{epsilon: 20}}
clock: {{kind: replay, field: time, start: 2026-01-01T00:00:00Z, step: 1h, horizon: 8760}}
series: [{{name: n, statistic: count, {more}epsilon: {epsilon}}}]
"""


def bands(text: str, folder: Path) -> dict[str, dict[str, int]]:
    """Half-widths at the last tick by series and window; of a series without windows under ''."""
    (folder / "file.yaml").write_text(text)
    spec = load(folder / "file.yaml")
    last = spec.clock.horizon - 1  # type: ignore[operator]
    found = {}
    for one in build(spec).chosen:
        windows = {name: expected(last) for name, expected in one.choice.windows.items()}
        found[one.spec.name] = windows or {"": one.choice.expected(last)}
    return found  # type: ignore[return-value]


def test_the_table_of_epsilons_is_what_follows(tmp_path: Path) -> None:
    page = (DOCS / "choosing_epsilon.md").read_text()
    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) \| (\d+) \|$", page, re.MULTILINE
    )
    assert len(rows) == 5
    for epsilon, odds, believed, guesses, band in rows:
        factor = exp(float(epsilon))
        assert float(odds) == pytest.approx(factor, rel=0.005)
        assert float(believed) == pytest.approx(100 * factor / (factor + 9), abs=0.05)
        assert float(guesses) == pytest.approx(100 * factor / (factor + 1), abs=0.05)
        told = bands(COUNT.format(more="every: 1d, ", epsilon=epsilon), tmp_path)
        assert told["n"] == {"1d": int(band)}


def test_the_page_on_budgets_has_the_bands_of_plan(tmp_path: Path) -> None:
    forms = {"windows: [24h], ": "24h", "": "", "every: 1d, ": "1d"}
    told = [
        bands(COUNT.format(more=more, epsilon="0.1"), tmp_path)["n"][window]
        for more, window in forms.items()
    ]
    sliding, ever, ended = told
    page = (DOCS / "how_to" / "divide_a_budget.md").read_text()
    assert re.findall(r"(\d+) instead of (\d+) \|", page) == [
        (str(ended), str(sliding)), (str(ended), str(ever)),
    ]  # fmt: skip


def test_the_table_of_caps_has_the_bands_of_plan(tmp_path: Path) -> None:
    page = DOCS / "tutorials" / "people.md"
    (file,) = blocks(page, "yaml")
    ever = file.replace("max_events: 10", "overall: 200").replace("  per: 1d\n", "")
    ever = ever.replace(", window: 1d", "")
    three, ten, life = (
        bands(text, tmp_path)
        for text in (file.replace("max_events: 10", "max_events: 3"), file, ever)
    )
    rows = [
        f"| `{name}` of a day | {three[name]['1d']:,} | {ten[name]['1d']:,} | {life[name]['1d']:,} |"
        for name in ("visitors", "by_section")
    ]
    assert [row for row in rows if row not in page.read_text()] == []
    once = bands(ever.replace("of: customer, every: 1d,", "of: customer,"), tmp_path)
    assert f"at most {once['visitors']['']} |" in page.read_text()


# --- tutorials ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", ["first_dashboard", "people"])
def test_a_tutorial_works_from_its_first_line_to_its_last(name: str, tmp_path: Path) -> None:
    page = DOCS / "tutorials" / f"{name}.md"
    for program in blocks(page, "python"):
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    (file,) = blocks(page, "yaml")
    (pipeline,) = re.findall(r"^name: (\w+)$", file, re.MULTILINE)
    (tmp_path / f"{pipeline}.yaml").write_text(file)
    typed = "".join(blocks(page, "sh"))
    assert typed.count("--serve") == 1
    script = typed.replace("--serve", "--until-end").replace(
        "stream-dp ", f"{sys.executable} -m stream_dp "
    )
    home = {"STREAM_DP_HOME": str(tmp_path / "home"), "COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    script = script.replace(
        f"{sys.executable} -m stream_dp key\n", f"{sys.executable} -m stream_dp key\n", 1
    )
    done = subprocess.run(
        ["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **home}
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    promised, *shown = blocks(page, "text")
    said = [line for line in promised.splitlines() if not line.startswith("{")]
    if name == "first_dashboard":
        said += shown[0].splitlines()
        assert "spent 1, left 0" in done.stdout
    assert [line for line in said if line not in done.stdout] == []
    releases = (tmp_path / f"{pipeline}.releases.jsonl").read_text().splitlines()
    examples = [line for text in shown for line in text.splitlines() if line.startswith("{")]
    assert examples
    assert {shape_of(line) for line in examples} <= {shape_of(line) for line in releases}


def shape_of(line: str) -> str:
    """A release without its noise and its place."""
    return re.sub(r":-?[\d.]+", ":?", re.sub(r'"tick":\d+,"end":"[^"]*"', "", line))


def test_a_question_from_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook's lines, against the server with live series that are no engine's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ann.token").write_text("token\n")
    asyncio.run(asked_by(blocks(DOCS / "tutorials" / "notebook.md", "python")))


async def asked_by(programs: list[str]) -> None:
    log, live = ReleaseLog(), FakeLiveSeries()
    log.append(answered("orders", 0))
    entries = [world.series(name) for name in ("orders", "large_orders")]
    view = PublicView(
        lambda: world.pipeline("orders", *entries), world.plan, world.budget, log, live, "token"
    )
    async with listening(view) as port:
        notebook = "\n".join(programs).replace(":8765", f":{port}")
        names: dict[str, Any] = {}
        run: Callable[..., None] = exec
        code = compile(notebook, "notebook.md", "exec")
        running = asyncio.create_task(asyncio.to_thread(run, code, names))
        for sequence in count(1):  # a stream waits for what becomes public after it began
            log.append(answered("large_orders", sequence))
            if (await asyncio.wait({running}, timeout=0.1))[0]:
                break
        await running
    assert [what for what, *_ in live.asked] == ["preview", "create", "halt"]
    assert (names["price"].fits, names["ended"].freed) == (True, "0.1")
    assert (names["first"].value, names["releases"].last) == (12, names["first"].sequence)


def answered(series: str, sequence: int) -> Release:
    place = {"v": 1, "sequence": sequence, "series": series, "tick": 3 + sequence}
    return released(
        place | {"end": "2026-01-18T06:00:00Z", "value": 12, "band": 3, "confidence": 0.95}
    )


def released(body: dict[str, Any]) -> Release:
    return release_of(json.dumps(body).encode())
