"""Rules for every text file of the repository: no registry's host, no one machine's path, no open ends.

The forbidden words are put together from parts, so that this file does not hold them.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("pypi", "python", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("jsdelivr", "net"),
        ("unpkg", "com"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("conda", "anaconda", "org"),
    )
]
MACHINE_FOLDERS = ("root", "work", "home")
OPEN_ENDS = ("TO" + "DO", "FIX" + "ME", "X" * 3)

FORBIDDEN = {
    "a registry's host": re.compile("|".join(map(re.escape, REGISTRY_HOSTS)), re.IGNORECASE),
    "one machine's path": re.compile(rf"(?<![\w.\-/}}])/(?:{'|'.join(MACHINE_FOLDERS)})/"),
    "an open end": re.compile(rf"\b(?:{'|'.join(OPEN_ENDS)})\b"),
}
VENDORED = (".min.js",)


def offences(texts: Mapping[Path, str], pattern: re.Pattern[str]) -> list[str]:
    """Return file, line number and match wherever the pattern occurs."""
    return [
        f"{path}:{number}: {match.group()}"
        for path, text in texts.items()
        if not path.name.endswith(VENDORED)
        for number, line in enumerate(text.splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str, texts: Mapping[Path, str]) -> None:
    assert texts
    assert offences(texts, FORBIDDEN[what]) == []


@pytest.mark.parametrize(
    ("what", "bad"),
    [
        ("a registry's host", f"--index-url https://{REGISTRY_HOSTS[0]}/simple"),
        ("a registry's host", f"https://files.{REGISTRY_HOSTS[1]}/packages"),
        ("one machine's path", f'"/{MACHINE_FOLDERS[0]}/.cache"'),
        ("one machine's path", f"file:/{MACHINE_FOLDERS[1]}/main"),
        ("an open end", f"# {OPEN_ENDS[0]}: later"),
    ],
)
def test_offences_are_found(what: str, bad: str) -> None:
    texts = {Path("a.txt"): f"good\n{bad}"}
    assert [line.split(": ")[0] for line in offences(texts, FORBIDDEN[what])] == ["a.txt:2"]


@pytest.mark.parametrize("good", ["https://x/work/y", "src/root/x", "${HOME}/work/x", "TODOS"])
def test_look_alikes_pass(good: str) -> None:
    assert [offences({Path("a"): good}, pattern) for pattern in FORBIDDEN.values()] == [[]] * 3


def unpinned(lock: str) -> list[str]:
    """Return the lines of a lock that hold no pinned version, hash or comment."""
    shape = re.compile(r"[\w.\-]+==[^\s@]+( ; [^@]+)? \\|\s+--hash=sha256:[0-9a-f]{64}( \\)?|#.*|")
    return [line for line in lock.splitlines() if shape.fullmatch(line) is None]


def pinned(lock: str) -> set[str]:
    """Return `name==version` of all entries of a lock."""
    return set(re.findall(r"^[\w.\-]+==[^\s@]+", lock, re.MULTILINE))


def test_locks_are_pinned_by_hash_and_agree(root: Path) -> None:
    run = (root / "requirements.lock").read_text()
    dev = (root / "requirements-dev.lock").read_text()
    purchases = (root / "requirements-purchases.lock").read_text()
    assert unpinned(run) + unpinned(dev) + unpinned(purchases) == []
    assert pinned(run) < pinned(dev)


@pytest.mark.parametrize("bad", ["a>=1", "-e .", "a @ file:///b", "--find-links x"])
def test_unpinned_lines_are_found(bad: str) -> None:
    assert unpinned(bad) == [bad]


def test_locks_cover_what_pyproject_asks_for(root: Path) -> None:
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    project = settings["project"]
    extras = project["optional-dependencies"]
    needed = {*project["dependencies"], *settings["build-system"]["requires"]}
    run = needed.union(*(extras[extra] for extra in ("kafka", "serve", "broker")))
    assert unlocked(run, (root / "requirements.lock").read_text()) == set()
    assert (
        unlocked(run.union(*extras.values()), (root / "requirements-dev.lock").read_text()) == set()
    )
    assert settings["dependency-groups"]["build"] == settings["build-system"]["requires"]


def unlocked(requirements: set[str], lock: str) -> set[str]:
    """Return the names that are required and not in the lock."""
    locked = {entry.partition("==")[0] for entry in pinned(lock)}
    names = {re.split(r"[\[<>=!~ ;]", requirement)[0] for requirement in requirements}
    return {re.sub(r"[\-_.]+", "-", name).lower() for name in names} - locked


def test_a_missing_lock_entry_is_found() -> None:
    assert unlocked({"PyYAML>=6", "aiokafka[zstd]>=1"}, "pyyaml==6.0 \\") == {"aiokafka"}


def contracts_broken(folder: Path) -> str:
    """Return the output of import-linter where it finds a contract broken, else nothing."""
    code = "from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", code, "--no-cache"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return (result.stdout + result.stderr) if result.returncode else ""


def test_import_contracts(root: Path) -> None:
    assert contracts_broken(root) == ""


def test_import_contracts_can_fail(tmp_path: Path) -> None:
    package = tmp_path / "little"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "low.py").write_text("import little.high\n")
    (package / "high.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.importlinter]\nroot_package = "little"\n[[tool.importlinter.contracts]]\n'
        'name = "down"\ntype = "layers"\nlayers = ["little.high", "little.low"]\n'
    )
    assert "little.low -> little.high" in contracts_broken(tmp_path)


def unknown_tests(listed: list[str], root: Path) -> list[str]:
    """Return the lines of a list of tests that name no file, or no test of their file."""

    def known(line: str) -> bool:
        path, _, name = line.partition("::")
        file = root / path
        return file.is_file() and (not name or f"def {name}(" in file.read_text(encoding="utf-8"))

    return [line for line in listed if not known(line)]


def test_what_is_left_out_of_make_test_exists(root: Path) -> None:
    lines = (root / "tests" / "full.txt").read_text(encoding="ascii").splitlines()
    listed = [line for line in lines if line and not line.startswith("#")]
    assert listed
    assert unknown_tests(listed, root) == []


def test_a_test_that_is_gone_is_found(root: Path) -> None:
    here = "tests/architecture/test_architecture_tree.py"
    listed = [here, f"{here}::unknown_tests", f"{here}::test_gone", "tests/gone.py"]
    assert unknown_tests(listed, root) == [f"{here}::test_gone", "tests/gone.py"]
