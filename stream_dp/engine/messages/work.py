"""How much a definition may cost to understand: a number of steps that is counted, never a time.

Rules: the same definition takes the same number of steps on every machine. Without a limit, as for a pipeline file
and for what a journal holds, steps are not bounded here. This file knows no definition.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from stream_dp.errors import UsageError

MESSAGE_STEPS = 50_000
"""How many steps the definition of a series in a message may take."""
WATCH_STEPS = 10_000
"""How many steps the definition of a watch in a message may take: its monitor stands still meanwhile."""
TICK_STEPS = 500_000
"""How many steps the messages of an analyst may take between two ticks; the message that passes this is executed."""
_TOO_MANY = (
    "takes more steps to derive than a message may ({most:,}): give it fewer conditions and ranges that overlap, or "
    "put it into the pipeline file"
)


@dataclass(slots=True)
class Steps:
    """Steps that were taken, `most` at most."""

    most: int
    taken: int = 0


_LIMIT: ContextVar[Steps | None] = ContextVar("stream_dp_steps", default=None)


@contextmanager
def limited(most: int) -> Iterator[Steps]:
    """Bound the steps that are taken inside, also on a thread that is started from here; yield their count."""
    steps = Steps(most)
    token = _LIMIT.set(steps)
    try:
        yield steps
    finally:
        _LIMIT.reset(token)


def take_steps(number: int) -> None:
    """Count steps where they are limited.

    Raises:
        UsageError: there are no more.
    """
    steps = _LIMIT.get()
    if steps is None:
        return
    steps.taken += number
    if steps.taken > steps.most:
        raise UsageError(_TOO_MANY.format(most=steps.most))
