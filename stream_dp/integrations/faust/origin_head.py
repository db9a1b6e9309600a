"""How far one partition of an origin has been fed into a pipeline's source: what of it is fresh, and what a repeat.

Rules: a head lies beside what was fed, in the same transaction, so it is never ahead of it nor behind. An offset that
was jumped over is a hole: a record that comes for it late was never fed, and is fresh. So in any order each record
is fresh once, as long as no more than `HOLES` holes lie open behind it; a partition that is read in its order opens
holes only where it has no record. Sans I/O. Offsets are private, so a head shows none.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from stream_dp.errors import FailClosed, UnknownFormat

VERSION = 1
_Content: TypeAlias = tuple[str, int, tuple[tuple[int, int], ...]]
HOLES = 1000
"""How many holes are remembered; markers of transactions leave one each, and none of those is ever filled."""


@dataclass(frozen=True, slots=True)
class OriginHead:
    """`next` is the first offset that nothing is known of; `holes` are ranges before it that brought no record.

    `origin` is what tells this topic from a later one of the same name.
    """

    origin: str
    next: int = field(default=0, repr=False)
    holes: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    def take(self, offset: int) -> tuple[bool, "OriginHead"]:
        """Return whether the record at this offset is fresh, and the head with it."""
        if offset >= self.next:
            jumped = ((self.next, offset - 1),) if offset > self.next else ()
            return True, OriginHead(self.origin, offset + 1, (*self.holes, *jumped)[-HOLES:])
        for at, (first, last) in enumerate(self.holes):
            if first <= offset <= last:
                left = tuple(
                    (low, high)
                    for low, high in ((first, offset - 1), (offset + 1, last))
                    if low <= high
                )
                holes = (*self.holes[:at], *left, *self.holes[at + 1 :])
                return True, OriginHead(self.origin, self.next, holes[-HOLES:])
        return False, self

    def encoded(self) -> bytes:
        """The head as it is stored."""
        return msgspec.msgpack.encode((VERSION, self.origin, self.next, self.holes))


def decoded(stored: bytes, what: str) -> OriginHead:
    """Return a stored head; `what` names it in errors.

    Raises:
        FailClosed: it is none.  UnknownFormat: one of another form.
    """
    try:
        version, *content = msgspec.msgpack.decode(stored, type=list[Any])
        if version != VERSION:
            raise UnknownFormat(what, "another form of heads", f"form {VERSION}")
        return OriginHead(*msgspec.convert(content, _Content))
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError):
        raise FailClosed(f"{what} is no head of an origin; bring it back as it was") from None
