"""The engine stops rather than go on with a journal, a sink or a source that do not belong together."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from unit.journal.runtime_worlds import HORIZON, NAME, SEALER, Crash, Fuse, World

from stream_dp.errors import FailClosed
from stream_dp.files.memory import MemorySource
from stream_dp.journal.commit import Commit, decode, encode
from stream_dp.journal.keys import Sealer
from stream_dp.journal.release import release_of


@pytest.fixture
async def world() -> World:
    """A run that was stopped half way, with a commit that is not public yet."""
    made = World()
    with pytest.raises(Crash):
        await made.run(Fuse(45))
    assert 5 < len(made.store.commits) < HORIZON
    assert made.bodies
    return made


async def refused(world: World, message: str, source: MemorySource | None = None) -> str:
    """The engine refuses with this message, and changes neither journal nor sink."""
    before = list(world.store.commits), list(world.bodies)
    with pytest.raises(FailClosed, match=message) as caught:
        await world.run(source=source)
    assert (world.store.commits, world.bodies) == before
    return str(caught.value)


async def test_other_bytes_from_other_code(world: World) -> None:
    one, *others = world.plan.series
    world.plan = replace(world.plan, series=(replace(one, band=lambda tick, state: 8), *others))
    text = await refused(world, "replaying tick 0 of series total .* another version of the code")
    assert "go back to that version" in text


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("private", False, "whether its noise is private: then True, now False"),
        ("fingerprint", "0" * 64, "in the pipeline file: its meaning"),
        ("pipeline", "views", f"the pipeline's name: then '{NAME}', now 'views'"),
    ],
)
async def test_another_pipeline(world: World, field: str, value: object, named: str) -> None:
    changed = {field: value}
    world.plan = replace(world.plan, **changed)  # type: ignore[arg-type]
    text = await refused(
        world, f"written for another pipeline file .*{named}.*Use the file that wrote it"
    )
    assert text.count(": then ") <= 1


@pytest.mark.parametrize(
    ("name", "partitions", "named"),
    [
        ("other", (0, 1), "the source: then 'memory', now 'other'"),
        ("memory", (0, 1, 2), r"partitions: then \(0, 1\), now \(0, 1, 2\)"),
        ("other", (0,), "the source: then .*; the source's partitions: then"),
    ],
)
async def test_another_source(
    world: World, name: str, partitions: tuple[int, ...], named: str
) -> None:
    await refused(world, named, MemorySource((), name=name, partitions=partitions))


async def test_a_wrong_key(world: World) -> None:
    world.sealer = Sealer(bytes(32), NAME)
    await refused(world, "was written with key .* the key given is")


async def test_a_journal_older_than_what_is_public(world: World) -> None:
    del world.store.commits[-3:]
    await refused(world, "is older than, or differs from.*Restore the newest journal")


@pytest.mark.parametrize("head", [b"hello", b"\xff", b"{}", b'{"sequence":1.5}'])
async def test_a_sink_that_ends_with_something_else(world: World, head: bytes) -> None:
    world.bodies.append(head)
    text = await refused(world, "no release; bring it back")
    assert "hello" not in text


async def test_a_head_with_other_bytes(world: World) -> None:
    world.bodies[-1] = world.bodies[-1].replace(b'"band":7', b'"band":6')
    await refused(world, "differs from")


async def test_an_emptied_sink_gets_the_same_bytes_again(world: World) -> None:
    before = list(world.bodies)
    world.bodies.clear()
    await world.run()
    assert world.bodies[: len(before)] == before


@pytest.mark.parametrize(
    ("number", "field", "value", "message"),
    [
        (4, "late", 99, "not one unbroken chain"),
        (4, "previous", b"x", "not one unbroken chain"),
        (4, "sequence", 7, "not one unbroken chain"),
        (0, "header", None, "does not begin with its header"),
    ],
)
async def test_a_broken_chain(
    world: World, number: int, field: str, value: Any, message: str
) -> None:
    commit = decode(SEALER.open(number, world.store.commits[number]))
    changed = msgspec.structs.replace(commit, **{field: value})
    world.store.commits[number] = SEALER.seal(number, encode(changed))
    await refused(world, message)


async def test_commits_that_were_taken_out_swapped_or_damaged(world: World) -> None:
    commits = list(world.store.commits)
    changes = (
        commits[:3] + commits[4:],
        commits[1:],
        [commits[0], commits[2], commits[1], *commits[3:]],
        [*commits[:3], commits[3][:-1] + bytes([commits[3][-1] ^ 1]), *commits[4:]],
        [*commits[:3], commits[3][:20], *commits[4:]],
    )
    for changed in changes:
        world.store.commits = list(changed)
        await refused(world, "is damaged or belongs elsewhere; restore")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 5, "rows": "by column"}, "commit 2 .* has version 5, .* version 5: use the"),
        ({"kind": "checkpoint"}, "has no kind that is known, .* use the version that wrote it"),
        ({"refund": 5}, "has a content of another version, .* use the version that wrote it"),
        ({"changes": [{"kind": "moved"}]}, "has a content of another version"),
    ],
)
async def test_a_commit_of_the_future(world: World, changes: dict[str, Any], message: str) -> None:
    """Its version is read before its content, and what is not known is never skipped."""
    fourth = as_version_4(decode(SEALER.open(2, world.store.commits[2])))
    world.store.commits[2] = SEALER.seal(2, msgspec.msgpack.encode({**fourth, **changes}))
    await refused(world, message)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (b"\xc1\x06\x93\xc0\x90\x90", "commit 2 .* has version 6, .* version 5: use the"),
        (b"\xc1", "has a content of another version"),
        (b"\xc1\x05\x93\xc0\x90\x90", "has a content of another version, .* use the version"),
    ],
)
async def test_a_commit_of_another_form(world: World, plain: bytes, message: str) -> None:
    world.store.commits[2] = SEALER.seal(2, plain)
    await refused(world, message)


async def test_a_field_or_a_body_more_is_never_skipped(world: World) -> None:
    plain = SEALER.open(2, world.store.commits[2])
    bodies, rows, fields = msgspec.msgpack.decode(plain[2:], strict=False)
    number, end, step, text = bodies
    for changed in (
        [bodies, rows, [*fields, *[0] * 22]],
        [bodies, rows, fields, 5],
        [[*bodies, 5], rows, fields],
        [[number, end, step, text + b"\0" + text], rows, fields],
        [[number, 10**18, step, text], rows, fields],
        [bodies, [{}], fields],
    ):
        world.store.commits[2] = SEALER.seal(2, plain[:2] + msgspec.msgpack.encode(changed))
        await refused(world, "has a content of another version")
    assert decode(plain[:2] + msgspec.msgpack.encode([bodies, rows, fields])) == decode(plain)


def as_version_4(commit: Commit) -> dict[str, Any]:
    """The fields of a commit as version 4 wrote them."""
    fourth = msgspec.structs.replace(commit, version=4)
    fields: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(fourth), strict=False)
    return fields


async def test_a_commit_without_a_field_that_was_added_later(world: World) -> None:
    """What an older version has left out has its default."""
    commit = decode(SEALER.open(2, world.store.commits[2]))
    fourth = as_version_4(commit)
    for name in ("changes", "header", "snapshot"):
        del fourth[name]
    assert decode(msgspec.msgpack.encode(fourth)) == commit


async def test_the_source_may_be_gone_when_all_is_done() -> None:
    world = World()
    await world.run()
    await world.run(source=MemorySource((), partitions=(0, 1)))
    assert world.told == [release_of(body) for body in world.bodies]
