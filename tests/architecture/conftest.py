"""What the architecture tests look at: the package's modules and the repository's files."""

import ast
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {".git", ".venv", "build", "dist", "node_modules", "__pycache__"}


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def modules() -> Mapping[Path, str]:
    """Return the source of every module of the package, by its path from the root.

    Of the face it is the stub: it names what the package loads lazily.
    """
    face = ROOT / "stream_dp" / "__init__.py"
    paths = sorted({*(ROOT / "stream_dp").rglob("*.py"), face.with_suffix(".pyi")} - {face})
    return {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in paths}


@pytest.fixture(scope="session")
def syntax(modules: Mapping[Path, str]) -> Mapping[Path, ast.Module]:
    return {path: ast.parse(source, str(path)) for path, source in modules.items()}


@pytest.fixture(scope="session")
def texts() -> Mapping[Path, str]:
    """Return the text files of the repository (what git knows or would add), by path."""
    found = {}
    for path in tracked():
        try:
            found[path] = (ROOT / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
    return found


def tracked() -> list[Path]:
    """Return the repository's files; without git, every file outside the usual caches."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        return [path for path in paths if not is_cache(path)]
    return [Path(name) for name in listed.split("\0") if name]


def is_cache(path: Path) -> bool:
    return any(
        part in SKIPPED or part.endswith((".egg-info", "_cache")) or part == ".hypothesis"
        for part in path.parts
    )
