"""Parts of the Faust integration without a broker: what is fed once, which releases are handed out, how an app ends."""

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import faust
import pytest
from mode import Service

from stream_dp.client.public_release import PublicRelease
from stream_dp.errors import FailClosed, StreamDPError, UnknownFormat, UsageError
from stream_dp.integrations.faust import EngineStopped, attach, release_stream, releases
from stream_dp.integrations.faust.attached import (
    HOLES,
    EngineService,
    OriginHead,
    decoded_head,
    payload_of,
    refuse_reordered,
)
from stream_dp.integrations.faust.release_stream import ReleaseCheck, stop_app

PIPELINE = """
version: 1
name: toy
source: {kind: kafka, topic: events, bootstrap: "127.0.0.1:1"}
schema: {kind: {type: category, domain: [red, green]}}
privacy: {epsilon: 1}
clock: {kind: wall, step: 1s}
series: [{name: all, statistic: count, epsilon: 0.5}]
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    monkeypatch.setenv("STREAM_DP_KEY_FILE", str(key))
    path = tmp_path / "toy.yaml"
    path.write_text(PIPELINE)
    return path


@pytest.fixture
def app(tmp_path: Path) -> faust.App:
    return faust.App("toy", broker="kafka://127.0.0.1:1", datadir=str(tmp_path / "data"))


async def later(value: Any) -> Mapping[str, Any]:
    return {"kind": value}


@pytest.mark.parametrize(
    ("enrich", "payload"),
    [
        (later, b'{"kind":"red"}'),
        (lambda value: value.encode(), b"red"),
        (lambda _: None, None),
        (lambda value: int(value), b""),
        (lambda _: {"kind": object()}, b""),
    ],
)
async def test_what_is_made_of_a_value(enrich: Any, payload: bytes | None) -> None:
    assert await payload_of(enrich, "red") == payload


async def test_streams_that_repeat_or_reorder_are_refused(app: faust.App) -> None:
    def stream(**how: Any) -> faust.Stream[Any]:
        return cast("faust.Stream[Any]", app.stream(app.topic("raw"), **how))

    refuse_reordered(stream())
    with pytest.raises(UsageError, match="concurrency"):
        refuse_reordered(stream(concurrency_index=0))
    grouped = stream()
    grouped._chain(channel=app.channel())
    with pytest.raises(UsageError, match="grouped"):
        refuse_reordered(grouped)


def test_the_engine_is_a_service_of_the_app(app: faust.App, pipeline: Path) -> None:
    attached = attach(app, pipeline)
    (service,) = app._extra_services
    assert issubclass(service, EngineService)
    assert attached.releases().topic.get_topic_name() == "toy.releases"
    assert releases(app, pipeline).topic.get_topic_name() == "toy.releases"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("series:", "journal: {kind: sqlite, path: j}\nreleases: {path: r.jsonl}\nseries:"),
            "journal",
        ),
        (("version: 1", "version: 9"), "version"),
    ],
)
def test_a_pipeline_that_cannot_run_there_is_refused_at_once(
    app: faust.App,
    pipeline: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, str],
    says: str,
) -> None:
    pipeline.write_text(PIPELINE.replace(*change))
    with pytest.raises(UsageError, match=says):
        attach(app, pipeline)
    pipeline.write_text(PIPELINE)
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    with pytest.raises(UsageError, match="key"):
        attach(app, pipeline)
    assert app._extra_services == []


class Part(Service):
    """A part of an app."""


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (FailClosed("the journal is gone"), 4, "the journal is gone"),
        (ValueError("a person's name"), StreamDPError.exit_code, "ValueError"),
    ],
)
async def test_an_app_ends_with_the_cause_and_its_code(
    caplog: pytest.LogCaptureFixture, error: Exception, code: int, says: str
) -> None:
    """The text of an error that is not ours may hold data: it is in no log and in no reason."""
    whole, part = Part(), Part()
    whole.add_dependency(part)
    await stop_app(part, error)
    reason = whole.crash_reason
    assert isinstance(reason, EngineStopped)
    assert (reason.code, says in str(reason)) == (code, True)
    assert says in caplog.text
    assert "person" not in caplog.text + repr(reason) + json.dumps(str(reason))


async def test_a_gap_in_the_releases_ends_the_app(app: faust.App, pipeline: Path) -> None:
    """An agent alone would be started again, behind the gap."""

    async def delivered() -> AsyncIterator[bytes]:
        for sequence in (1, 1, 3):
            yield body(sequence)

    given = releases(app, pipeline)(cast("faust.Stream[bytes]", delivered()))
    assert (await anext(given)).sequence == 1
    with pytest.raises(FailClosed, match="missing"):
        await anext(given)
    assert isinstance(app.crash_reason, EngineStopped)
    assert app.crash_reason.code == FailClosed.exit_code


def body(sequence: int, value: int = 1) -> bytes:
    return json.dumps({
        "v": 1, "sequence": sequence, "series": "all", "tick": sequence - 1, "end": "2026-01-01T00:01:00Z",
        "value": value, "band": 3, "confidence": 0.95,
    }).encode()  # fmt: skip


def handed_out(check: ReleaseCheck, *bodies: bytes) -> list[int]:
    found = []
    for one in bodies:
        release = check.fresh(one)
        if release is not None:
            found.append(release.sequence)
            check.done(release)
    return found


def test_repeats_are_dropped_also_after_a_restart() -> None:
    seen: dict[str, object] = {}
    assert handed_out(ReleaseCheck("p", seen), body(3), body(4), body(4), body(3), body(5)) == [
        3,
        4,
        5,
    ]
    assert handed_out(ReleaseCheck("p", seen), body(4), body(5), body(6)) == [6]
    assert seen["p"] == json.loads(json.dumps(seen["p"]))  # as a table stores it


def missed(check: ReleaseCheck) -> bool:
    try:
        handed_out(check, body(1), body(2), body(4))
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
    handed_out(check := ReleaseCheck("p", seen), body(1), body(2))
    with pytest.raises(FailClosed, match="two versions"):
        check.fresh(body(again, value=2))
    with pytest.raises(FailClosed, match="two versions"):
        ReleaseCheck("p", seen).fresh(body(2, value=2))


def test_how_many_are_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_stream, "REMEMBERED", 3)
    handed_out(check := ReleaseCheck("p"), *(body(n) for n in range(1, 10)))
    assert len(check._digests) == 3
    assert check.fresh(body(1, value=2)) is None


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
