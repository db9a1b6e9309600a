"""The mark outside the journal: a lost or older journal is never taken for a first start."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from stream_dp.engine.ports import Positions
from stream_dp.errors import FailClosed, Unconfirmed, UnknownFormat
from stream_dp.files import highwater
from stream_dp.files.highwater import HighWater
from stream_dp.files.memory import MemoryJournal, MemoryStore
from stream_dp.testing.port_checks import sample_commit


async def begun(journal: HighWater, store: MemoryStore, commits: int = 0) -> HighWater:
    """Open, read and verify, as an engine does, and append so many commits to what is there."""
    await journal.open()
    async for _ in journal.read():
        pass
    await journal.verify({})
    for number in range(len(store.commits), len(store.commits) + commits):
        await journal.append(*sample_commit(number))
    return journal


async def run(store: MemoryStore, folder: Path, commits: int = 0, accept: str = "") -> None:
    await begun(HighWater(MemoryJournal(store), folder, "p", "t", accept), store, commits)


def list_marks(folder: Path) -> list[Path]:
    return list(folder.glob("*.json"))


async def test_an_empty_journal_is_refused_once_it_was_not_empty(tmp_path: Path) -> None:
    await run(MemoryStore(), tmp_path, 3)
    fresh = MemoryStore()
    with pytest.raises(FailClosed, match=r"is empty.*--accept-new-guarantee"):
        await run(fresh, tmp_path)
    await run(fresh, tmp_path, 1, accept="second")
    await run(fresh, tmp_path, 1)
    await begun(HighWater(MemoryJournal(MemoryStore()), tmp_path, "p", "another"), MemoryStore())


async def test_an_older_journal_is_refused_also_with_accept(tmp_path: Path) -> None:
    store = MemoryStore()
    await run(store, tmp_path, 3)
    store.commits.pop()
    for accept in ("", "second"):
        with pytest.raises(FailClosed, match="older than it was"):
            await run(store, tmp_path, accept=accept)


@pytest.mark.parametrize("content", ["", '{"commits": null}'])
async def test_a_damaged_mark_stops_the_start(tmp_path: Path, content: str) -> None:
    await run(MemoryStore(), tmp_path, 1)
    (mark,) = list_marks(tmp_path)
    mark.write_text(content)
    with pytest.raises(FailClosed, match="cannot be read"):
        await run(MemoryStore(), tmp_path)


async def test_a_mark_of_another_version_is_refused(tmp_path: Path) -> None:
    """Also where its fields are not those of today: the version is read first."""
    await run(MemoryStore(), tmp_path, 1)
    (mark,) = list_marks(tmp_path)
    assert '"kind":"high-water"' in mark.read_text()
    mark.write_text('{"kind":"high-water","version":5,"commits":{"first":1}}')
    with pytest.raises(
        UnknownFormat, match=r"has version 5, .* reads version 4 and older versions: use"
    ):
        await run(MemoryStore(), tmp_path)


class Expired(MemoryJournal):
    """A journal whose own record of how far it has been is gone."""

    async def verify(self, positions: Positions) -> None:
        raise Unconfirmed("no offsets any more")


async def expired(store: MemoryStore, folder: Path) -> None:
    await begun(HighWater(Expired(store), folder, "p", "t", cluster=lambda: ""), store)


async def test_an_expired_record_needs_a_mark_that_agrees(tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(FailClosed, match="no offsets") as none:
        await expired(store, tmp_path)
    await run(store, tmp_path, 3)
    with pytest.raises(Unconfirmed, match="no offsets"):
        await expired(store, tmp_path)
    store.commits.append(b"after a crash between the commit and its mark")
    with pytest.raises(Unconfirmed, match="no offsets"):
        await expired(store, tmp_path)
    store.commits.append(b"of somebody else")
    with pytest.raises(FailClosed, match="no offsets") as ahead:
        await expired(store, tmp_path)
    del store.commits[2:]
    with pytest.raises(FailClosed, match="older than it was"):
        await expired(store, tmp_path)
    store.commits.clear()
    with pytest.raises(FailClosed, match="is empty"):
        await expired(store, tmp_path)
    assert {none.type, ahead.type} == {FailClosed}


async def test_another_cluster_under_the_same_names_is_told_apart(tmp_path: Path) -> None:
    store = MemoryStore()

    async def on(cluster: str, commits: int, accept: str = "") -> None:
        journal = HighWater(MemoryJournal(store), tmp_path, "p", "t", accept, lambda: cluster)
        await begun(journal, store, commits)

    await on("", 1)  # as a version did that knew no cluster
    await on("first", 1)
    await on("first", 1)
    with pytest.raises(FailClosed, match="another Kafka cluster"):
        await on("second", 1)
    store.commits.clear()
    with pytest.raises(FailClosed, match="another Kafka cluster"):
        await on("second", 1)
    await on("second", 1, "a new guarantee")
    await on("second", 1)


async def test_a_mark_of_version_1_is_read(tmp_path: Path) -> None:
    store = MemoryStore()
    await run(store, tmp_path, 2)
    (mark,) = list_marks(tmp_path)
    mark.write_text('{"kind":"high-water","pipeline":"p","source":"t","commits":2,"version":1}')
    await run(store, tmp_path, 1)
    assert '"version":4' in mark.read_text()
    mark.write_text('{"kind":"high-water","pipeline":"p","source":"t","commits":4,"version":1}')
    with pytest.raises(FailClosed, match="older than it was"):
        await run(store, tmp_path)


HERE, THERE = "/srv/a/orders.jsonl", "/srv/b/orders.jsonl"


async def kept(
    store: MemoryStore, folder: Path, where: tuple[str, str], accept: str = "", commits: int = 0
) -> HighWater:
    """The journal of a file at a place, under a key."""
    place, key = where
    inner = MemoryJournal(store)
    journal = HighWater(inner, folder, "p", "orders.jsonl", accept, place=place, key=key)
    return await begun(journal, store, commits)


ANN, BOB = (HERE, "ann"), (THERE, "bob")


async def test_two_folders_with_the_same_names_have_marks_of_their_own(tmp_path: Path) -> None:
    """Other data and another key are another pipeline, whatever it is called; each is still missed where it was."""
    ann, bob = MemoryStore(), MemoryStore()
    for _ in range(2):
        await kept(ann, tmp_path, ANN, commits=2)
        await kept(bob, tmp_path, BOB, commits=1)
    for where in (ANN, BOB):
        missed = rf"is empty, but .*orders\.jsonl before, at {where[0]}:"
        with pytest.raises(FailClosed, match=missed):
            await kept(MemoryStore(), tmp_path, where)
    bob.commits.pop()
    with pytest.raises(FailClosed, match="is older than it was"):
        await kept(bob, tmp_path, BOB)


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ("data ann", "ann", True), ("data ann", "data eve", True), ("data ann", "eve", True),
        ("ann", "data ann", True), ("data ann", "fresh eve", True), ("ann", "fresh eve", False),
        ("data ann", "", False),
    ],
)  # fmt: skip
async def test_a_journal_under_a_wrapped_key_is_missed_where_its_data_were_copied(
    tmp_path: Path, before: str, after: str, refused: bool
) -> None:
    """Without the wrapped file the operator's key has another id; and after a rotation it is another key."""
    await kept(MemoryStore(), tmp_path, (HERE, before), commits=2)
    with pytest.raises(FailClosed, match=f"before, at {HERE}") if refused else nullcontext():
        await kept(MemoryStore(), tmp_path, (THERE, after))


