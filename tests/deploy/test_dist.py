"""What `make dist` builds: the same bytes from every clone, all files of the package, and an SBOM that is whole."""

import os
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path
from sysconfig import get_platform
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from deploy.deploy_files import DEPLOY, ROOT, worktree
from loaded_script import loaded_script

from stream_dp import __version__
from stream_dp.broker.jars import listed_jars
from stream_dp.records.native import Step

WHEEL = f"stream_dp-{__version__}-py3-none-any.whl"
SDIST = f"stream_dp-{__version__}.tar.gz"
NATIVE = f"stream_dp_native-{__version__}-cp311-abi3-{get_platform().translate({ord(c): '_' for c in '-.'})}.whl"


@pytest.fixture(scope="module")
def dist() -> ModuleType:
    return loaded_script(DEPLOY / "dist.py")


@pytest.fixture(scope="module")
def built(dist: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    dist.build(folder, tree=worktree(folder))
    return folder


def test_what_is_built(built: Path) -> None:
    sums = (built / "SHA256SUMS").read_text().splitlines()
    assert [line.split("  ")[1] for line in sums] == [
        WHEEL,
        SDIST,
        f"stream_dp-{__version__}.cdx.json",
        NATIVE,
    ]
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=built, check=True)


def test_another_clone_another_day_by_another_person_has_the_same_bytes(
    dist: ModuleType, built: Path, tmp_path: Path
) -> None:
    clone, tree = tmp_path / "clone", worktree(tmp_path)
    objects = ROOT / dist.git("rev-parse", "--git-common-dir").decode().strip() / "objects"
    before = os.umask(0o077)
    try:
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        (clone / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        again = dist.build(tmp_path / "again", clone, tree)
    finally:
        os.umask(before)
    assert {path.name: path.read_bytes() for path in again} == {
        path.name: path.read_bytes() for path in built.iterdir() if path.suffix != ".index"
    }


def test_an_sdist_as_setuptools_makes_it_tells_when_and_by_whom(
    dist: ModuleType, built: Path, tmp_path: Path
) -> None:
    """So the check above can fail: nobody else could build what was built."""
    (unfolded,) = dist.unpacked(built / SDIST, tmp_path / "source").iterdir()
    raw, same = [], []
    for day in (1_700_000_000, 1_800_000_000):
        os.utime(unfolded / "README.md", (day, day))
        raw.append(dist.made("sdist", unfolded, tmp_path / f"raw-{day}", 1_600_000_000))
        (tmp_path / str(day)).mkdir()
        same.append(dist.same_bytes(raw[-1], tmp_path / str(day), 1_600_000_000))
    assert raw[0].read_bytes() != raw[1].read_bytes()
    assert same[0].read_bytes() == same[1].read_bytes()


def test_wheel_and_sdist_hold_every_file_of_the_package(
    dist: ModuleType, built: Path, tmp_path: Path
) -> None:
    listed = (
        dist.git(
            "ls-tree", "-r", "--name-only", worktree(tmp_path), "stream_dp", "examples/01_flights"
        )
        .decode()
        .split()
    )
    package = {name for name in listed if name.startswith("stream_dp/")}
    data = {
        name
        for name in listed
        if name.endswith(("flights.csv.gz", "pipeline.yaml", "PROVENANCE.md"))
    }
    held = set(zipfile.ZipFile(built / WHEEL).namelist())
    assert package <= held
    assert len(data) == 3
    assert {f"stream_dp-{__version__}.data/data/share/stream_dp/{name}" for name in data} <= held
    assert not any(name.startswith(("tests/", "docs/")) for name in held)
    with tarfile.open(built / SDIST) as tar:
        assert {f"stream_dp-{__version__}/{name}" for name in package | data} <= set(tar.getnames())


def test_the_extra_names_the_compiled_step_of_this_version(built: Path, tmp_path: Path) -> None:
    """Its wheel holds one library, which the pure wheel and the sdist do not need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["native"] == [f"stream-dp-native=={__version__}"]
    (library,) = (
        name for name in zipfile.ZipFile(built / NATIVE).namelist() if "dist-info" not in name
    )
    zipfile.ZipFile(built / NATIVE).extract(library, tmp_path)
    assert Step(str(tmp_path / library)).version == __version__


def test_without_a_compiler_all_else_is_built(
    dist: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.setenv("CC", "no-such-compiler")
    assert dist.compiled(ROOT, tmp_path, 0) == []
    assert "no wheel for the extra native" in capsys.readouterr().err


def test_the_bill_of_materials_is_whole(dist: ModuleType, built: Path) -> None:
    bill = dist.json.loads((built / f"stream_dp-{__version__}.cdx.json").read_text())
    parts = bill["components"]
    refs = [part["bom-ref"] for part in parts]
    own = bill["metadata"]["component"]
    assert own["hashes"][0]["content"] == dist.sha256(built / WHEEL)
    assert (own["version"], bill["specVersion"]) == (__version__, "1.5")
    assert len(refs) == len(set(refs))
    edges = {edge["ref"]: edge["dependsOn"] for edge in bill["dependencies"]}
    assert {*edges} | {own["bom-ref"]} <= {*refs, own["bom-ref"]}
    assert {need for needs in edges.values() for need in needs} <= set(refs)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    shown = {fact["value"] for part in parts for fact in part.get("properties", ())}
    assert shown == {extra for extra, needs in extras.items() if needs} - {"dev"}
    by_name = {part["name"]: part for part in parts}
    assert {"aiokafka", "numpy", "scipy"} <= {
        name for name, part in by_name.items() if part["scope"] == "required"
    }
    assert by_name["fastapi"]["scope"] == "optional"
    assert by_name["stream-dp-native"]["hashes"][0]["content"] == dist.sha256(built / NATIVE)
    assert by_name["cryptography"]["licenses"]
    assert len([ref for ref in refs if ref.startswith("pkg:maven/")]) == len(listed_jars())
    assert {"uplot", "swagger-ui-dist"} <= by_name.keys()
    assert "pytest" not in by_name


def test_what_is_installed_and_not_locked_is_no_material(
    dist: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = (ROOT / "requirements-dev.lock").read_text()
    dist.package_part("numpy", [""], lock)
    newer: Any = SimpleNamespace(version="99.0", metadata={})
    monkeypatch.setattr(dist, "distribution", lambda name: newer)
    with pytest.raises(SystemExit, match=r"numpy 99\.0 is installed"):
        dist.package_part("numpy", [""], lock)
