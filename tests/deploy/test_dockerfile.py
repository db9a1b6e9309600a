"""deploy/Dockerfile: what hadolint says of it, and what it does not look at; each check is shown a broken file."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deploy.deploy_files import DEPLOY, ROOT, mutated
from deploy.image_steps import steps, words
from deploy.lint_tools import said_by, unknown_words

FILE = (DEPLOY / "Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text()
_PINNED = re.compile(r"python:3\.(1[1-9])\.\d+-slim-\w+( AS \w+)?")


MAKEFILE = (ROOT / "Makefile").read_text()


def made_by(variable: str) -> list[str]:
    """The words of a variable of the Makefile."""
    said: str
    (said,) = re.findall(rf"^{variable} := ((?:.*\\\n)*.+)", MAKEFILE, re.MULTILINE)
    return said.replace("\\\n", " ").split()


def test_the_lock_with_traces_is_made_as_the_other_one() -> None:
    """As `make lock` makes it, with one extra more, and of the versions that are locked for the tests."""
    (line,) = re.findall(
        r"^    \S+/uv (?:.+\\\n)+.+", (DEPLOY / "README.md").read_text(), re.MULTILINE
    )
    assert line.replace("\\\n", " ").split()[1:] == [
        *made_by("COMPILE")[1:], *made_by("RUN_EXTRAS"), "--extra", "otel",
        "--constraint", "requirements-dev.lock", "--output-file", "requirements.lock",
    ]  # fmt: skip


def linted(dockerfile: str, folder: Path) -> str:
    """What hadolint finds."""
    file = folder / "Dockerfile"
    file.write_text(dockerfile)
    return said_by("hadolint", "--no-color", file)


def values(dockerfile: str, wanted: str) -> list[str]:
    """The values of an instruction, in their order."""
    return [value for instruction, value in steps(dockerfile) if instruction == wanted]


def last_stage(dockerfile: str) -> list[tuple[str, str]]:
    """The steps of what becomes the image."""
    every = steps(dockerfile)
    begins = [number for number, (instruction, _) in enumerate(every) if instruction == "FROM"]
    return every[begins[-1] :]


def bases(dockerfile: str) -> Iterator[str]:
    """Bases that are not pinned, or that differ: what was built on one would run on another."""
    found = values(dockerfile, "FROM")
    yield from (value for value in found if not _PINNED.fullmatch(value))
    if len({value.split()[0] for value in found}) != 1:
        yield "the stages have different bases"


def rights(dockerfile: str) -> Iterator[str]:
    """Who runs it, and what he may write."""
    users = [value for instruction, value in last_stage(dockerfile) if instruction == "USER"]
    if len(users) != 1 or not re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", users[0]):
        yield "no numeric user that is not root"
    for instruction, value in last_stage(dockerfile):
        if instruction in {"RUN", "ADD"}:
            yield f"{instruction} in the image itself: {value}"
        if (
            instruction == "COPY"
            and "--chown" in value
            and not value.endswith("/var/lib/stream-dp")
        ):
            yield f"may be written: {value}"
        if instruction == "VOLUME" and words(value) != ["/var/lib/stream-dp"]:
            yield f"VOLUME {value}"


def installs(dockerfile: str) -> Iterator[str]:
    """Anything that is not from the lock, or without a hash."""
    for value in values(dockerfile, "RUN"):
        line = " ".join(words(value) or [value])
        for part in re.findall(r"pip (?:install|wheel|download)[^&|;]*", line):
            locked = r"--require-hashes\b.*--no-deps\b.*-r requirements\.lock"
            if not re.search(locked if " -r " in part else "--no-index|--no-deps", part):
                yield part
        if re.search(r"\b(curl|wget|apt-get|apt|git)\b", line):
            yield line
    if values(dockerfile, "ADD"):
        yield "ADD"


def life(dockerfile: str) -> Iterator[str]:
    """How it begins, is asked how it is, and ends."""
    known = dict(last_stage(dockerfile))
    entry, command = words(known.get("ENTRYPOINT", "")), words(known.get("CMD", ""))
    if entry != ["stream-dp"] or command is None or unknown_words(command):
        yield "no exec form of a command that exists"
    if known.get("STOPSIGNAL", "SIGTERM") != "SIGTERM":
        yield "another signal than the one that ends it"
    check = words(known.get("HEALTHCHECK", "").partition("CMD ")[2])
    if check is None or not (DEPLOY / Path(check[-1]).name).exists():
        yield "no health check by a script that is there"
    elif f"{DEPLOY.name}/{Path(check[-1]).name} {check[-1]}" not in " ".join(
        values(dockerfile, "COPY")
    ):
        yield "the script of the health check is not in the image"
    env = dict(word.split("=", 1) for v in values(dockerfile, "ENV") for word in shlex.split(v))
    if any(key.endswith(("_KEY", "_PASSWORD", "_TOKEN")) for key in env):
        yield "a secret as a value"


CHECKS = (bases, rights, installs, life)


def test_hadolint_is_content(tmp_path: Path) -> None:
    assert linted(FILE, tmp_path) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FROM python:3.11.14-slim-bookworm AS", "FROM python AS"),
        ("WORKDIR /src", "WORKDIR src"),
        ('RUN ["python", "-m", "venv", "/opt/stream-dp"]', "RUN cd /opt && sudo python -m venv x"),
        ('CMD ["run",', "CMD run,"),
        ("COPY deploy/healthz.py", "ADD deploy/healthz.py"),
        ("USER 10001:10001", "USER root"),
    ],
)
def test_hadolint_notices(old: str, new: str, tmp_path: Path) -> None:
    assert linted(mutated(FILE, old, new), tmp_path) != ""


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_well(check: Callable[[str], Iterator[str]]) -> None:
    assert list(check(FILE)) == []


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (bases, "python:3.11.14-slim-bookworm AS", "python:3.11-slim AS"),
        (bases, "python:3.11.14-slim-bookworm AS", "python:3.11.13-slim-bookworm AS"),
        (rights, "USER 10001:10001\n", ""),
        (rights, "USER 10001:10001", "USER stream-dp"),
        (rights, "USER 10001:10001", "USER 0:0"),
        (rights, "COPY --from=build /opt", "COPY --from=build --chown=10001:10001 /opt"),
        (rights, "USER 10001", "RUN apt-get update\nUSER 10001"),
        (installs, '"--require-hashes", ', ""),
        (installs, "COPY deploy/healthz.py", "ADD deploy/healthz.py"),
        (installs, "WORKDIR /src", "RUN curl -O https://example.org/x"),
        (life, 'ENTRYPOINT ["stream-dp"]', "ENTRYPOINT stream-dp"),
        (life, '"--serve"', '"--served"'),
        (life, "STOPSIGNAL SIGTERM", "STOPSIGNAL SIGKILL"),
        (life, "COPY deploy/healthz.py /opt", "COPY deploy/healthz.py /usr"),
        (life, "PYTHONUNBUFFERED=1", "STREAM_DP_KEY=abc"),
    ],
)
def test_a_broken_file_is_noticed(
    check: Callable[[str], Iterator[str]], old: str, new: str
) -> None:
    assert list(check(mutated(FILE, old, new))) != []


def sent(ignored: str) -> set[str]:
    """What a build is sent: the lines that let something in, of a file that begins by leaving out everything."""
    lines = [line for line in ignored.splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    return {line[1:] for line in lines if line.startswith("!")}


def missing(ignored: str, dockerfile: str) -> set[str]:
    """What is copied and not sent, or sent and not copied."""
    copies = [value.split() for value in values(dockerfile, "COPY") if "--from" not in value]
    return {source for copy in copies for source in copy[:-1]} ^ sent(ignored)


def test_the_build_is_sent_what_it_copies_and_nothing_else() -> None:
    assert missing(IGNORED, FILE) == set()
    assert missing(mutated(IGNORED, "!LICENSE\n", ""), FILE) == {"LICENSE"}
    assert missing(mutated(IGNORED, "!LICENSE\n", "!LICENSE\n!secrets\n"), FILE) == {"secrets"}
