"""Rules that a module's syntax shows: no event loop low down, no stray randomness, a docstring a module, size.

Each rule is a function from a module to what is wrong with it, tried on a snippet that breaks it.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

Syntax = Mapping[Path, ast.Module]
Rule = Callable[[ast.Module], Iterator[str]]
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

SYNCHRONOUS = (
    "core", "noise", "mechanisms", "accounting", "journal", "records", "statistics", "pipeline",
)  # fmt: skip
MAX_LINES = 900
RANDOMNESS = ("random", "secrets", "numpy.random")
SYSTEM_SOURCE = ("urandom", "getrandom")
MOST_CACHED = 4096
UNBOUNDED = ("cache", "_cache")
BOUNDED_BY_THE_FILE = {
    "stream_dp/statistics/quantiles.py": "the buckets of a series",
    "stream_dp/python/statistic.py": "the names of statistics",
    "stream_dp/kafka/log/journal.py": "the warnings about a topic's settings",
}
NOUNS = re.compile(
    r" (older |dead )?(answers|asks|columns|creations|entries|events|files|games|halts|keys|letters|lines|messages|"
    r"partitions|places|records|releases|rows|snapshots|ticks|updates|users|watches)\b"
)


def under(path: Path, *packages: str) -> bool:
    """Say whether the module lies in one of these packages of stream_dp."""
    return len(path.parts) > 2 and path.parts[1] in packages


def findings(rule: Rule, syntax: Syntax, chosen: Callable[[Path], bool]) -> list[str]:
    """Return what the rule finds wrong in the chosen modules."""
    modules = ((path, tree) for path, tree in syntax.items() if chosen(path))
    return [f"{path}: {finding}" for path, tree in modules for finding in rule(tree)]


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and full name of all that is imported, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_within(name: str, package: str) -> bool:
    """Say whether a dotted name is the package or lies in it."""
    return name == package or name.startswith(f"{package}.")


def event_loop(tree: ast.Module) -> Iterator[str]:
    """Find anything asynchronous."""
    asynchronous = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    for node in ast.walk(tree):
        if isinstance(node, asynchronous) or (
            isinstance(node, ast.comprehension) and node.is_async
        ):
            yield f"line {getattr(node, 'lineno', '?')}: asynchronous code"
    for line, name in imported(tree):
        if is_within(name, "asyncio"):
            yield f"line {line}: imports asyncio"


def randomness(tree: ast.Module) -> Iterator[str]:
    """Find imports of random generators, and `numpy.random` reached as an attribute."""
    numpy_names = {"numpy"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            numpy_names |= {a.asname for a in node.names if a.name == "numpy" and a.asname}
    for line, name in imported(tree):
        if any(is_within(name, package) for package in RANDOMNESS):
            yield f"line {line}: imports {name}"
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr="random") if owner in numpy_names:
                yield f"line {node.lineno}: uses {owner}.random"


def system_source(tree: ast.Module) -> Iterator[str]:
    """Find where the operating system's source of randomness is asked."""
    for line, name in imported(tree):
        if name.rpartition(".")[2] in SYSTEM_SOURCE:
            yield f"line {line}: imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in SYSTEM_SOURCE:
            yield f"line {node.lineno}: uses {node.attr}"


