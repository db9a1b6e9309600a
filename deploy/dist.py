"""Builds wheels, sdist, SBOM and their sums from the last commit, the same bytes each time: `python deploy/dist.py`.

Rules: only what is committed is built, as `git archive` gives it, with the commit's time in place of the clock's. The
build backend is the installed one (no isolation), and the wheel is built from the sdist. The SBOM has what the extras
of users need on this system and Python, in the versions of requirements-dev.lock; what an installation gets is newer
where no lock is used. The wheel of the compiled step is for this system and its processor, and is left out, as one is
told, where there is no C compiler.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.message import Message
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
NOT_FOR_USERS = ("dev",)
NATIVE = "native"  # the extra that needs a wheel of our own
LATEST = 2**32 - 1  # in the header of gzip


def git(*arguments: str, root: Path = ROOT) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout  # noqa: S603, S607


def build(out: Path, root: Path = ROOT, tree: str = "HEAD") -> list[Path]:
    """Write wheels, sdist, SBOM and SHA256SUMS of a commit or tree of `root` into `out`; return their paths."""
    when = int(git("log", "-1", "--format=%ct", root=root))
    commit = git("rev-parse", "HEAD", root=root).decode().strip()
    out.mkdir(parents=True, exist_ok=True)
    before = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            whole = folder / "commit.tar"
            whole.write_bytes(git("-c", "tar.umask=0022", "archive", tree, root=root))
            source = unpacked(whole, folder / "source")
            sdist = same_bytes(made("sdist", source, folder / "made", when), out, when)
            (unfolded,) = unpacked(sdist, folder / "sdist").iterdir()
            wheel = made("wheel", unfolded, out, when)
            native = compiled(source, out, when)
            sbom = out / f"{wheel.name.partition('-py3')[0]}.cdx.json"
            sbom.write_text(json.dumps(bill(source, wheel, native, commit, when), indent=1) + "\n")
    finally:
        os.umask(before)
    files = [wheel, sdist, sbom, *native]
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{sha256(file)}  {file.name}\n" for file in files))
    return [*files, sums]


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def made(kind: str, source: Path, out: Path, when: int) -> Path:
    """Build a wheel or an sdist of the folder `source` into `out` and return its path."""
    command = [
        sys.executable,
        "-m",
        "build",
        f"--{kind}",
        "--no-isolation",
        "--outdir",
        str(out),
        str(source),
    ]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(when)}
    environment.pop("PYTHONPATH", None)
    ended = subprocess.run(  # noqa: S603
        command, env=environment, cwd=source, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"building the {kind} failed:\n{ended.stdout}{ended.stderr}")
    ending = {"wheel": "*.whl", "sdist": "*.tar.gz"}[kind]
    return max(out.glob(ending), key=lambda path: path.stat().st_mtime_ns)


def compiled(source: Path, out: Path, when: int) -> list[Path]:
    """Build the wheel of the compiled step into `out`; return its path, or nothing where there is no compiler."""
    os.environ.setdefault("CC", "cc")
    if shutil.which(os.environ["CC"]) is None:
        sys.stderr.write(
            f"No C compiler ({os.environ['CC']}), so no wheel for the extra {NATIVE}\n"
        )
        return []
    return [made("wheel", source / "deploy" / "native", out, when)]


def same_bytes(sdist: Path, out: Path, when: int) -> Path:
    """Write the sdist into `out` without clock, user and order of this machine's files, and return its path."""
    written = out / sdist.name
    with (
        tarfile.open(sdist) as read,
        written.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, min(when, LATEST)) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member in sorted(read.getmembers(), key=lambda member: member.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, when
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            tar.addfile(plain, read.extractfile(member) if member.isfile() else None)
    return written


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- the bill of materials: CycloneDX 1.5 ---------------------------------------------------------


def bill(source: Path, wheel: Path, native: list[Path], commit: str, when: int) -> dict[str, Any]:
    """Return the SBOM: Python packages with their licences and who needs whom, Kafka's jars, vendored scripts."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    own = f"pkg:generic/{name}@{version}"
    extras = {
        extra: needs
        for extra, needs in project["optional-dependencies"].items()
        if extra not in (*NOT_FOR_USERS, NATIVE)
    }
    lock = (source / "requirements-dev.lock").read_text()
    edges: dict[str, list[str]] = {}
    needed_by: dict[str, list[str]] = {}
    for extra, needs in {"": project["dependencies"], **extras}.items():
        for package in closure(needs, edges):
            needed_by.setdefault(package, []).append(extra)
    packages = [
        package_part(each, extras_of, lock) for each, extras_of in sorted(needed_by.items())
    ]
    direct = {canonicalize_name(Requirement(each).name) for each in project["dependencies"]}
    refs = {
        package: part["bom-ref"] for package, part in zip(sorted(needed_by), packages, strict=True)
    }
    others = [*jars(source), *vendored(source), *of_ours(native, version, project["license"])]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'{own} {commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                **part("application", own, name, version, project["license"]),
                "description": project["description"],
                "hashes": [{"alg": "SHA-256", "content": sha256(wheel)}],
                "properties": [
                    {"name": "stream_dp:commit", "value": commit},
                    {
                        "name": "stream_dp:python",
                        "value": f"{sys.version_info[0]}.{sys.version_info[1]}",
                    },
                    {"name": "stream_dp:platform", "value": sys.platform},
                ],
            },
        },
        "components": [*packages, *others],
        "dependencies": [
            {"ref": own, "dependsOn": [refs[each] for each in sorted(direct)]},
            *(
                {"ref": refs[each], "dependsOn": sorted(refs[need] for need in edges[each])}
                for each in sorted(needed_by)
            ),
        ],
    }


def closure(requirements: list[str], edges: dict[str, list[str]]) -> set[str]:
    """Return the names of all packages that these requirements bring here; note in `edges` what each needs itself."""
    found: dict[str, set[str]] = {}
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        wanted = waiting.pop()
        name, extras = canonicalize_name(wanted.name), {"", *wanted.extras}
        new = extras - found.get(name, set())
        if not new:
            continue
        found.setdefault(name, set()).update(extras)
        needs = [Requirement(each) for each in distribution(name).requires or []]
        there = [need for need in needs if _applies(need, new)]
        edges[name] = sorted({*edges.get(name, []), *(canonicalize_name(n.name) for n in there)})
        waiting += there
    return set(found)


def _applies(need: Requirement, extras: set[str]) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)


def part(kind: str, purl: str, name: str, version: str, licence: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": kind, "bom-ref": purl, "name": name, "version": version}
    if licence:
        shown["licenses"] = [{"license": {"name": licence}}]
    return {**shown, "purl": purl}


def package_part(name: str, extras: list[str], lock: str) -> dict[str, Any]:
    """Return a Python package; SystemExit if what is installed is not what is locked."""
    installed = distribution(name)
    if f"\n{name}=={installed.version} " not in f"\n{lock}":
        raise SystemExit(
            f"{name} {installed.version} is installed, which requirements-dev.lock does not have"
        )
    purl = f"pkg:pypi/{name}@{installed.version}"
    told = part("library", purl, name, installed.version, licence_of(installed.metadata))  # type: ignore[arg-type]
    told["scope"] = "required" if "" in extras else "optional"
    if "" not in extras:
        told["properties"] = [{"name": "stream_dp:extra", "value": extra} for extra in extras]
    return told


def licence_of(metadata: Message | Mapping[str, Any]) -> str:
    """Return the licence in the words of the package's own metadata, or nothing."""
    known = metadata.get("License-Expression") or str(metadata.get("License") or "").strip()
    if known and "\n" not in known:
        return str(known)
    classifiers = metadata.get_all("Classifier") if isinstance(metadata, Message) else []
    named = [
        each.rpartition(" :: ")[2] for each in classifiers or [] if each.startswith("License ::")
    ]
    return ", ".join(named) or str(known).partition("\n")[0]


def jars(source: Path) -> Iterator[dict[str, Any]]:
    """Yield Apache Kafka's jars, which `stream-dp broker` and the demo fetch and which no wheel holds."""
    for line in (source / "stream_dp" / "broker" / "jars.txt").read_text().split("\n"):
        if line:
            group, artifact, version, digest = re.split(r":| sha256:", line)
            told = part("library", f"pkg:maven/{group}/{artifact}@{version}", artifact, version, "")
            told |= {
                "group": group,
                "scope": "optional",
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
            yield told


def vendored(source: Path) -> Iterator[dict[str, Any]]:
    """Yield the scripts of others that the wheel holds."""
    server = source / "stream_dp" / "server"
    for name, licence, said_in, pattern, file in (
        ("uplot", "MIT", "page/uplot.min.js", r"uPlot \(v([\d.]+)\)", "page/uplot.min.js"),
        ("swagger-ui-dist", "Apache-2.0", "docs/swagger-ui.LICENSE.txt", r"Swagger UI ([\d.]+) ",
         "docs/swagger-ui.min.js"),
    ):  # fmt: skip
        (version,) = re.findall(pattern, (server / said_in).read_text(encoding="utf-8"))[:1]
        told = part("library", f"pkg:npm/{name}@{version}", name, version, licence)
        yield {
            **told,
            "scope": "required",
            "hashes": [{"alg": "SHA-256", "content": sha256(server / file)}],
        }


def of_ours(native: list[Path], version: str, licence: str) -> Iterator[dict[str, Any]]:
    """Yield the wheel of the compiled step."""
    for wheel in native:
        name = "stream-dp-native"
        yield {
            **part("library", f"pkg:generic/{name}@{version}", name, version, licence),
            "scope": "optional",
            "hashes": [{"alg": "SHA-256", "content": sha256(wheel)}],
            "properties": [{"name": "stream_dp:extra", "value": NATIVE}],
        }


def main() -> None:
    if git("status", "--porcelain", "--untracked-files=no"):
        sys.stderr.write("Not committed, so not in what is built: git status tells which files\n")
    for file in build(ROOT / "dist"):
        sys.stdout.write(f"{sha256(file)}  {file.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
