"""deploy/Dockerfile: what hadolint says of it, and what it does not look at; each check is shown a broken file."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deploy.deploy_files import DEPLOY, ROOT, mutated, said_by, unknown_words
from deploy.image_steps import steps, words

FILE = (DEPLOY / "Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text()
_PINNED = re.compile(r"python:3\.(1[1-9])\.\d+-slim-\w+( AS \w+)?")


MAKEFILE = (ROOT / "Makefile").read_text()


def made_by(variable: str) -> list[str]:
    said: str
    (said,) = re.findall(rf"^{variable} := ((?:.*\\\n)*.+)", MAKEFILE, re.MULTILINE)
    return said.replace("\\\n", " ").split()


def test_the_lock_with_traces_is_made_as_the_other_one() -> None:
    """As `make lock` makes it, with one extra more, and of the versions that are locked for the tests."""
    page = (DEPLOY / "README.md").read_text()
    (line,) = re.findall(r"^    \S+/uv (?:.+\\\n)+.+", page, re.MULTILINE)
    assert line.replace("\\\n", " ").split()[1:] == [
        *made_by("COMPILE")[1:], *made_by("RUN_EXTRAS"), "--extra", "otel",
        "--constraint", "requirements-dev.lock", "--output-file", "requirements.lock",
    ]  # fmt: skip


def linted(dockerfile: str, folder: Path) -> str:
    file = folder / "Dockerfile"
    file.write_text(dockerfile)
    return said_by("hadolint", "--no-color", file)


def values(dockerfile: str, wanted: str) -> list[str]:
    return [value for instruction, value in steps(dockerfile) if instruction == wanted]


def last_stage(dockerfile: str) -> list[tuple[str, str]]:
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
    users = [value for instruction, value in last_stage(dockerfile) if instruction == "USER"]
    if len(users) != 1 or not re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", users[0]):
        yield "no numeric user that is not root"
    for instruction, value in last_stage(dockerfile):
        if instruction in {"RUN", "ADD"}:
            yield f"{instruction} in the image itself: {value}"
        state = value.endswith("/var/lib/stream-dp")
        if instruction == "COPY" and "--chown" in value and not state:
            yield f"may be written: {value}"
        if instruction == "VOLUME" and words(value) != ["/var/lib/stream-dp"]:
            yield f"VOLUME {value}"


def installs(dockerfile: str) -> Iterator[str]:
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
    known = dict(last_stage(dockerfile))
    entry, command = words(known.get("ENTRYPOINT", "")), words(known.get("CMD", ""))
    if entry != ["stream-dp"] or command is None or unknown_words(command):
        yield "no exec form of a command that exists"
    if known.get("STOPSIGNAL", "SIGTERM") != "SIGTERM":
        yield "another signal than the one that ends it"
    check = words(known.get("HEALTHCHECK", "").partition("CMD ")[2])
    if check is None or not (DEPLOY / Path(check[-1]).name).exists():
        yield "no health check by a script that is there"
    elif f"deploy/{Path(check[-1]).name} {check[-1]}" not in " ".join(values(dockerfile, "COPY")):
        yield "the script of the health check is not in the image"
    env = dict(word.split("=", 1) for v in values(dockerfile, "ENV") for word in shlex.split(v))
    if any(key.endswith(("_KEY", "_PASSWORD", "_TOKEN")) for key in env):
        yield "a secret as a value"


CHECKS = (bases, rights, installs, life)


def test_hadolint_is_content(tmp_path: Path) -> None:
    assert linted(FILE, tmp_path) == ""
    assert linted(mutated(FILE, "USER 10001:10001", "USER root"), tmp_path) != ""


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_well(check: Callable[[str], Iterator[str]]) -> None:
    assert list(check(FILE)) == []


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (bases, "python:3.11.14-slim-bookworm AS", "python:3.11-slim AS"),
        (bases, "python:3.11.14-slim-bookworm AS", "python:3.11.13-slim-bookworm AS"),
        (rights, "USER 10001:10001\n", ""),
        (rights, "USER 10001:10001", "USER 0:0"),
        (rights, "COPY --from=build /opt", "COPY --from=build --chown=10001:10001 /opt"),
        (installs, '"--require-hashes", ', ""),
        (installs, "COPY deploy/healthz.py", "ADD deploy/healthz.py"),
        (life, 'ENTRYPOINT ["stream-dp"]', "ENTRYPOINT stream-dp"),
        (life, '"--serve"', '"--served"'),
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
    copies = [value.split() for value in values(dockerfile, "COPY") if "--from" not in value]
    return {source for copy in copies for source in copy[:-1]} ^ sent(ignored)


def test_the_build_is_sent_what_it_copies_and_nothing_else() -> None:
    assert missing(IGNORED, FILE) == set()
    assert missing(mutated(IGNORED, "!LICENSE\n", ""), FILE) == {"LICENSE"}
    assert missing(mutated(IGNORED, "!LICENSE\n", "!LICENSE\n!secrets\n"), FILE) == {"secrets"}


PLACES = ("Makefile", "deploy/Dockerfile", "docs/operations.md")


def locked_installs(text: str) -> list[str]:
    """The part of each line that installs from a lock.

    pip looks for the newest `coverage[toml]` although the lock pins `coverage`, and refuses its hash; so a release of a
    stranger's package would break README's commands on every new machine.
    """
    return re.findall(r"--require-hashes[^\n`]*requirements[\w-]*\.lock", text)


@pytest.mark.parametrize("place", PLACES)
def test_installs_from_a_lock_resolve_nothing(place: str) -> None:
    lines = locked_installs((ROOT / place).read_text())
    assert lines
    assert [line for line in lines if "--no-deps" not in line] == []
