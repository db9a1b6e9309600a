"""The work that a definition may cost: a number of steps that is counted, never a time.

Rules: the same definition takes the same number of steps on every machine. Where no limit is set, as for a pipeline
file and for definitions in a journal, steps are not bounded here. This file knows no definition.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from stream_dp.errors import UsageError

MESSAGE_STEPS = 50_000
"""How many steps the definition of a series in a message may take."""
WATCH_STEPS = 10_000
"""How many steps the definition of a watch in a message may take; its monitor stands still meanwhile."""
TICK_STEPS = 500_000
"""How many steps an analyst's messages may take between two ticks; a message that exceeds this still runs."""
_TOO_MANY = (
    "takes more steps to derive than a message may ({most:,}): give it fewer conditions and ranges that overlap, or "
    "put it into the pipeline file"
)


@dataclass(slots=True)
class Steps:
    """Steps that were taken, and the limit `most`."""

    most: int
    taken: int = 0


_LIMIT: ContextVar[Steps | None] = ContextVar("stream_dp_steps", default=None)


@contextmanager
def limited(most: int) -> Iterator[Steps]:
    """Limit the steps that are taken inside, also on a thread started from here; yield their count."""
    steps = Steps(most)
    token = _LIMIT.set(steps)
    try:
        yield steps
    finally:
        _LIMIT.reset(token)


def take_steps(number: int) -> None:
    """Count steps, if they are limited.

    Raises:
        UsageError: the limit is exceeded.
    """
    steps = _LIMIT.get()
    if steps is None:
        return
    steps.taken += number
    if steps.taken > steps.most:
        raise UsageError(_TOO_MANY.format(most=steps.most))
