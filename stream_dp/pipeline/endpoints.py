"""What surrounds a pipeline: source, clock, journal, and the file of releases.

Rules: all of it is declared and public. Secrets are named by the file that holds them. Paths are relative to
the pipeline file's folder (validation context `folder`). This file opens nothing.
"""

import re
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from stream_dp.core.tick_grid import TickGrid
from stream_dp.pipeline.scalars import Duration, Frozen, Moment, problem, refuse

_LAST_MOMENT = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last that a release can print
_SHORTEST_DELAY = 100
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", re.ASCII)


def _below(path: Path, info: ValidationInfo) -> Path:
    """Paths are relative to the pipeline file's folder, where that is known."""
    folder = (info.context or {}).get("folder")
    return path if folder is None else Path(folder) / path


def _written(path: object) -> object:
    if path == "":
        raise ValueError("must not be empty")
    return path


def _addresses(value: str) -> str:
    for address in value.split(","):
        match = _ADDRESS.fullmatch(address.strip())
        if match is None or not 0 < int(match[2]) < 65536:
            raise ValueError("must be host:port, or several with commas between")
    return value


def _settling(delay: int) -> int:
    if delay < _SHORTEST_DELAY:
        raise ValueError(
            f"must be {_SHORTEST_DELAY}ms or more: half of it is for clocks that differ, half for the commit"
        )
    return delay


LocalPath: TypeAlias = Annotated[Path, BeforeValidator(_written), AfterValidator(_below)]
Horizon: TypeAlias = Annotated[int, Field(ge=1, le=10**9)]


class Security(Frozen):
    """How to speak to the broker; secrets stay in files of their own."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    password_file: LocalPath | None = None
    ca_file: LocalPath | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Security":
        login = (self.mechanism, self.username, self.password_file)
        if self.protocol.startswith("SASL") and None in login:
            raise ValueError(f"{self.protocol} needs mechanism, username and password_file")
        if not self.protocol.startswith("SASL") and login != (None, None, None):
            raise ValueError(f"{self.protocol} takes no mechanism, username or password_file")
        if not self.protocol.endswith("SSL") and self.ca_file is not None:
            raise ValueError(f"{self.protocol} takes no ca_file")
        return self


class SourceSpec(Frozen):
    """Where events come from.

    A source is a subclass with a line in `SOURCES`, and an adapter with a line in `app.wiring.OPENERS`. `stamped`:
    records carry the time of their arrival, which a wall clock needs; `journals` are the kinds that can go with it, the
    first one by default.
    """

    stamped: ClassVar[bool] = False
    journals: ClassVar[tuple[str, ...]] = ("sqlite",)

    kind: str


class KafkaSourceSpec(SourceSpec):
    """A Kafka topic."""

    stamped: ClassVar[bool] = True
    journals: ClassVar[tuple[str, ...]] = ("kafka", "sqlite")

    kind: Literal["kafka"] = "kafka"
    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    bootstrap: Annotated[str, AfterValidator(_addresses)]
    security: Security | None = None


class FileSourceSpec(SourceSpec):
    """A CSV or JSON-lines file, gzip or not."""

    kind: Literal["file"] = "file"
    path: LocalPath

    @model_validator(mode="after")
    def _known_format(self) -> "FileSourceSpec":
        if not self.path.name.removesuffix(".gz").endswith((".csv", ".jsonl")):
            refuse([problem(("path",), "must end in .csv, .jsonl, .csv.gz or .jsonl.gz")])
        return self


SOURCES: tuple[type[SourceSpec], ...] = (
    KafkaSourceSpec,
    FileSourceSpec,
)

if TYPE_CHECKING:
    Source: TypeAlias = SourceSpec
else:
    Source = Annotated[reduce(or_, SOURCES), Field(discriminator="kind")]


def source_named(kind: object) -> type[SourceSpec] | None:
    """Return the source of this kind, if there is one."""
    return {each.model_fields["kind"].default: each for each in SOURCES}.get(kind)


class ReplayClock(Frozen):
    """The records' own, public times decide; the grid is declared."""

    kind: Literal["replay"] = "replay"
    field: str
    start: Moment
    step: Duration
    horizon: Horizon
    block: Horizon = 1

    @property
    def grid(self) -> TickGrid:
        """The declared grid."""
        return TickGrid(self.start, self.step, self.horizon)

    @model_validator(mode="after")
    def _printable(self) -> "ReplayClock":
        if self.grid.end(self.horizon - 1) > _LAST_MOMENT:
            refuse([problem(("horizon",), "the last tick would end after the year 9999")])
        return self


class WallClock(Frozen):
    """The broker's append stamps decide; a tick is published `delay` after its end, whatever came in.

    Half of the delay is how far the clocks of brokers and engine may differ, half is for the commit.
    """

    kind: Literal["wall"] = "wall"
    step: Duration
    delay: Annotated[Duration, AfterValidator(_settling)] = 500
    horizon: Horizon | None = None
    start: Moment | None = None


Clock: TypeAlias = Annotated[ReplayClock | WallClock, Field(discriminator="kind")]


class KafkaJournalSpec(Frozen):
    """Commits and releases in topics of the source's broker."""

    kind: Literal["kafka"] = "kafka"


class SqliteJournalSpec(Frozen):
    """Commits in a local database file."""

    kind: Literal["sqlite"] = "sqlite"
    path: LocalPath


Journal: TypeAlias = Annotated[KafkaJournalSpec | SqliteJournalSpec, Field(discriminator="kind")]


class ReleasesFile(Frozen):
    """Where releases go when there is no Kafka journal."""

    path: LocalPath
