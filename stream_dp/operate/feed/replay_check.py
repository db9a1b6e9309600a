"""Which records of a file a pipeline cannot use, and why, before any is sent.

Rules: the pipeline's own router decides, so exactly the engine's dead letters are reported here. Counts and lines
are exact and NOT PRIVATE: they go to the operator's own terminal. The content of a record is never shown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stream_dp.core.how_many import how_many
from stream_dp.engine.ports import Batch
from stream_dp.files.records import Record
from stream_dp.operate.run.settings import settled
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.routing.router import Routed, Router
from stream_dp.pipeline.routing.user_guard import NO_KEY, guard_of
from stream_dp.records.endpoints import ReplayClock
from stream_dp.records.schema import TimeField

_AT_ONCE = 8192
_OUT_OF_RANGE = "the clock declares start, step and horizon"
_NO_TIME = {
    "offset": "a time needs an offset, or `zone:` in the schema, or the `format:` of its numbers",
    "zone": "a time is text such as 2013-01-01 10:00:00, and never null",
    "number": "a time is a whole number, as `format:` says, and never null",
}


@dataclass(frozen=True, slots=True)
class Unusable:
    """Number of records that one reason makes unusable; `field` is its cause if known, `line` the first one."""

    reason: str
    field: str | None
    records: int
    line: int


@dataclass(frozen=True, slots=True)
class Examined:
    """The usable records of a file, in the file's order, and the reasons why the others are not usable."""

    good: Sequence[Record]
    bad: Sequence[Unusable]

    @property
    def refused(self) -> int:
        """Number of records that could not be used."""
        return sum(kind.records for kind in self.bad)

    def report(self, spec: PipelineSpec, file: Path) -> Iterator[str]:
        """Yield lines for the operator's terminal; none if every record is usable. NOT PRIVATE."""
        if not self.bad:
            return
        time = spec.clock.field if isinstance(spec.clock, ReplayClock) else None
        hints = {} if time is None else _hints(spec, time)
        whole = len(self.good) + self.refused
        yield f"NOT PRIVATE: {spec.name} cannot use {self.refused:,} of the {how_many(whole, 'record')} of {file.name}:"
        for kind in self.bad:
            hint = hints.get(kind.reason) if kind.field == time else None
            yield (
                f"  {kind.reason}{f' in {kind.field}' if kind.field else ''}: {kind.records:,}, the first "
                f"in line {kind.line:,}{f' ({hint})' if hint else ''}"
            )


def examine(
    spec: PipelineSpec,
    records: Sequence[Record],
    shown: Callable[[int], None] = lambda done: None,
) -> Examined:
    """Route every record as the engine would; `shown` receives the number of routed records.

    Raises:
        UsageError: the pipeline has no replay clock.
    """
    start = settled(spec.clock, ReplayClock).start
    router, guard = Router(spec, start), guard_of(spec, start, NO_KEY)
    guard.begin((0,))
    why: dict[int, tuple[str, str | None]] = {}
    for begin in range(0, len(records), _AT_ONCE):
        shown(begin)
        some = records[begin : begin + _AT_ONCE]
        places = range(begin, begin + len(some))
        batch = Batch(0, [each.payload for each in some], places, places.stop)
        why |= _dead(router.route(guard.admit(batch, -1)))
    kinds: dict[tuple[str, str | None], list[int]] = {}
    for place, kind in why.items():
        kinds.setdefault(kind, []).append(place)
    return Examined(
        [record for place, record in enumerate(records) if place not in why],
        [Unusable(*kind, len(at), records[min(at)].line) for kind, at in kinds.items()],
    )


def _hints(spec: PipelineSpec, time: str) -> dict[str, str]:
    """Return advice about the form of a time, by the reason of the refusal."""
    field = settled(spec.fields[time], TimeField)
    written = "zone" if field.zone else "offset" if field.format == "iso" else "number"
    return {"time_out_of_range": _OUT_OF_RANGE, "wrong_type": _NO_TIME[written]}


def _dead(routed: Routed) -> dict[int, tuple[str, str | None]]:
    """Return reason and field for each place that is a dead letter."""
    return {
        place: (span.reason, span.field)
        for span in routed.dead
        for place in range(span.first, span.last + 1)
    }
