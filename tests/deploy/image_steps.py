"""The steps of a Dockerfile, run as a script: each stage in a folder that takes the place of its root.

Rules: an instruction that is not known here is an error, never passed over. Paths of the image are those below ROOTS,
all others are this machine's. Nobody is root: where the tests are, what is run has another user.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser

ROOTS = [
    "/opt/stream-dp",
    "/src",
    "/wheel",
    "/state",
    "/var/lib/stream-dp",
    "/etc/stream-dp",
    "/run/secrets",
]
_PATHS = re.compile(rf"(?<![\w./-])(?={'|'.join(map(re.escape, ROOTS))})")
_KEPT = ("PIP_", "SSL_", "REQUESTS_", "HTTP_", "HTTPS_", "http_", "https_", "no_", "NO_")
_PASSED = ("LABEL", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "COMMENT")
ORDINARY = 10001


def steps(dockerfile: str) -> list[tuple[str, str]]:
    parser = DockerfileParser(fileobj=io.BytesIO(dockerfile.encode()))
    return [(step["instruction"], step["value"]) for step in parser.structure]


def words(value: str) -> list[str] | None:
    """The words of the exec form; None where it is a line for a shell."""
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return [str(word) for word in found]


@dataclass
class Image:
    """What the steps have made so far; `root` is the place of the stage that is under way."""

    folder: Path
    context: Path
    python: Path
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)
    ran: int = 0
    _stage: str = ""

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def place(self, path: str) -> Path:
        whole = path if path.startswith("/") else f"{self.workdir.rstrip('/')}/{path}"
        return Path(f"{self.root}{os.path.normpath(whole)}")

    def here(self, text: str) -> str:
        return _PATHS.sub(str(self.root), text)

    def take(self, dockerfile: str) -> "Image":
        for instruction, value in steps(dockerfile):
            self._step(instruction, value)
        return self

    def _step(self, instruction: str, value: str) -> None:
        if instruction == "HEALTHCHECK":
            self.healthcheck = words(value.partition("CMD ")[2]) or []
        if instruction in _PASSED:
            return
        simple = {"FROM": self._from, "ENV": self._env, "COPY": self._copy, "RUN": self._run}
        if instruction in simple:
            simple[instruction](value)
        elif instruction == "WORKDIR":
            self.workdir = value
            self.place(".").mkdir(parents=True, exist_ok=True)
        elif instruction == "USER":
            self.user = value
        elif instruction in {"ENTRYPOINT", "CMD"}:
            found = words(value)
            assert found is not None, f"{instruction} is a line for a shell"
            setattr(self, "entrypoint" if instruction == "ENTRYPOINT" else "command", found)
        else:
            raise AssertionError(f"{instruction} is not known here")

    def _from(self, value: str) -> None:
        if self.root.exists():
            self.root.rename(self.folder / f"stage-{self._stage}")
        self.root.mkdir(parents=True)
        self._stage = value.partition(" AS ")[2]
        self.env, self.workdir, self.user = {}, "/", "root"

    def _env(self, value: str) -> None:
        self.env |= dict(word.split("=", 1) for word in shlex.split(value))

    def _copy(self, value: str) -> None:
        options = [word for word in value.split() if word.startswith("--")]
        *sources, target = (word for word in value.split() if not word.startswith("--"))
        stage = next((word[7:] for word in options if word.startswith("--from=")), None)
        begin = self.context if stage is None else self.folder / f"stage-{stage}"
        for source in sources:
            found, goal = begin / source.lstrip("/"), self.place(target)
            if found.is_dir():
                shutil.copytree(found, goal, symlinks=True, dirs_exist_ok=True)
                continue
            goal = goal / found.name if target.endswith("/") else goal
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, goal)

    def _run(self, value: str) -> None:
        found = words(value)
        line = ["sh", "-c", self.here(value)] if found is None else [self.here(w) for w in found]
        own(self.root)
        ended = self.process(line).communicate(timeout=6000)[0]
        self.ran += 1
        assert self._last.returncode == 0, f"{value}\n{ended}"

    def process(
        self, line: Sequence[str], env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Begin a command of the image, as an ordinary user, with the image's environment."""
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        if not (tools / "python").exists():
            (tools / "python").symlink_to(self.python)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        own(home)
        kept = {key: text for key, text in os.environ.items() if key.startswith(_KEPT)}
        told = {key: self.here(text) for key, text in self.env.items()}
        path = f"{told.pop('PATH', '')}:{tools}:/usr/bin:/bin".lstrip(":").replace(
            "/usr/local/bin:", ""
        )
        every = {**kept, **told, "PATH": path, "HOME": str(home), **(env or {})}
        self._last = subprocess.Popen(
            line, cwd=self.place("."), env=every, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, **ordinary(),
        )  # fmt: skip
        return self._last


def ordinary() -> dict[str, Any]:
    """What makes a process one of an ordinary user: nothing where we are one."""
    if os.geteuid() != 0:
        return {}
    return {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}


def own(folder: Path) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, ORDINARY, ORDINARY, follow_symlinks=False)
