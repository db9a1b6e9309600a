"""Progress of a long task: what is being done, how much is done, and of how much.

Rules: progress is public: ticks, releases, games, files, or percent; never records, bytes or places of a source,
except in a command that shows the operator exact figures and says so in `what`. Nothing here prints: the caller
decides whether and where progress is shown.
"""

from typing import Protocol


class Progress(Protocol):
    """Receiver of progress; it may be called at any rate."""

    def __call__(self, what: str, done: int = 0, of: int = 0, unit: str = "", /) -> None:
        """Take the progress; an empty `what` means that there is nothing to wait for.

        `of` is 0 where the total is not known; `unit` is the noun of one thing, or %, or empty where nothing is
        counted.
        """
        ...


def unseen(_what: str, _done: int = 0, _of: int = 0, _unit: str = "", /) -> None:
    """Ignore the progress."""


def percent(done: int, of: int) -> tuple[int, int, str]:
    """Return a part of a whole as the arguments `done`, `of` and `unit` of a `Progress`.

    >>> percent(1, 3), percent(7, 0)
    ((33, 100, '%'), (0, 0, ''))
    """
    return (min(100, 100 * done // of), 100, "%") if of > 0 else (0, 0, "")
