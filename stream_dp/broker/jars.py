"""The broker's folders on the user's machine, and its jars: a pinned list, fetched once, checked every time.

Rules: only the files listed in `jars.txt` are used; dependencies are not resolved. A file enters the folder of jars
only with the right sha256 (it is fetched to another folder and moved as a whole), and its sum is checked again on
each use. Several processes may do this at once.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from stream_dp.core.wording import Progress, unseen
from stream_dp.errors import StreamDPError, UsageError, WorldError

if TYPE_CHECKING:
    from jgo.maven import MavenContext

_APP = "stream-dp"


def cache_dir() -> Path:
    """Return the folder for files that can be downloaded again; STREAM_DP_HOME overrides it."""
    return _under_home("cache") or Path(platformdirs.user_cache_dir(_APP, appauthor=False))


def state_dir() -> Path:
    """Return the folder for high-water marks, keys and tokens, which must survive; STREAM_DP_HOME overrides it."""
    return _under_home("state") or Path(platformdirs.user_state_dir(_APP, appauthor=False))


def local_dir(package: Path = Path(__file__).parents[1]) -> Path:
    """Return the folder for the data of the demo and the local broker: a checkout of the source has one of its own.

    An installed package, and whoever names STREAM_DP_HOME, has them in the state folder itself.
    """
    checkout = package.resolve().parent
    if "STREAM_DP_HOME" in os.environ or not (checkout / "pyproject.toml").is_file():
        return state_dir()
    place = hashlib.sha256(os.fsencode(checkout)).hexdigest()[:8]
    return state_dir() / "checkouts" / f"{checkout.name}-{place}"


def _under_home(name: str) -> Path | None:
    home = os.environ.get("STREAM_DP_HOME")
    return Path(home).expanduser().absolute() / name if home else None


KAFKA_VERSION = "4.3.1"
_THREADS = 8
_TIMEOUT_SECONDS = 30
_WAITS_S = (1.0, 3.0, 9.0)  # before new attempts: a name may not resolve for a moment


@dataclass(frozen=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def parse_jars(text: str) -> tuple[Jar, ...]:
    """Read lines of `group:artifact:version sha256:HEX`; blank lines are skipped.

    >>> str(parse_jars("org.x:y:1.0 sha256:" + "0" * 64)[0])
    'org.x:y:1.0'
    """
    return tuple(_parse_line(line) for line in text.splitlines() if line.strip())


def _parse_line(line: str) -> Jar:
    coordinate, _, checksum = line.strip().partition(" sha256:")
    parts = coordinate.split(":")
    if len(parts) != 3 or len(checksum) != 64 or set(checksum) - set("0123456789abcdef"):
        raise StreamDPError(f"jars.txt: not `group:artifact:version sha256:HEX`: {line!r}")
    group, artifact, version = parts
    return Jar(group, artifact, version, checksum)


def listed_jars() -> tuple[Jar, ...]:
    return parse_jars((files("stream_dp.broker") / "jars.txt").read_text(encoding="utf-8"))


def jars_dir() -> Path:
    return cache_dir() / f"kafka-{KAFKA_VERSION}"


def resolve_jars(
    progress: Progress = unseen, *, folder: Path | None = None, jars: Iterable[Jar] | None = None
) -> list[Path]:
    """Return verified paths of all jars and fetch missing ones; `progress` receives the number of fetched files.

    Raises `WorldError`: the jars cannot be fetched or written, or one has a wrong sha256.
    """
    folder = folder or jars_dir()
    wanted = listed_jars() if jars is None else tuple(jars)
    pool = ThreadPoolExecutor(_THREADS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = pool.map(partial(_is_held, folder=folder), wanted)
        missing = [jar for jar, ok in zip(wanted, there, strict=True) if not ok]
        _fetch_all(missing, folder, pool, progress)
    except OSError as error:
        what = f"cannot use the folder of Kafka's jars, {folder}"
        raise WorldError(f"{what}: {_why(error)}") from error
    finally:
        pool.shutdown(cancel_futures=True)
    return [folder / jar.file_name for jar in wanted]


def _is_held(jar: Jar, folder: Path) -> bool:
    path = folder / jar.file_name
    if not path.exists():
        return False
    verify(jar, path)
    return True


def verify(jar: Jar, path: Path) -> None:
    """Delete the file and raise WorldError if its sha256 is not the listed one."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != jar.sha256:
        path.unlink()
        raise WorldError(
            f"{jar}: {path} had sha256 {digest} instead of {jar.sha256} and was deleted; start "
            "again to download it again"
        )


def _fetch_all(jars: list[Jar], folder: Path, pool: ThreadPoolExecutor, progress: Progress) -> None:
    if not jars:
        return
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as staging:
        maven = _maven(Path(staging))
        futures = [pool.submit(_fetch, jar, maven, folder) for jar in jars]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                progress("Fetching Apache Kafka", done, len(jars), "file")
        finally:
            pool.shutdown(cancel_futures=True)  # before the staging folder is deleted


def _fetch(jar: Jar, maven: "MavenContext", folder: Path) -> None:
    waits, known = iter(_WAITS_S), maven.project(jar.group, jar.artifact)
    while True:
        try:
            path = known.at_version(jar.version).artifact().resolve()
            break
        except (OSError, RuntimeError) as error:  # of requests, and of jgo
            wait = None if isinstance(error, RuntimeError) else next(waits, None)
            if wait is None:
                raise WorldError(
                    f"cannot download Kafka's file {jar} ({_why(error)}); "
                    f"check the network and start again, or put {jar.file_name} into {folder}"
                ) from error
            time.sleep(wait)
    verify(jar, path)
    path.replace(folder / jar.file_name)


def _why(error: Exception) -> str:
    """Return a word or short phrase, because the messages of requests run over several lines."""
    if isinstance(error, RuntimeError):
        return "not found in the repository"
    return getattr(error, "strerror", None) or type(error).__name__


def _maven(cache: Path) -> "MavenContext":
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        what = "fetching Kafka needs the package jgo"
        raise UsageError(f"{what}: pip install 'stream_dp[broker]'") from error
    return MavenContext(repo_cache=cache, timeout=_TIMEOUT_SECONDS)
