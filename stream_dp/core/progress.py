"""How far something has come, for whoever waits for it: what is being done, how much of it, of how much.

Rules: what is told is public, such as ticks, releases, games, files, or parts of a whole in percent; never records,
bytes or places of a source, unless the command is one that tells the operator exact figures and says so in `what`.
Nothing here prints: who waits decides whether and where it is shown.
"""

from typing import Protocol


class Progress(Protocol):
    """Takes what is being done now; called as often as one likes."""

    def __call__(self, what: str, done: int = 0, of: int = 0, unit: str = "", /) -> None:
        """Take it; an empty `what`: there is nothing to wait for.

        `of` is 0 where it is not known how much there is; `unit` is the noun of one thing, or %, empty
        where nothing is counted.
        """
        ...


def unseen(_what: str, _done: int = 0, _of: int = 0, _unit: str = "", /) -> None:
    """Tell nobody."""


def percent(done: int, of: int) -> tuple[int, int, str]:
    """Return a part of a whole as a `Progress` takes it.

    >>> percent(1, 3), percent(7, 0)
    ((33, 100, '%'), (0, 0, ''))
    """
    return (min(100, 100 * done // of), 100, "%") if of > 0 else (0, 0, "")
