"""How a sample of records fits (`stream-dp check`), and the refusal of a new ledger if no record fits.

Rules: all figures about a sample are exact and NOT PRIVATE; the probabilities of false alarms are public, as in
`plan`. No journal is opened or made, nothing is charged or published. A ledger is refused if no record of its source
can be used, because it would release noise alone; this is checked only if there is no journal yet. A refused start
reveals one bit about the data: that records exist, and that none of the inspected ones fits. The error names reasons
and fields, but no count, no place and no content. If the source cannot be read, the engine reports it later.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from stream_dp.core.progress import Progress, unseen
from stream_dp.errors import StreamDPError, UsageError
from stream_dp.journal.keys import Sealer
from stream_dp.operate.fitting import (
    FieldFit,
    Fitting,
    Hint,
    Sample,
    file_sample,
    file_samples,
    fitting_of,
    topic_sample,
)
from stream_dp.operate.judging import Judgement, judgement_of
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.settings import settled, source_there
from stream_dp.operate.sampled_rows import out_of_order
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.verdicts import noise_by_guesses
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import FileSourceSpec, KafkaSourceSpec, ReplayClock
from stream_dp.records.scalars import duration_text
from stream_dp.statistics.parts.choice import FalseAlarm

_THIN = (
    "{field}: lines are not in its order, so if the file goes on behind the sample, windows have a part of their "
    "records here, and verdicts are too bad; a --sample as large as the file judges by all"
)

_SHORT = (
    "the sample is of {part}, and longer windows are judged at its rate: where that is a busy time, they are too good, "
    "and where it is a quiet one too bad; a larger --sample says more"
)


class Checked(NamedTuple):
    """How a sample fits a pipeline, and what its series are worth by it. NOT PRIVATE."""

    built: Built
    fitting: Fitting
    judgement: Judgement


async def check_pipeline(
    pipeline: Path,
    data: Path | None,
    topic: str,
    most: int,
    key_file: Path | None,
    tell: Callable[[str], None],
    progress: Progress = unseen,
) -> Checked:
    """Check a sample of `data`, of `topic`, or of the pipeline's own source, waiting for its brokers.

    `progress` receives what is looked at.
    """
    if data is not None and topic:
        raise UsageError("--data and --topic exclude each other; name one")
    spec = load(pipeline)
    built = build(spec)
    if data is None:
        await source_there(spec, tell)
    if data is None and not topic and isinstance(spec.source, FileSourceSpec):
        data = spec.source.path
    if data is not None:
        sample = await asyncio.to_thread(file_sample, spec, data, most)
    else:
        topic = topic or settled(spec.source, KafkaSourceSpec).topic
        sample = await topic_sample(spec, topic, most, lambda: sealer_for(spec, key_file))
    fitting = await asyncio.to_thread(fitting_of, spec, sample)
    cut, clock, poor = data is None or sample.records == most, spec.clock, ""
    if (
        cut
        and data is not None
        and isinstance(clock, ReplayClock)
        and await asyncio.to_thread(out_of_order, spec, sample)
    ):
        poor = _THIN.format(field=clock.field)
    progress("Judging what the series would show")
    judgement = await asyncio.to_thread(judgement_of, built, sample)
    if cut and judgement.part:
        poor = poor or _SHORT.format(part=duration_text(judgement.part))
    if poor:
        fitting = replace(fitting, hints=[*fitting.hints, Hint(poor, sample.records)])
    return Checked(built, fitting, judgement)


def within_limit(fitting: Fitting, limit: Fraction) -> bool:
    return fitting.dead <= limit * fitting.records


def false_alarms(built: Built) -> list[FalseAlarm]:
    return [alarm for chosen in built.chosen for alarm in chosen.choice.alarms]


def checked_json(checked: Checked) -> dict[str, Any]:
    """Return the check as plain values. NOT PRIVATE."""
    built, fitting, judgement = checked
    spec, alarms = built.spec, [alarm.json() for alarm in false_alarms(built)]
    counts = {"dead": fitting.dead, "late": fitting.late, "other": fitting.other}
    return {
        "pipeline": spec.name,
        "private": False,
        "sample": fitting.origin,
        "fits": within_limit(fitting, spec.source.warn_dead),
        "warn_dead": str(spec.source.warn_dead),
        "records": fitting.records,
        **counts,
        "shares": {name: fitting.share(records) for name, records in counts.items()},
        "reasons": [asdict(reason) for reason in fitting.reasons],
        "fields": [_field(fit) for fit in fitting.fields],
        "hints": [asdict(hint) for hint in fitting.hints],
        **({"false_alarms": alarms} if alarms else {}),
        "verdicts": [row.json() for row in judgement.rows],
        "ways": {name: [way.json() for way in ways] for name, ways in judgement.ways.items()},
    }


def _field(fit: FieldFit) -> dict[str, Any]:
    return {
        "field": fit.name, "type": fit.type, "used": fit.used,
        "fits": len(fit.fits), "null": len(fit.null), "missing": len(fit.missing),
        "wrong_type": len(fit.wrong), "other": len(fit.other),
    }  # fmt: skip


RECORDS = 1000
"""Records per sample: the newest and the oldest of each partition; a file is read on until one record fits."""
_NAMED = 3


async def require_fitting(spec: PipelineSpec, sealer: Sealer, file: str = "FILE") -> None:
    """Raise UsageError if the source has records but none that can be used; an empty source is accepted.

    `stream-dp check` shows details. A file is read on until one record fits.
    """
    refused: list[Fitting] = []
    try:
        async for sample in _samples(spec, sealer):
            fitting = await asyncio.to_thread(fitting_of, spec, sample)
            if not fitting.wholly_refused:
                return
            refused.append(fitting)
    except UsageError:
        raise
    except StreamDPError:
        return
    if refused:
        raise UsageError(_why(spec, refused[0], file))


def require_wanted(built: Built, file: str, wanted: Callable[[str], bool]) -> None:
    """Raise UsageError if by the file's guesses a ledger would mostly pay for noise, and that is not `wanted`."""
    if not (warning := noise_by_guesses(built)):
        return
    why = f"{warning}. `stream-dp plan {file}` shows each, `stream-dp check {file}` what would be useful"
    if not wanted(why):
        raise UsageError(
            "not begun: nothing was charged, made or published. --yes begins without being asked"
        )


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


def _why(spec: PipelineSpec, fitting: Fitting, file: str) -> str:
    reasons = ", ".join(sorted(reason.name for reason in fitting.reasons[:_NAMED]))
    hint = f" Perhaps: {fitting.hints[0].says}." if fitting.hints else ""
    return (
        f"{fitting.origin}: {spec.name} can use none of the records that were looked at ({reasons}).{hint} A new "
        "ledger would spend its budget on noise alone. Nothing was charged, made or published. `stream-dp check "
        f"{file}` shows what does not fit; --no-check (in Python: check=False) starts all the same"
    )
