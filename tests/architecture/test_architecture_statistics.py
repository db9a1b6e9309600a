"""A statistic is two files and two lines: nothing else names one, and CONTRIBUTING.md's recipe is taken by its word.

The recipe's statistic is added to a copy of the package and runs through plan, run, ledger, audit and API there.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Self

import pydantic
import pytest

from stream_dp.records.conditions import Condition
from stream_dp.records.scalars import Exact
from stream_dp.statistics import STATISTICS
from stream_dp.statistics.count import CountSeries
from stream_dp.statistics.parts.choice import Choice, Setting
from stream_dp.statistics.parts.series_spec import SeriesSpec

OWN_KEY = re.compile(r"^```python key\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```python (file|list)=(\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TESTS = Path(__file__).parents[1]
CLASSES = {kind.__name__ for kind in STATISTICS}
WORDS = {str(kind.model_fields["statistic"].default) for kind in STATISTICS}
LADDER = re.compile(r"statistic\s*(?:===?|!==?|\?\?)|/(?:alert|max|hist|count)\w*/i")
PIPELINE = """\
version: 1
name: toy
public_data: true
source: {kind: file, path: events.jsonl}
schema: {time: {type: time}, country: {type: category, domain: [DE, FR]}}
privacy: {unit: event, neighbors: add_remove, epsilon: 1}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1m, horizon: 5}
journal: {kind: sqlite, path: toy.journal}
series:
  - {name: per_tick, statistic: rate, epsilon: 0.4}
  - {name: late, statistic: rate, where: [{field: country, equals: FR}], epsilon: 0.1}
  - {name: share, statistic: ratio, of: late, over: per_tick}
"""
LOOK = """
import json, sys
from pathlib import Path
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.server.models.configured import Pipeline
spec = load(Path("toy.yaml"))
run = Run(build(spec), open_ports(spec, sealer_for(spec, None)))
said = run.view().pipeline()
Pipeline.model_validate(said)  # as the API does
print(json.dumps(said["series"]))
"""
ORDER = """
from fractions import Fraction
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.serving import Bands, Differences
from stream_dp.mechanisms.tick_noise import TickNoise
each = TickNoise(3, Fraction(1, 2), Neighbors.ADD_REMOVE)
print(each.band(None, 0.95), Bands(Differences(each), 0.95)(0, None))
"""
FACE = """
import json
import stream_dp as sdp
budget = sdp.Budget(epsilon=1, schema={"country": {"type": "category", "domain": ["DE", "FR"]}})
late = sdp.Rate(where=[{"field": "country", "equals": "FR"}])
rate = budget.series(late, epsilon="0.9999999", horizon=5)
rate.update([{"country": "FR"}] * 2000 + [{"country": "DE"}] * 3000)
release = rate.release()
print(json.dumps([release.series, abs(release.value - 2000) < 100, str(budget.left)]))
"""


def naming(tree: ast.Module) -> Iterator[str]:
    """Find where a module names one of the statistics: by its class, or by its word beside `statistic`."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", "?")
        names = {getattr(node, part, None) for part in ("id", "attr", "name")}
        if named := names & CLASSES:
            yield f"line {line}: names {named.pop()}"
        asked = ast.unparse(node) if isinstance(node, ast.Compare) else ""
        if "statistic" in asked and any(repr(word) in asked for word in WORDS):
            yield f"line {line}: asks for a statistic by its name"


def test_nothing_outside_its_own_file_names_a_statistic(syntax: Mapping[Path, ast.Module]) -> None:
    home = Path("stream_dp/statistics")
    found = {
        str(path): wrong
        for path, tree in syntax.items()
        if home not in path.parents and (wrong := list(naming(tree)))
    }
    assert found == {}


