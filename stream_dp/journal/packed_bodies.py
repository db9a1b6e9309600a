"""The bodies of a commit's releases in fewer bytes: without what commit and release say already, phrases as one byte.

Rules: the bodies stand in a text of their own, with nothing private in it, so its length is a function of what will be
public; rows are never packed, for what they take in fewer bytes would depend on them. What would not come back byte for
byte is not packed. A place in `PHRASES` keeps its meaning: add at the end only. A phrase is written as a control
character, of which JSON has none.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import msgspec

from stream_dp.core.time import moment_text, parse_moment

PHRASES = (
    b',"confidence":0.95}\n', b',"confidence":0.95}', b'","value":', b',"band":', b'","values":{"', b'},"band":',
    b'","windows":{"', b'{"value":', b'{"values":{"', b',"low":', b',"high":', b',"confidence":', b'},"', b'":', b',"',
)  # fmt: skip
_BETWEEN, _END = b"\n", b"\0"  # releases of a tick, ticks
_CODES = [bytes((code,)) for code in range(1, 32) if code != _BETWEEN[0]]
_PACKING = [*zip(PHRASES, _CODES, strict=False)]
_WIDE = 1 << 10  # bytes of a body, on average: in wider ones phrases are few
_NO_JSON = bytes(range(32))
_Fields: TypeAlias = tuple[int, str, int, bytes]


class Body(Protocol):
    """What there is of a release: number, series, tick and body."""

    @property
    def sequence(self) -> int: ...
    @property
    def series(self) -> str: ...
    @property
    def tick(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class PackedBodies(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The releases of a commit, numbered from `sequence` on; its ticks end at `end`, `end` + `step`, ... (ms).

    `text` has of each release the name and, behind a quotation mark, what follows the end of its tick in the body.
    """

    sequence: int
    end: int
    step: int
    text: bytes

    def __repr__(self) -> str:
        return "<PackedBodies>"

    def unpacked(self, ticks: Sequence[int]) -> Iterator[_Fields]:
        """Yield number, series, tick and body of each release; ValueError if they are not those of these ticks."""
        text, number = self.text, self.sequence
        for phrase, code in _PACKING:
            text = text.replace(code, phrase)
        ends = _ends(self.end, self.step, len(ticks))
        for tick, end, told in zip(ticks, ends, text.split(_END), strict=True):
            for line in told.split(_BETWEEN):
                name, _, rest = line.partition(b'"')
                yield number, name.decode(), tick, _head(number, name, tick) + end + rest
                number += 1


def packed(ticks: Sequence[int], releases: Sequence[Body]) -> PackedBodies | None:
    """Return the releases of these ticks packed; None where they would not come back as they are."""
    if not releases or sum(len(release.body) for release in releases) > _WIDE * len(releases):
        return None
    told, ends, number = list[list[bytes]](), list[bytes](), releases[0].sequence
    for release in releases:
        name, tick, body = release.series.encode(), release.tick, release.body
        head = _head(number, name, tick)
        if len(told) == 0 or tick != ticks[len(told) - 1]:
            if ticks[len(told) : len(told) + 1] != (tick,):
                return None
            told.append([])
            ends.append(body[len(head) : body.find(b'"', len(head)) + 1])
        head += ends[-1]
        if release.sequence != number or b'"' in name or not body.startswith(head):
            return None
        told[-1].append(name + b'"' + body[len(head) :])
        number += 1
    moments = [parse_moment(end[:-1].decode("ascii", "replace")) for end in ends[:2]]
    end, text = moments[0], _END.join(map(_BETWEEN.join, told))
    step = (moments[-1] or 0) - (end or 0)
    if end is None or _ends(end, step, len(ticks)) != ends:
        return None
    if len(text.translate(None, _NO_JSON)) != len(text) - len(releases) + 1:
        return None
    for phrase, code in _PACKING:
        text = text.replace(phrase, code)
    return PackedBodies(releases[0].sequence, end, step, text)


def _ends(end: int, step: int, number: int) -> list[bytes]:
    """Return the ends of so many ticks as they stand in bodies, with the quotation mark behind; none if one is none."""
    try:
        return [moment_text(end + at * step).encode() + b'"' for at in range(number)]
    except OverflowError:
        return []


def _head(sequence: int, name: bytes, tick: int) -> bytes:
    return b'{"v":1,"sequence":%d,"series":"%b","tick":%d,"end":"' % (sequence, name, tick)
