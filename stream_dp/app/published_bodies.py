"""What a pipeline has published, read from outside the engine: its topic of releases, or the file of them.

Rules: reads only, needs no key and takes no lease; a transaction that is open or aborted shows nothing. Bodies come in
the order of their sequences, each once.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_log import reading
from stream_dp.app.settings import settings_for, settled
from stream_dp.errors import UsageError
from stream_dp.pipeline.endpoints import KafkaSourceSpec, ReleasesFile, SqliteJournalSpec
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.runtime.public_sequence import RELEASES

_CHUNK = 1 << 20


async def published(
    spec: PipelineSpec, beyond: int = -1, every: float | None = None, bootstrap: str = ""
) -> AsyncIterator[list[bytes]]:
    """Return the bodies beyond a sequence, in groups; with `every` also what comes, looked for every so many seconds.

    Where there is nothing new a look returns an empty group. `bootstrap` counts before the file's brokers.

    Raises:
        UsageError: there are no releases yet, and nothing is waited for.
        FailClosed: what is there are no releases of a form that this version reads.
        WorldError: no answer from the brokers, or the file cannot be read.
    """
    if isinstance(spec.journal, SqliteJournalSpec):
        found = _of_file(settled(spec.releases, ReleasesFile).path, every)
    else:
        settings = settings_for(settled(spec.source, KafkaSourceSpec), bootstrap)
        found = of_topic(settings, f"{spec.name}.{RELEASES.name}", beyond, every)
    async for bodies in found:
        yield [body for body in bodies if RELEASES.after(body, beyond, spec.name)]


async def of_topic(
    settings: KafkaSettings, topic: str, beyond: int, every: float | None
) -> AsyncIterator[list[bytes]]:
    """Return the bodies of a topic of releases, from one that is not long before those `beyond` a sequence."""
    async with reading(settings, topic) as log:
        begin, _ = await log.bounds()
        end, _ = await log.ends()
        if beyond >= 0:
            begin = await log.start_of(begin, end, lambda body: RELEASES.after(body, beyond, topic))
        while True:
            async for records in log.records(begin, end):
                yield [record.value for record in records]
            if every is None:
                return
            yield []
            await asyncio.sleep(every)
            begin, (end, _) = end, await log.ends()


async def _of_file(path: Path, every: float | None) -> AsyncIterator[list[bytes]]:
    if every is None and not await asyncio.to_thread(path.exists):
        raise UsageError(f"{path}: there are no releases yet; run the pipeline first")
    position = 0
    while True:
        bodies, position = await asyncio.to_thread(_lines, path, position)
        yield bodies
        if not bodies:
            if every is None:
                return
            await asyncio.sleep(every)


def _lines(path: Path, position: int) -> tuple[list[bytes], int]:
    """The whole lines from a position on, of about one chunk, and where they end."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            read = file.read(_CHUNK)
            read += file.readline() if len(read) == _CHUNK else b""
    except FileNotFoundError:
        return [], position
    whole = read[: read.rfind(b"\n") + 1]
    return whole.splitlines(), position + len(whole)