@pytest.mark.parametrize(
    "twin",
    [
        "from stream_dp.statistics.count import CountSeries",
        "def f(s):\n    return isinstance(s, AlertsSeries)",
        "def f(s):\n    return s.statistic == 'maximum'",
        "def f(s):\n    return s['statistic'] in ('alerts',)",
    ],
)
def test_a_module_that_names_one_is_found(twin: str) -> None:
    assert list(naming(ast.parse(twin)))


def test_the_page_asks_for_shapes_and_never_guesses(root: Path) -> None:
    scripts = [
        p for p in (root / "stream_dp/server/page").rglob("*.js") if not p.name.endswith(".min.js")
    ]
    assert scripts
    assert [p.name for p in scripts if LADDER.search(p.read_text())] == []
    assert LADDER.search('if (/alert/i.test(series.statistic ?? "")) return "alerts";')


@pytest.fixture(scope="module")
def toy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder: a copy of the package with the recipe applied, a pipeline, five minutes of events."""
    folder = tmp_path_factory.mktemp("toy")
    shutil.copytree(
        root / "stream_dp", folder / "stream_dp", ignore=shutil.ignore_patterns("__pycache__")
    )
    for what, name, text in BLOCK.findall((root / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            text if what == "file" else listed(path.read_text(), text), encoding="utf-8"
        )
    (folder / "toy.yaml").write_text(PIPELINE)
    events = [
        {"time": f"2026-01-01T00:0{m}:30Z", "country": c}
        for m in range(5)
        for c in ("DE", "FR", "FR") * 20
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def listed(module: str, lines: str) -> str:
    """Return a module with one more import, and one more entry before the first one of its list."""
    statement, entry = lines.rstrip("\n").split("\n")
    indent = entry[: len(entry) - len(entry.lstrip())]
    module = re.sub(
        r"^(from stream_dp\.)", rf"{statement}\n\1", module, count=1, flags=re.MULTILINE
    )
    changed = re.sub(rf"^({indent}\w+,)$", rf"{entry}\n\1", module, count=1, flags=re.MULTILINE)
    assert changed != module
    return changed


def run(toy: Path, *command: str) -> str:
    """Run python in the folder of the toy; return what it printed."""
    path = os.pathsep.join((str(toy), str(TESTS)))
    environment = {**os.environ, "PYTHONPATH": path, "STREAM_DP_HOME": str(toy / "home")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=toy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


MAIN = ("-c", "from stream_dp.__main__ import start; start()")
COMMANDS = """
import contextlib, io, json, sys
from stream_dp.cli.main import code_of
said = []
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert code_of(command.split()) == 0, command
    said.append(out.getvalue())
print(json.dumps(said))
"""


SO_FAR = """
from stream_dp.statistics.parts.choice import steady
from stream_dp.statistics.rate import RateSeries, TickNoise
RateSeries.views = ()
RateSeries.choose = lambda self, setting: steady(
    TickNoise(setting.width, self.epsilon, setting.neighbors, setting.ones), "", setting
)
"""
LOOKED_AT = ("check toy.yaml --json", "simulate toy.yaml --data events.jsonl --epsilon 1 --json")


def looked_at(said: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Return what `check` says that the numbers typically are, and how often bands held in `simulate`."""
    checked, simulated = map(json.loads, said)
    typical = {row["series"]: row["typical"] for row in checked["verdicts"]}
    return typical, {at["series"]: at["observed"]["coverage"] for at in simulated["points"]}


def test_a_number_of_the_tick_is_compared_with_the_tick(toy: Path) -> None:
    """And one that says no window, which means all so far, is caught."""
    names = ("per_tick", "late")
    typical, coverage = looked_at(json.loads(run(toy, "-c", COMMANDS, *LOOKED_AT).splitlines()[-1]))
    assert [typical[name] for name in (*names, "share")] == [60, 40, pytest.approx(2 / 3, abs=1e-3)]
    assert (
        min(coverage.values()) > 0.7
    )  # 50 numbers at 0.95: by chance in less than one run of 10^8
    twin = run(toy, "-c", SO_FAR + COMMANDS, *LOOKED_AT)
    typical, coverage = looked_at(json.loads(twin.splitlines()[-1]))
    assert typical["per_tick"] > 60
    assert max(coverage[name] for name in names) < 0.7


