"""Every module can be imported first, so none works only after another was loaded."""

import json
import subprocess
import sys
from pathlib import Path

# Imports each module with no other module of its floor loaded, so with none that may import it: floors have no
# cycle among them (import-linter's contract). A module outside of all floors is imported with nothing loaded.
IMPORT_ALONE = """
import importlib, json, sys
package, *names = sys.argv[1:]
floors = {name.split(".")[1] for name in names if name.count(".") > 1}
failed = {}
for name in names:
    floor = name.split(".")[1:2]
    alone = ".".join([package, *floor]) if floors.issuperset(floor) and floor else package
    for loaded in [m for m in sys.modules if m == alone or m.startswith(alone + ".")]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}"
sys.__stdout__.write("\\n" + json.dumps(failed))
"""


def module_names(folder: Path, package: str) -> list[str]:
    """Return the dotted names of a package's modules; `__main__` runs a program, so not that."""
    paths = sorted((folder / package).rglob("*.py"))
    parts = (path.relative_to(folder).with_suffix("").parts for path in paths)
    return [".".join(p).removesuffix(".__init__") for p in parts if p[-1] != "__main__"]


def import_failures(folder: Path, package: str) -> dict[str, str]:
    """Return which modules of the package cannot be imported on their own, and why."""
    command = [sys.executable, "-c", IMPORT_ALONE, package, *module_names(folder, package)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    failures: dict[str, str] = json.loads(result.stdout.splitlines()[-1])
    return failures


def test_every_module_imports_on_its_own(root: Path) -> None:
    assert import_failures(root, "stream_dp") == {}


def test_a_cycle_and_a_broken_module_are_found(tmp_path: Path) -> None:
    package = tmp_path / "little"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("from little.b import y\nx = 1\n")
    (package / "b.py").write_text("y = 1\nfrom little.a import x\n")
    (package / "c.py").write_text("import little.nowhere\n")
    (package / "__main__.py").write_text("raise SystemExit\n")
    assert set(import_failures(tmp_path, "little")) == {"little.a", "little.c"}
