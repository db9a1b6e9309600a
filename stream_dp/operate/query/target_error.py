"""Finds the least epsilon for a wanted expected error of a series, before a preview.

Rules: a definition with `error` instead of `epsilon` is priced from public facts (the pipeline file and the
prediction) and draws no noise. Candidates are exact decimals of three digits, so the result can be written and read
without rounding. At most `STEPS` candidates are tried, on a thread, each followed by a pause of the same length;
one search runs at a time, and each analyst has at most one.
"""

import asyncio
import json
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import msgspec

from stream_dp.accounting.amounts import text
from stream_dp.engine.messages.answer_words import not_accepted
from stream_dp.errors import UsageError
from stream_dp.journal.answer_body import RefusalKind

STEPS = 24
_DIGITS, _LEAST, _LAST = 900, -6, 8 * 900
"""Number of three-digit decimals between two powers of ten; the smallest power of ten; the index of 100."""
_ERROR = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
_UNREACHABLE = (
    "error: no epsilon up to 100 makes the expected error this small; ask for a larger error, for another window or "
    "for another statistic"
)
_UNDER_WAY = "a search for an error of this analyst is under way; nothing was done, ask again when it has its answer"

Predicted: TypeAlias = Callable[[bytes], Awaitable[float]]
"""Returns the expected half-width of a definition."""


@dataclass(slots=True)
class ErrorSearch:
    """Runs the searches of all analysts one after the other."""

    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: set[str] = field(default_factory=set)

    async def priced(self, definition: bytes, payer: str, predicted: Predicted) -> bytes:
        """Return the definition with the epsilon that its `error` needs; a definition without `error` is unchanged.

        Raises:
            UsageError: no epsilon reaches this error, or the definition is not valid.
            NotAccepted: a search of the payer is running.
        """
        parts = _parts(definition)
        if "error" not in parts:
            return definition
        wanted = _error(parts)
        if payer in self._waiting:
            raise not_accepted(RefusalKind.RATE, _UNDER_WAY)
        self._waiting.add(payer)
        try:
            async with self._turn:
                return _with(parts, await _least(parts, wanted, predicted))
        finally:
            self._waiting.discard(payer)


def decimal(place: int) -> Fraction:
    """Return the three-digit decimal with this index in increasing order: 10^-6 at 0, 100 at the last.

    >>> [str(decimal(place)) for place in (0, 6 * 900, 6 * 900 + 1)]
    ['1/1000000', '1', '101/100']
    """
    tens, digits = divmod(place, _DIGITS)
    return Fraction(digits + 100, 100) * Fraction(10) ** (tens + _LEAST)


def place_of(amount: Fraction) -> int:
    """Return the index of the largest three-digit decimal up to this amount, or the nearest index if there is none.

    >>> str(decimal(place_of(Fraction(2, 3)))), place_of(Fraction(0)), decimal(place_of(Fraction(1000)))
    ('333/500', 0, Fraction(100, 1))
    """
    return max(0, bisect_right(range(_LAST + 1), amount, key=decimal) - 1)


async def _least(
    parts: Mapping[str, msgspec.Raw], wanted: Fraction, predicted: Predicted
) -> Fraction:
    """Return the least decimal whose expected error is at most `wanted`, or a slightly larger one if steps run out.

    Raises:
        UsageError: the definition is not valid, or no decimal is large enough.
    """
    steps, loop = STEPS, asyncio.get_running_loop()

    async def at(place: int) -> Fraction:
        nonlocal steps
        steps, began = steps - 1, loop.time()
        found = Fraction(await predicted(_with(parts, decimal(place))))
        await asyncio.sleep(loop.time() - began)
        return found

    async def reached(place: int) -> bool:
        try:
            return await at(place) <= wanted
        except UsageError:
            return False  # epsilon is too small to draw its noise

    error = await at(place_of(Fraction(1)))  # refuses an invalid definition
    near = place_of(error / wanted) if wanted else _LAST  # error ~ 1 / epsilon
    high, step = min(_LAST, near + 9), 90
    while not await reached(high):
        if high == _LAST:
            raise UsageError(_UNREACHABLE)
        high, step = min(_LAST, high + step), 5 * step
    low, step = high - 1, 18
    while low >= 0 and steps > 0 and await reached(low):
        low, high, step = low - step, low, 5 * step
    low = max(low, -1)
    while high - low > 1 and steps > 0:
        middle = (low + high) // 2
        low, high = (low, middle) if await reached(middle) else (middle, high)
    return decimal(high)


def _parts(definition: bytes) -> dict[str, msgspec.Raw]:
    """Return the definition's values as JSON bytes, by key; empty if the engine will refuse it as no object."""
    try:
        return msgspec.json.decode(definition, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _error(parts: dict[str, msgspec.Raw]) -> Fraction:
    if "epsilon" in parts:
        raise UsageError("error: name either an epsilon or the error that you want, not both")
    said = bytes(parts.pop("error")).decode().strip('"')
    if _ERROR.fullmatch(said) is None:
        raise UsageError("error: must be a number of at least 0, such as 25 or 0.5")
    return Fraction(said)


def _with(parts: Mapping[str, msgspec.Raw], epsilon: Fraction) -> bytes:
    priced = {**parts, "epsilon": msgspec.Raw(json.dumps(text(epsilon)).encode())}
    return msgspec.json.encode(priced)
