"""One line of the doctor's report."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How good the finding is; `UNCHECKED` means that the check could not be made."""

    OK = "ok"
    UNCHECKED = "not checked"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Observation:
    """One finding: its subject, the result, and the command or key that mends it.

    `exit_code` is the doctor's exit code for this finding: 4, 5, or 0 if nothing is wrong.
    """

    level: Level
    about: str
    says: str
    mend: str = ""
    exit_code: int = 0


def fine(about: str, says: str) -> Observation:
    """Return a finding without a problem."""
    return Observation(Level.OK, about, says)


def unchecked(about: str, says: str, mend: str) -> Observation:
    """Return a finding that could not be checked."""
    return Observation(Level.UNCHECKED, about, says, mend)


def warning(about: str, says: str, mend: str) -> Observation:
    """Return a finding of a problem that may stop an engine later."""
    return Observation(Level.WARNING, about, says, mend)


def closed(about: str, says: str, mend: str) -> Observation:
    """Return a finding on which an engine would stop to stay safe."""
    return Observation(Level.WRONG, about, says, mend, 4)


def denied(about: str, says: str, mend: str) -> Observation:
    """Return a finding that the environment refuses: no answer, no login, no right or no space."""
    return Observation(Level.WRONG, about, says, mend, 5)


def exit_code(findings: Sequence[Observation]) -> int:
    """Return the worst exit code: 5 before 4 before 0, because an unreachable part hides the problems behind it."""
    return max((finding.exit_code for finding in findings), default=0)
