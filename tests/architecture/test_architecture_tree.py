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
import yaml

REGISTRY_HOSTS = [
    words.replace(" ", ".")
    for words in (
        "pypi org", "pythonhosted org", "pypi python org", "npmjs org", "npmjs com", "jsdelivr net", "unpkg com",
        "repo1 maven org", "repo maven apache org", "conda anaconda org",
    )
]  # fmt: skip
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
        ("one machine's path", f'"/{MACHINE_FOLDERS[0]}/.cache"'),
        ("an open end", f"# {OPEN_ENDS[0]}: later"),
    ],
)
def test_offences_are_found(what: str, bad: str) -> None:
    texts = {Path("a.txt"): f"good\n{bad}"}
    assert [line.split(": ")[0] for line in offences(texts, FORBIDDEN[what])] == ["a.txt:2"]
    good = {Path("a.txt"): "https://x/work/y src/root/x ${HOME}/work/x TODOS"}
    assert offences(good, FORBIDDEN[what]) == []


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
    assert unpinned("a>=1\n-e .\na @ file:///b") == ["a>=1", "-e .", "a @ file:///b"]


def test_locks_cover_what_pyproject_asks_for(root: Path) -> None:
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    project = settings["project"]
    extras = project["optional-dependencies"]
    needed = {*project["dependencies"], *settings["build-system"]["requires"]}
    run = needed.union(*(extras[extra] for extra in ("serve", "broker")))
    assert unlocked(run, (root / "requirements.lock").read_text()) == set()
    dev = (root / "requirements-dev.lock").read_text()
    assert unlocked(run.union(*extras.values()), dev) == {"stream-dp-native"}  # from deploy/native
    assert unlocked({"PyYAML>=6", "aiokafka[zstd]>=1"}, "pyyaml==6.0 \\") == {"aiokafka"}
    assert settings["dependency-groups"]["build"] == settings["build-system"]["requires"]


def unlocked(requirements: set[str], lock: str) -> set[str]:
    locked = {entry.partition("==")[0] for entry in pinned(lock)}
    names = {re.split(r"[\[<>=!~ ;]", requirement)[0] for requirement in requirements}
    return {re.sub(r"[\-_.]+", "-", name).lower() for name in names} - locked


def contracts_broken(folder: Path) -> str:
    """Return the output of import-linter where it finds a contract broken, else nothing."""
    code = "from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", code, "--no-cache"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return (result.stdout + result.stderr) if result.returncode else ""


def test_import_contracts(root: Path) -> None:
    assert contracts_broken(root) == ""


def test_the_hooks_before_a_commit_are_those_of_make_lint(root: Path) -> None:
    repos = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"]
    assert {repo["repo"] for repo in repos} == {"local"}  # nothing is fetched
    entries = [hook["entry"].split()[0] for repo in repos for hook in repo["hooks"]]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (root / "Makefile").read_text(), re.MULTILINE)
    assert lint is not None
    assert set(entries) == {f".venv/bin/{tool}" for tool in re.findall(r"check,([\w-]+)", lint[1])}


def unknown_tests(listed: list[str], root: Path) -> list[str]:
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
    here = "tests/architecture/test_architecture_tree.py"
    listed = [here, f"{here}::unknown_tests", f"{here}::test_gone", "tests/gone.py"]
    assert unknown_tests(listed, root) == [f"{here}::test_gone", "tests/gone.py"]