@pytest.mark.parametrize("where", [(HERE, "another"), (THERE, "ann")])
async def test_a_lost_journal_is_missed(tmp_path: Path, where: tuple[str, str]) -> None:
    """A new key forgets nothing that was spent on the same data, and neither does a copy of the data elsewhere."""
    store = MemoryStore()
    await kept(store, tmp_path, ANN, commits=3)
    with pytest.raises(FailClosed, match=rf"before, at {HERE}: .* give it another name"):
        await kept(MemoryStore(), tmp_path, where)
    await kept(store, tmp_path, where, commits=1)  # the journal itself, moved, goes on
    fresh = MemoryStore()
    with pytest.raises(FailClosed, match="is empty"):
        await kept(fresh, tmp_path, where)
    await kept(fresh, tmp_path, where, accept="second", commits=1)
    await kept(fresh, tmp_path, where, commits=1)


async def test_a_mark_without_a_place_is_the_first_journals(tmp_path: Path) -> None:
    """A former version wrote it: an empty journal is refused as before, anywhere."""
    store = MemoryStore()
    old = HighWater(MemoryJournal(store), tmp_path, "p", "orders.jsonl")
    await old.open()
    for number in range(3):
        await old.append(*sample_commit(number))
    (mark,) = list_marks(tmp_path)
    said = {"kind": "high-water", "pipeline": "p", "source": "orders.jsonl", "commits": 3}
    mark.write_text(json.dumps(said | {"cluster": "", "version": 2}))
    for where in (ANN, BOB):
        with pytest.raises(FailClosed, match=r"is empty, but .* before: "):
            await kept(MemoryStore(), tmp_path, where)
    journal = await kept(store, tmp_path, ANN, commits=1)
    assert list_marks(tmp_path) == [journal.path]
    await kept(MemoryStore(), tmp_path, BOB, commits=1)
    with pytest.raises(FailClosed, match=f"before, at {HERE}"):
        await kept(MemoryStore(), tmp_path, ANN)


async def test_a_journal_that_was_set_back_and_went_on_elsewhere_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    await run(store, tmp_path, 3)
    other = MemoryStore([*store.commits[:2], b"another", b"and more"])
    with pytest.raises(FailClosed, match="holds another commit 2 than this machine has seen"):
        await run(other, tmp_path)
    other.commits[2] = store.commits[2]
    await run(other, tmp_path)


async def test_the_mark_is_durable_before_commits_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could take the mark back, and an older copy of the journal would be believed."""
    store, done = MemoryStore(), list[str]()
    journal = await begun(HighWater(MemoryJournal(store), tmp_path, "p", "t"), store, 3)
    monkeypatch.setattr("os.fsync", lambda _: done.append("synced"))
    monkeypatch.setattr(highwater, "sync_folder", lambda _: done.append("folder synced"))
    prune = MemoryJournal.prune

    async def pruned(self: MemoryJournal, before: int) -> None:
        (mark,) = list_marks(tmp_path)
        assert '"commits":3' in mark.read_text()
        done.append("deleted")
        await prune(self, before)

    monkeypatch.setattr(MemoryJournal, "prune", pruned)
    await journal.prune(2)
    assert done == ["synced", "folder synced", "deleted"]
    assert (journal.begin, len(store.commits)) == (2, 1)
