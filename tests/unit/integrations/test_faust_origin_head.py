"""Heads of origins: each record is fresh once, whatever is repeated, in any order; twins count twice or lose."""

import random
from collections.abc import Callable

import pytest

from stream_dp.errors import FailClosed, UnknownFormat
from stream_dp.integrations.faust.origin_writer import HOLES, OriginHead, decoded_head


def fed(deliveries: list[int], head: OriginHead) -> tuple[list[int], OriginHead]:
    """What is fresh of these, with the head read back from its bytes after each, as after a crash."""
    found = []
    for offset in deliveries:
        fresh, head = head.take(offset)
        head = decoded_head(head.encoded(), "a head")
        found += [offset] * fresh
    return found, head


def at_least_once(chance: random.Random, offsets: list[int], *, ordered: bool) -> list[int]:
    """The offsets as Faust delivers them: from an earlier place again now and then."""
    found: list[int] = []
    given = offsets if ordered else chance.sample(offsets, len(offsets))
    at = 0
    while at < len(given):
        more = chance.randint(1, 20)
        found += given[at : at + more]
        at += more
        if chance.random() < 0.3:
            at = max(0, at - chance.randint(1, 40))
    return found


@pytest.mark.parametrize("ordered", [True, False])
def test_each_record_is_fresh_once(ordered: bool) -> None:
    """Places without a record (markers, compacted ones) and, if not ordered, records of one place after another."""
    chance = random.Random(7)
    for _ in range(50):
        offsets = sorted(chance.sample(range(400), 200))
        found, _ = fed(at_least_once(chance, offsets, ordered=ordered), OriginHead("id"))
        assert sorted(found) == offsets


def highest_alone(head: OriginHead, offset: int) -> tuple[bool, OriginHead]:
    """A twin that remembers the highest offset and no holes."""
    return offset >= head.next, OriginHead(head.origin, max(head.next, offset + 1))


def nothing_remembered(head: OriginHead, offset: int) -> tuple[bool, OriginHead]:
    """A twin that feeds whatever Faust delivers."""
    return True, OriginHead(head.origin, offset + 1)


@pytest.mark.parametrize(
    ("twin", "ordered", "wrong"),
    [(highest_alone, False, "lost"), (nothing_remembered, True, "twice")],
)
def test_twins_are_found(
    monkeypatch: pytest.MonkeyPatch, twin: Callable[..., object], ordered: bool, wrong: str
) -> None:
    monkeypatch.setattr(OriginHead, "take", twin)
    offsets = list(range(200))
    found, _ = fed(at_least_once(random.Random(7), offsets, ordered=ordered), OriginHead("id"))
    assert (len({*found}) < len(offsets)) == (wrong == "lost")
    assert (len(found) > len({*found})) == (wrong == "twice")


def test_holes_are_bounded_and_the_oldest_are_forgotten() -> None:
    head = OriginHead("id")
    for offset in range(1, 2 * HOLES + 3, 2):
        _, head = head.take(offset)
    assert len(head.holes) == HOLES
    assert head.take(0)[0] is False
    assert head.take(2 * HOLES)[0] is True
    _, split = OriginHead("id", 10, ((0, 8),)).take(4)
    assert split.holes == ((0, 3), (5, 8))


def test_heads_show_no_offset_and_other_bytes_are_refused() -> None:
    head = OriginHead("id", 4711, ((17, 18),))
    assert "4711" not in repr(head)
    assert "17" not in repr(head)
    for broken in (b"", b"\x00", head.encoded()[:-1], b"{}"):
        with pytest.raises(FailClosed, match="no head"):
            decoded_head(broken, "a head")
    with pytest.raises(UnknownFormat):
        decoded_head(b"\x94\x02" + head.encoded()[2:], "a head")
