"""The one exception tree. Each class carries the exit code of the command line (docs/commands.md, "Exit codes").

Rules: a message says what was wrong, where (file, line, key, topic, partition) and what to do. It never
carries event content, an exact count or an offset. This file knows nothing of any other module.
"""

from typing import ClassVar


class StreamDPError(Exception):
    """Base of every error this package raises on purpose; exit code 1 (a bug of ours)."""

    exit_code: ClassVar[int] = 1


class UsageError(StreamDPError):
    """Bad usage or a bad pipeline file; every problem is listed at once."""

    exit_code = 2


class BudgetRefused(StreamDPError):
    """The privacy budget does not cover what was asked; nothing was changed."""

    exit_code = 3


class FailClosed(StreamDPError):
    """The engine stops rather than risk a second version of a published fact or a cost that was not charged."""

    exit_code = 4


class TakenOver(FailClosed):
    """Another engine of the pipeline has its lease."""


class Unconfirmed(FailClosed):
    """Nothing speaks against this journal, but what should confirm it has expired; what is public may do so still."""


class ReleasesMissing(FailClosed):
    """Releases are not there, although later ones are: those from number (or tick) `first` to `last`."""

    def __init__(self, first: int, last: int, where: str) -> None:
        missing = str(first) if first == last else f"{first} to {last}"
        super().__init__(f"{where}: {missing} missing, although later ones are there")
        self.first, self.last = first, last


class UnknownFormat(FailClosed):
    """Something was written in a form that this version does not read; it was left as it is."""

    def __init__(self, what: str, found: str, reads: str) -> None:
        super().__init__(
            f"{what} has {found}, and this version of stream_dp reads {reads}: use the version that wrote it"
        )


class WorldError(StreamDPError):
    """The broker, the network, credentials or the disk failed; nothing was released."""

    exit_code = 5


class Outage(WorldError):
    """The world does not answer for now; the same may succeed later, so an engine that ran tries again."""


class NotDerivable(UsageError):
    """A guarantee was asked for that no rule with satisfied side conditions derives."""


class BrokenCondition(NotDerivable):
    """A rule was applied outside its conditions; `reason` names those that do not hold."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule} does not apply: {reason}")
        self.reason = reason


class RejectedMessage(StreamDPError):
    """A mechanism refused a message (wrong type, shape or sign); its state is unchanged."""


class TaintError(StreamDPError):
    """A composite mechanism let private data decide, leave or be formatted ([HSV] 6.3: destination, response)."""


class InvalidCost(UsageError):
    """A cost that is no positive, finite, exact number; nothing was charged."""


class NoRoom(UsageError):
    """A live series has no room beside those that its ledger has at once; nothing was done."""


class MostlyNoise(UsageError):
    """An alarm would fire mostly by noise, and nobody confirmed that it shall run all the same; nothing was done."""


class UnknownMechanism(UsageError):
    """No mechanism of this name runs: it was never created, or it has been halted."""


class NotAccepted(UsageError):
    """What was sent is not accepted as the message of an id; `kind` is one of `RefusalKind`; nothing was done."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class NotYours(UsageError):
    """An analyst asked for what is another one's; nothing was done."""


class EngineEnded(UsageError):
    """The engine that was asked has ended; nothing was done."""


class IllegalMove(StreamDPError):
    """A lifecycle was sent into a phase that does not follow (engine/phases.py); it stays where it was."""

    def __init__(self, phase: str, then: str) -> None:
        super().__init__(f"{then} does not follow {phase}: nothing has changed")