def test_a_statistic_without_windows_is_no_statistic() -> None:
    class Forgets(SeriesSpec):
        statistic: str = "forgets"

        @property
        def about(self) -> str:
            return ""

        def choose(self, setting: Setting) -> Choice:
            raise NotImplementedError

    with pytest.raises(TypeError, match="views"):
        Forgets(name="it", epsilon=Fraction(1))  # type: ignore[abstract]


def test_the_recipes_key_is_a_condition_once(root: Path) -> None:
    (method,) = OWN_KEY.findall((root / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    names = {
        **vars(pydantic),
        "Condition": Condition,
        "CountSeries": CountSeries,
        "Exact": Exact,
        "Self": Self,
    }
    exec(f"class Large(CountSeries):\n    level: Exact\n\n{method}", names)  # noqa: S102 - our own page
    entry, own = {"name": "it", "epsilon": "1", "level": "3"}, {"field": "amount", "at_least": "3"}
    large = names["Large"].model_validate(entry)
    assert large.where == (Condition.model_validate(own),)
    for again in (large, entry | {"where": [own]}):
        assert names["Large"].model_validate(again) == large


def test_the_recipes_exact_test_passes(toy: Path) -> None:
    test = toy / "tests/unit/mechanisms/test_tick_noise.py"
    assert "1 passed" in run(toy, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))


def test_the_recipes_statistic_runs_everywhere(toy: Path) -> None:
    sure = "--confidence 0.9999999999"  # bounds that luck breaks once in 10^10 runs
    commands = (
        "plan toy.yaml --json", "run toy.yaml --until-end", "ledger toy.yaml --json",
        f"audit toy.yaml --runs 200 {sure} --json",
    )  # fmt: skip
    said = json.loads(run(toy, "-c", COMMANDS, *commands).splitlines()[-1])
    plan, ledger, found = (json.loads(said[at]) for at in (0, 2, 3))
    assert [(s["name"], s["mechanism"], float(s["epsilon"])) for s in plan["series"]] == [
        ("per_tick", "TickNoise", 0.4), ("late", "TickNoise", 0.1), ("share", "post-processing", 0),
    ]  # fmt: skip
    releases = [json.loads(line) for line in (toy / "toy.releases.jsonl").read_text().splitlines()]
    assert [(r["series"], r["tick"]) for r in releases] == [
        (name, tick) for tick in range(5) for name in ("per_tick", "late", "share")
    ]
    rates = [r for r in releases if r["series"] != "share"]
    told = [r["windows"]["tick"] for r in rates]
    assert all(isinstance(one["value"], int) and one["band"] > 0 for one in told)
    shares = [r["windows"]["tick"] for r in releases if r["series"] == "share"]
    assert all(
        0 <= one["low"] <= one["high"] <= 1 for one in shares
    )  # late counts a part of per_tick
    assert ledger["private"] is True
    assert not found["violated"]
    assert [s["name"] for s in found["series"]] == ["per_tick", "late"]
    series, face, bands = run(toy, "-c", LOOK + FACE + ORDER).splitlines()
    assert json.loads(series)[0] == {
        "name": "per_tick", "statistic": "rate", "by": None, "shape": "windows", "windows": ["tick"],
        "about": "rate per tick",
        "meaning": None, "parameters": {}, "nonnegative": True, "error_unit": "events",
    }  # fmt: skip
    assert json.loads(face) == ["rate-1", True, "1/10000000"]
    band, apart = map(int, bands.split())
    assert band < apart < 2 * band  # an order of rates is told by more than one band


def test_without_its_line_the_statistic_is_unknown(toy: Path, root: Path) -> None:
    done = subprocess.run(
        [sys.executable, *MAIN, "plan", str(toy / "toy.yaml")], cwd=root, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "statistic" in done.stderr
