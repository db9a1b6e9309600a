"""The journal as a private Kafka topic: one transaction holds a commit and its positions.

Rules: opening fences first, and only then reads. A sealed commit is cut into parts. Each part is a record with the
headers stream-dp-journal (the version of this form), sequence, part and parts, and, if the commit has any,
first-release and first-answer, and checkpoints: the number and the offset of the commits after which the last ones
stand, newest first, as far as they were durable before. Where the topic is a copy with other offsets, these are not
used. A missing part or commit, or another version, stops the engine. The source's positions are the offsets of a group
that nobody joins: `verify` compares them with the last commit, which detects a wiped or restored journal. The topic
keeps everything until `prune` deletes its first commits; only the engine has access to it.

Hanging transactions: when a broker dies, Kafka 4.3.1 may mistake a partition without a leader for a deleted one, and
record a commit or an abort as complete without writing its marker to that partition, which blocks readers for ever.
Only the holder of the lease ends such a transaction, by an empty transaction of its own: every life of a pipeline has
the same producer id. Here it is unknown whether the coordinator recorded a commit or an abort. A journal commit that
was acknowledged is followed by its releases and answers, or by the next commit while its releases wait for the rest of
their public block. So a hanging transaction of the journal is committed if any of these was ever written to its public
topic, even in vain, and aborted otherwise; then no reader has seen anything of it. A hanging transaction of a public
topic is durable in the journal: it is aborted, and the same bytes are published again. An acknowledged commit of which
nothing was written to a public topic is lost with its marker.
"""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import cache
from typing import Any, NamedTuple

from stream_dp.core.wording import Progress, percent, unseen
from stream_dp.engine.ports import Positions
from stream_dp.errors import FailClosed, Unconfirmed, UnknownFormat
from stream_dp.journal.checkpoint import known_after, piece_in
from stream_dp.journal.commit import Commit
from stream_dp.journal.public_sequence import ANSWERS, RELEASES, PublicSequence
from stream_dp.kafka.client.clients import (
    KEPT,
    KafkaSettings,
    coordinated,
    disconnect,
    library,
    patiently,
    speaking,
)
from stream_dp.kafka.client.topics import administering, cluster_of, ensure, existing, warnings
from stream_dp.kafka.log.lease import KafkaLease, Outgoing
from stream_dp.kafka.log.reader import PartitionLog, reading

# headers of a journal record: the numbers of its commit's first release and answer, which are public
FIRST_RELEASE, FIRST_ANSWER = "first-release", "first-answer"
_ABOUT: Mapping[str, PublicSequence[Any]] = {FIRST_RELEASE: RELEASES, FIRST_ANSWER: ANSWERS}

_log = logging.getLogger(__name__)
PART_BYTES = 500_000
EXPIRY = "offsets.retention.minutes of the brokers (7 days by default)"
WITHOUT_OFFSETS = "went-on-without-offsets"
"""Note in the lease's topic that comes with the first commit after the offsets had expired."""
VERSION = 1
_FORM = "stream-dp-journal"
_CHECKPOINTS = "checkpoints"
_TRIES = 3


async def settle_public(lease: KafkaLease, topic: str) -> None:
    """End a hanging transaction of a public topic."""
    if await _hanging(lease, topic) is not None:
        what = "it is aborted now, and what it holds is published again"
        await _end(lease, topic, what, commit=False)


async def settle_journal(lease: KafkaLease, topic: str) -> None:
    """End a hanging transaction of the journal's topic: commit it if any of it is or was public, else abort it."""
    hanging = await _hanging(lease, topic)
    if hanging is None:
        return
    firsts = await _firsts(lease, topic, *hanging)
    written = [first <= await _last_written(lease, header) for header, first in firsts.items()]
    what = "it is aborted now: nothing of it was published"
    if any(written):
        what = "it is committed now, for what it holds is public"
    await _end(lease, topic, what, commit=any(written))


async def _hanging(lease: KafkaLease, topic: str) -> tuple[int, int] | None:
    """Return begin and end of the undecided part after waiting for it, or None."""
    async with reading(lease.settings, topic) as log:
        decided, end = await log.ends()
    return (decided, end) if decided < end else None


async def _firsts(lease: KafkaLease, topic: str, begin: int, end: int) -> dict[str, int]:
    """Return the numbers in the headers of this part of the journal, decided or not."""
    firsts: dict[str, int] = {}
    async with reading(lease.settings, topic, "read_uncommitted") as log:
        async for records in log.records(begin, end):
            for record in records:
                for name, value in record.headers:
                    if name in _ABOUT:
                        firsts.setdefault(name, int(value))
    return firsts


async def _last_written(lease: KafkaLease, header: str) -> int:
    """Return the last number ever written to the public topic of this header, -1 if none."""
    sequence = _ABOUT[header]
    public = f"{lease.pipeline}.{sequence.name}"
    async with reading(lease.settings, public, "read_uncommitted") as log:
        last = await log.last()
    return -1 if last is None else sequence.number_of(last.value, f"topic {public!r}")


