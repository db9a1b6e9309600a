"""A copy of any journal in one file: for inquiries, and for checks on another machine.

Rules: the copied commits stay sealed. A copy is for reading: no engine may ever run on it (docs/operations.md).
"""

import asyncio
from pathlib import Path

from stream_dp.core.progress import Progress, unseen
from stream_dp.engine.ports import closing
from stream_dp.errors import UsageError
from stream_dp.files.sqlite import add_sealed
from stream_dp.operate.audit.journal_access import sealed_commits
from stream_dp.pipeline.file.spec import PipelineSpec

_AT_ONCE = 64


async def copy_journal(spec: PipelineSpec, to: Path, progress: Progress = unseen) -> None:
    """Write the present journal into the new SQLite file `to` with mode 0600; the engine may run meanwhile.

    Raises:
        UsageError: the file `to` exists already, or there is no journal yet.
        FailClosed: commits are missing; no file is left.
        WorldError: the file cannot be written, or the brokers do not answer; no file is left.
    """
    if await asyncio.to_thread(to.exists):
        raise UsageError(f"--copy: {to} is there already; name a new file")
    try:
        await _written(spec, to, progress)
    except BaseException:
        await asyncio.to_thread(to.unlink, missing_ok=True)
        raise


async def _written(spec: PipelineSpec, to: Path, progress: Progress) -> None:
    some, begin = list[bytes](), 0
    async with closing(sealed_commits(spec, progress=progress)) as commits:
        async for sealed in commits:
            some.append(sealed)
            if len(some) == _AT_ONCE:
                await asyncio.to_thread(add_sealed, to, begin, some)
                some, begin = [], begin + _AT_ONCE
    await asyncio.to_thread(add_sealed, to, begin, some)