def printing(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield f"line {node.lineno}: print("


def bare_plurals(tree: ast.Module) -> Iterator[str]:
    """Find texts that put a noun behind whatever number comes, which is wrong of one: `how_many` says it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for value, behind in pairwise(node.values):
                match value, behind:
                    case ast.FormattedValue(), ast.Constant(value=str(said)) if NOUNS.match(said):
                        yield f"line {node.lineno}: a number and {said!r}"


def unbounded_caches(tree: ast.Module) -> Iterator[str]:
    """Find caches without a bound, or with one above `MOST_CACHED`; a function without parameters has one result."""
    single = {
        id(decorator)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not ast.unparse(node.args)
        for decorator in node.decorator_list
    }
    numbers = {
        ast.unparse(node.targets[0]): node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func) == "lru_cache":
            sizes = [*node.args, *(one.value for one in node.keywords if one.arg == "maxsize")]
            told = [numbers.get(ast.unparse(size), size) for size in sizes]
            if told and not _few(told[0]):
                yield f"line {node.lineno}: lru_cache of {ast.unparse(told[0])}"
        elif isinstance(node, ast.Call) and _called(node.func) in UNBOUNDED:
            yield f"line {node.lineno}: a cache without a bound"
        elif isinstance(node, ast.FunctionDef):
            for each in node.decorator_list:
                if _called(each) in UNBOUNDED and id(each) not in single:
                    yield f"line {node.lineno}: {node.name} is cached without a bound"


def _few(size: ast.expr) -> bool:
    """Say whether a size is at most `MOST_CACHED`; a name is imported from where it is looked at."""
    match size:
        case ast.Constant(value=int(entries)):
            return entries <= MOST_CACHED
        case ast.BinOp(ast.Constant(value=int(base)), ast.LShift(), ast.Constant(value=int(bits))):
            return base << bits <= MOST_CACHED
    return isinstance(size, ast.Name)


def _called(node: ast.expr) -> str:
    return ast.unparse(node).removeprefix("functools.")


def undocumented(tree: ast.Module) -> Iterator[str]:
    if ast.get_docstring(tree) is None:
        yield "the module has no docstring"


def oversized(lines: Mapping[Path, int]) -> list[str]:
    return [f"{path}: {count} lines" for path, count in lines.items() if count > MAX_LINES]


def test_lower_layers_are_synchronous(syntax: Syntax) -> None:
    assert findings(event_loop, syntax, lambda path: under(path, *SYNCHRONOUS)) == []


def test_randomness_comes_from_noise_only(syntax: Syntax) -> None:
    assert findings(randomness, syntax, lambda path: not under(path, "noise", "testing")) == []


def test_one_function_asks_the_systems_source(syntax: Syntax) -> None:
    """What the tests replace, so that noise is the same in every run, is then all there is."""
    source = Path("stream_dp/noise/bits.py")
    assert findings(system_source, syntax, lambda path: path != source) == []
    assert len(findings(system_source, syntax, lambda path: path == source)) == 1


def test_only_the_command_line_prints(syntax: Syntax) -> None:
    assert findings(printing, syntax, lambda path: not under(path, "cli")) == []


def test_what_is_printed_says_one_tick_and_two_ticks(syntax: Syntax) -> None:
    assert findings(bare_plurals, syntax, lambda path: under(path, "cli")) == []


def test_every_module_says_what_it_is(syntax: Syntax) -> None:
    assert findings(undocumented, syntax, lambda _: True) == []


def test_caches_are_bounded(syntax: Syntax) -> None:
    """Memory stays as it is from tick to tick; docs/operations.md lists the bounds. Games and checks are over soon."""
    found = findings(unbounded_caches, syntax, lambda path: not under(path, "verify", "testing"))
    assert sorted({finding.partition(":")[0] for finding in found}) == sorted(BOUNDED_BY_THE_FILE)


def test_files_are_small(modules: Mapping[Path, str]) -> None:
    lines = {path: len(source.splitlines()) for path, source in modules.items()}
    assert oversized(lines) == []
    assert oversized({Path("a"): MAX_LINES, Path("b"): MAX_LINES + 1}) == ["b: 901 lines"]


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (event_loop, "async def f(): ..."),
        (event_loop, "def f():\n    import asyncio.queues"),
        (randomness, "import random"),
        (randomness, "from numpy import random"),
        (randomness, "from numpy.random import default_rng"),
        (randomness, "import numpy as np\nx = np.random.default_rng()"),
        (system_source, "from os import urandom"),
        (system_source, "import os\nf = os.getrandom"),
        (printing, "def f():\n    print(1)"),
        (bare_plurals, "f'{done.ticks:,} ticks, {1} release'"),
        (unbounded_caches, "@cache\ndef f(tick): ..."),
        (unbounded_caches, "@functools.cache\ndef f(self, *ticks): ..."),
        (unbounded_caches, "f = cache(g)"),
        (unbounded_caches, "@lru_cache(maxsize=None)\ndef f(): ..."),
        (unbounded_caches, "@lru_cache(None)\ndef f(): ..."),
        (unbounded_caches, "KEPT = 1 << 16\n@lru_cache(KEPT)\ndef f(): ..."),
        (undocumented, ""),
    ],
)
def test_rules_can_fail(rule: Rule, bad: str) -> None:
    assert len(list(rule(ast.parse(bad)))) == 1


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (event_loop, "def f(): return 'await'"),
        (randomness, "from stream_dp.noise import random\nx.random"),
        (system_source, "import os\nos.open(urandom)"),
        (printing, "console.print(1)"),
        (bare_plurals, "f'{how_many(ticks, noun)}: {name} ends'"),
        (unbounded_caches, "KEPT = 1 << 9\n@cache\ndef f(): ...\n@lru_cache(KEPT)\ndef g(x): ..."),
        (unbounded_caches, "@lru_cache\ndef f(x): ...\n@lru_cache(maxsize=64)\ndef g(x): ..."),
        (undocumented, '"""M."""\ndef f(): ...'),
    ],
)
def test_rules_leave_good_code_alone(rule: Rule, good: str) -> None:
    assert list(rule(ast.parse(good))) == []