async def _end(lease: KafkaLease, topic: str, what: str, *, commit: bool) -> None:
    _log.warning("%s: the brokers lost the end of a transaction of a former run; %s", topic, what)
    await lease.end_hanging(topic, commit=commit)


@cache
def _warn_once(warning: str) -> None:
    """Log the warning once in a process: after an outage the engine opens its journal again."""
    _log.warning(warning)


class _Part(NamedTuple):
    sequence: int
    part: int
    parts: int
    value: bytes


class KafkaJournal:
    """The `Journal` port; topics and group are named after the pipeline of `lease`.

    `cluster` is the cluster's id once the journal is open, `warnings` is advice for production.
    """

    def __init__(self, lease: KafkaLease, source_topic: str) -> None:
        self._lease, self._source = lease, source_topic
        self._topic = f"{lease.pipeline}.private.journal"
        self._group = f"{lease.pipeline}.engine"
        self._next: int | None = None
        self._begin = 0
        self._places: dict[int, int] = {}  # of the commits after which checkpoints stand
        self._begun = -1  # the place of the last commit with the first piece of one
        self._expired = False
        self.cluster = ""
        self.warnings: tuple[str, ...] = ()

    async def open(self) -> None:
        """Take the lease, then create or check the topic."""
        await self._lease.start()
        settings = self._lease.settings
        self.cluster = await cluster_of(settings)
        self.warnings = warnings({self._topic: await ensure(settings, self._topic, KEPT)})
        for warning in self.warnings:
            _warn_once(warning)
        await settle_journal(self._lease, self._topic)
        async with reading(settings, self._topic) as log:
            last = await log.last()
            self._next, self._begin, self._places = 0, 0, {}
            if last is not None:
                self._next = self._part(last).sequence + 1
                self._begin = await self._first_in(log)
                self._places = await self._checkpoints_in(log, last)
            elif await log.begin():
                raise self._damaged()

    async def exists(self) -> bool:
        """Return whether the journal's topic exists; takes no lease."""
        async with administering(self._lease.settings, f"topic {self._topic!r}") as admin:
            return await existing(admin, self._topic) is not None

    @property
    def begin(self) -> int:
        return self._begin

    def checkpoints(self) -> Sequence[int]:
        return tuple(self._places)

    async def read(self, begin: int = 0, progress: Progress = unseen) -> AsyncIterator[bytes]:
        """Yield the sealed commits from number `begin` on, oldest first."""
        parts: list[_Part] = []
        sequence, place = begin or self._begin, self._places.get(begin)  # a commit may end a place
        async with reading(self._lease.settings, self._topic) as log:
            first, end = await log.bounds()
            async for records in log.records(first if place is None else place, end):
                progress("Reading the journal", *percent(records[0].offset, end))
                for record in records:
                    parts.append(self._part(record))
                    if parts[-1][:2] != (sequence, len(parts) - 1):
                        raise self._damaged()
                    if len(parts) == parts[0].parts:
                        yield b"".join([part.value for part in parts])
                        parts, sequence = [], sequence + 1
        if parts:
            raise self._damaged()

    async def bounds(self) -> tuple[int, int]:
        """Return the number of the first commit and that of the next one; takes no lease. `read` then begins there."""
        for _ in range(_TRIES - 1):
            with suppress(FailClosed):  # an engine that prunes may delete what is looked at
                return await self._bounds()
        return await self._bounds()

    async def _bounds(self) -> tuple[int, int]:
        async with reading(self._lease.settings, self._topic) as log:
            last = await log.last()
            if last is None:
                return 0, 0
            self._begin = await self._first_in(log)
        return self._begin, self._part(last).sequence + 1

    async def verify(self, positions: Positions) -> None:
        """Compare the group's offsets with the last commit's positions (none for an empty journal).

        Raises `Unconfirmed` if the group has no offsets any more, `FailClosed` if another journal was last.
        """
        offsets = await _committed(self._lease.settings, self._group)
        self._expired = bool(self._next) and bool(positions) and not offsets
        if self._expired:
            raise Unconfirmed(
                f"group {self._group!r} has no offsets any more, as happens after {EXPIRY} without "
                f"an engine, and nothing else confirms that journal topic {self._topic!r} is the "
                "newest. Two things can confirm it: the published releases, and the high-water mark "
                "in the state folder of the machine that ran the engine. Start the engine on that "
                "machine, or bring both here"
            )
        if offsets == {(self._source, partition): at for partition, at in positions.items()}:
            return
        if not self._next:
            raise FailClosed(
                f"journal topic {self._topic!r} is empty, but group {self._group!r} has read the source "
                "for it: the journal was wiped. Restore the journal, or run under a new pipeline name"
            )
        raise FailClosed(
            f"journal topic {self._topic!r} and the offsets of group {self._group!r} do not "
            "match. One of them was rolled back, wiped or changed by hand, or the offsets "
            "expired while the engine was off (offsets.retention.minutes). Restore the newest "
            "journal and offsets"
        )

    async def append(self, commit: Commit, sealed: bytes) -> None:
        if commit.sequence != self._next:
            raise FailClosed(
                f"journal topic {self._topic!r}: this is not the next commit; nothing was written"
            )
        partition = library().TopicPartition
        offsets = {partition(self._source, number): at for number, at in commit.positions.items()}
        records = list(self._parts(commit, sealed))
        if self._expired:
            records.append(self._lease.noted(WITHOUT_OFFSETS))
        begin, *_ = await self._lease.transact(records, offsets, self._group)
        self._know(commit, begin)
        if self._expired:
            _log.warning(
                "%s: its group's offsets had expired; what was published and the high-water mark confirm the journal, "
                "which goes on and records this", self._topic,
            )  # fmt: skip
        self._next, self._expired = commit.sequence + 1, False

    async def prune(self, before: int) -> None:
        topic, settings = self._topic, self._lease.settings
        async with reading(settings, topic) as log:
            place = await log.first(lambda record: self._part(record).sequence >= before)
        about = f"topic {topic!r}: deletion of its first records, which `journal: keep` asks for,"
        async with administering(settings, about) as admin:
            deleted = library(".admin").RecordsToDelete(before_offset=place)
            where = {library().TopicPartition(topic, 0): deleted}
            await patiently(settings, about, lambda: admin.delete_records(where))
        self._begin = before

    async def close(self) -> None:
        self._next = None
        self._places = {}
        await self._lease.close()

    def _know(self, commit: Commit, begin: int) -> None:
        """Take note of the checkpoint that the commit, which lies at `begin`, starts or completes."""
        piece = piece_in(commit)
        if piece is None:
            return
        self._begun = begin if piece.number == 0 else self._begun
        places = {**self._places, piece.after: self._begun}
        known = known_after(commit, tuple(self._places))
        self._places = {after: places[after] for after in known}

    def _parts(self, commit: Commit, sealed: bytes) -> Iterator[Outgoing]:
        parts = max(1, -(-len(sealed) // PART_BYTES))
        firsts = [(FIRST_RELEASE, release.sequence) for release in commit.releases[:1]]
        firsts += [(FIRST_ANSWER, answer.number) for answer in commit.answers[:1]]
        numbers = [(_FORM, VERSION), ("sequence", commit.sequence), ("parts", parts), *firsts]
        places = ",".join(f"{after}:{place}" for after, place in self._places.items())
        known = ((_CHECKPOINTS, places.encode()),) if places else ()
        for part in range(parts):
            headers = (*numbers, ("part", part))
            yield Outgoing(
                self._topic,
                sealed[part * PART_BYTES : (part + 1) * PART_BYTES],
                headers=(*((name, b"%d" % value) for name, value in headers), *known),
            )

    async def _first_in(self, log: PartitionLog) -> int:
        """Return the number of the log's first commit."""
        begin, end = await log.bounds()
        async with aclosing(log.records(begin, end)) as groups:
            first = self._part((await anext(groups))[0])
        if first.part:
            raise self._damaged()
        return first.sequence

    async def _checkpoints_in(self, log: PartitionLog, last: Any) -> dict[int, int]:
        """Return the places of the commits that the log's last record names, as far as they begin there."""
        known, begin = dict(last.headers).get(_CHECKPOINTS, b""), await log.begin()
        places = dict[int, int]()
        for pair in filter(None, known.split(b",")):
            try:
                after, place = map(int, pair.split(b":"))
            except ValueError:
                raise self._damaged() from None
            if begin <= place < last.offset:
                async for records in log.records(place, place + 1):
                    if self._part(records[0])[:2] == (after, 0):
                        places[after] = place
        return places

    def _part(self, record: Any) -> _Part:
        headers = dict(record.headers)
        try:
            if int(headers[_FORM]) != VERSION:
                what, version = f"a record of journal topic {self._topic!r}", int(headers[_FORM])
                raise UnknownFormat(what, f"version {version}", f"version {VERSION}")
            numbers = [int(headers[name]) for name in ("sequence", "part", "parts")]
        except (KeyError, ValueError):
            raise self._damaged() from None
        return _Part(numbers[0], numbers[1], numbers[2], record.value)

    def _damaged(self) -> FailClosed:
        return FailClosed(
            f"journal topic {self._topic!r} is damaged: a commit or a part of one is missing or foreign. "
            "Restore its newest copy; delete it only if nothing was ever published from it"
        )


async def _committed(settings: KafkaSettings, group: str) -> dict[tuple[str, int], int]:
    """Return all offsets that the group has committed, by topic and partition."""
    client = library(".client").AIOKafkaClient(**settings.client())
    request = library(".protocol.commit").OffsetFetchRequest(group, None)

    def code(answer: Any) -> int:
        codes = [entry[3] for _, many in answer.topics for entry in many]
        return int(max([answer.error_code, *codes]))

    with speaking(settings, f"group {group!r}"):
        try:
            await client.bootstrap()
            answer = await coordinated(client, "GROUP", group, request, code, settings.patience_s)
            if code(answer):
                raise library(".errors").for_code(code(answer))
        finally:
            await disconnect(client)
    return {(topic, entry[0]): entry[1] for topic, many in answer.topics for entry in many}
