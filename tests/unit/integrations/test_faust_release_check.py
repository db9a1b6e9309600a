"""Releases in a stream: repeats are dropped, gaps and second versions refused; a twin that looks for none is found."""

import json

import pytest

from stream_dp.errors import FailClosed
from stream_dp.integrations.faust import release_stream
from stream_dp.integrations.faust.release_stream import ReleaseCheck
from stream_dp.python.tick_release import PublicRelease


def body(sequence: int, value: int = 1) -> bytes:
    """A release of a count."""
    return json.dumps({
        "v": 1, "sequence": sequence, "series": "all", "tick": sequence - 1, "end": "2026-01-01T00:01:00Z",
        "value": value, "band": 3, "confidence": 0.95,
    }).encode()  # fmt: skip


def given(check: ReleaseCheck, *bodies: bytes) -> list[int]:
    """The sequences that are handed out, each dealt with."""
    found = []
    for one in bodies:
        release = check.fresh(one)
        if release is not None:
            found.append(release.sequence)
            check.done(release)
    return found


def test_repeats_are_dropped_also_after_a_restart() -> None:
    seen: dict[str, object] = {}
    assert given(ReleaseCheck("p", seen), body(3), body(4), body(4), body(3), body(5)) == [3, 4, 5]
    assert given(ReleaseCheck("p", seen), body(4), body(5), body(6)) == [6]
    assert seen["p"] == json.loads(json.dumps(seen["p"]))  # as a table stores it


def test_what_was_not_dealt_with_comes_again() -> None:
    seen: dict[str, object] = {}
    check = ReleaseCheck("p", seen)
    assert check.fresh(body(1)) is not None
    assert given(ReleaseCheck("p", seen), body(1), body(2)) == [1, 2]


def missed(check: ReleaseCheck) -> bool:
    """Whether a planted gap goes unnoticed."""
    try:
        given(check, body(1), body(2), body(4))
    except FailClosed:
        return False
    return True


def test_a_gap_is_refused_and_a_twin_that_looks_for_none_is_found() -> None:
    class Unchecked(ReleaseCheck):
        """Knows repeats only."""

        def fresh(self, body: bytes) -> PublicRelease | None:
            release, known = PublicRelease.of(body), self._seen.get(self._pipeline)
            return None if known is not None and release.sequence <= known[0] else release

    assert not missed(ReleaseCheck("p"))
    assert missed(Unchecked("p"))


@pytest.mark.parametrize("again", [1, 2])
def test_a_second_version_is_refused_also_after_a_restart(again: int) -> None:
    seen: dict[str, object] = {}
    given(check := ReleaseCheck("p", seen), body(1), body(2))
    with pytest.raises(FailClosed, match="two versions"):
        check.fresh(body(again, value=2))
    with pytest.raises(FailClosed, match="two versions"):
        ReleaseCheck("p", seen).fresh(body(2, value=2))


def test_how_many_are_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_stream, "REMEMBERED", 3)
    given(check := ReleaseCheck("p"), *(body(n) for n in range(1, 10)))
    assert len(check._digests) == 3
    assert check.fresh(body(1, value=2)) is None


def test_what_is_no_release_is_refused() -> None:
    with pytest.raises(FailClosed, match="no release"):
        ReleaseCheck("p").fresh(b"{}")
