"""Refuses a new ledger on a source of which no record can be used: it would release noise alone.

Rules: the check runs only if there is no journal yet, before anything is charged, made or public. A refused start
reveals one bit about the data: that records exist, and that none of the inspected ones fits. The error names
reasons and fields, but no count, no place and no content. If the source cannot be read, the engine reports it
later.
"""

import asyncio
from collections.abc import AsyncIterator

from stream_dp.errors import StreamDPError, UsageError
from stream_dp.journal.keys import Sealer
from stream_dp.operate.check.fitting import Fitting, fitting_of
from stream_dp.operate.check.sample import Sample, file_samples, topic_sample
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.endpoints import FileSourceSpec, KafkaSourceSpec

RECORDS = 1000
"""Records per sample: the newest and the oldest of each partition; a file is read on until one record fits."""
_NAMED = 3


async def require_fitting(spec: PipelineSpec, sealer: Sealer, file: str = "FILE") -> None:
    """Refuse a new ledger if the source has records but none that can be used; an empty source is accepted.

    Raises:
        UsageError: no inspected record can be used (`stream-dp check` shows details), or the file cannot be used at
        all.
    """
    refused: list[Fitting] = []
    try:
        async for sample in _samples(spec, sealer):
            found = await asyncio.to_thread(fitting_of, spec, sample)
            if not found.wholly_refused:
                return
            refused.append(found)
    except UsageError:
        raise
    except StreamDPError:
        return
    if refused:
        raise UsageError(_why(spec, refused[0], file))


async def _samples(spec: PipelineSpec, sealer: Sealer) -> AsyncIterator[Sample]:
    """Yield samples of the file, or the newest and then the oldest records of the topic."""
    source = spec.source
    if isinstance(source, FileSourceSpec):
        samples = iter(file_samples(spec, source.path, RECORDS))
        while (sample := await asyncio.to_thread(next, samples, None)) is not None:
            yield sample
    elif isinstance(source, KafkaSourceSpec):
        for newest in (True, False):
            yield await topic_sample(spec, source.topic, RECORDS, lambda: sealer, newest=newest)


def _why(spec: PipelineSpec, found: Fitting, file: str) -> str:
    reasons = ", ".join(sorted(each.name for each in found.reasons[:_NAMED]))
    hint = f" Perhaps: {found.hints[0].says}." if found.hints else ""
    return (
        f"{found.origin}: {spec.name} can use none of the records that were looked at ({reasons}).{hint} A new ledger "
        "would spend its budget on noise alone. Nothing was charged, made or published. `stream-dp check "
        f"{file}` shows what does not fit; --no-check (in Python: check=False) starts all the same"
    )
