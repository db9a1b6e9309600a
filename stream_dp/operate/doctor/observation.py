"""One line of the doctor's report."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How good what was found is; `UNCHECKED` could not be looked at."""

    OK = "ok"
    UNCHECKED = "not checked"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Observation:
    """What was looked at, what was found, and the command or key that mends it.

    `exit_code` is that of the doctor: 4, 5, or 0 for all that is not wrong.
    """

    level: Level
    about: str
    says: str
    mend: str = ""
    exit_code: int = 0


def fine(about: str, says: str) -> Observation:
    """All is well."""
    return Observation(Level.OK, about, says)


def unchecked(about: str, says: str, mend: str) -> Observation:
    """It could not be looked at."""
    return Observation(Level.UNCHECKED, about, says, mend)


def warning(about: str, says: str, mend: str) -> Observation:
    """It works, but not for ever, or not in every weather."""
    return Observation(Level.WARNING, about, says, mend)


def closed(about: str, says: str, mend: str) -> Observation:
    """An engine would stop here rather than risk something."""
    return Observation(Level.WRONG, about, says, mend, 4)


def denied(about: str, says: str, mend: str) -> Observation:
    """The world would say no: no answer, no login, no right, no space."""
    return Observation(Level.WRONG, about, says, mend, 5)


def exit_code(findings: Sequence[Observation]) -> int:
    """The worst of all: 5 before 4 before 0, for what cannot be reached hides what is behind it."""
    return max((finding.exit_code for finding in findings), default=0)
