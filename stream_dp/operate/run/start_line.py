"""One line for the operator: from where a run counts, and which part of the backlog it reads.

Rules: everything shown is public: the grid, and the first tick that is not public yet. No offset and no lag.
"""

from stream_dp.core.moments import moment_text
from stream_dp.operate.run.running import Run
from stream_dp.operate.tick_times import TickTimes
from stream_dp.records.endpoints import (
    FileSourceSpec,
    KafkaSourceSpec,
    ReplayClock,
    SourceSpec,
)


def start_line(run: Run, origin: int | None) -> str:
    """Return the line for a run whose engine is ready; `origin` is where the ledger begins if this run began it."""
    spec = run.built.spec
    where = _named(spec.source)
    if origin is None:
        return f"{spec.name}: {_goes_on(run, where)}"
    if isinstance(spec.clock, ReplayClock):
        end = spec.clock.grid.end_text(spec.clock.horizon - 1)
        return f"{spec.name}: a new ledger; counts what {where} holds from {moment_text(origin)} to {end}"
    return f"{spec.name}: a new ledger; counts what comes into {where} from {moment_text(origin)} on, and nothing older"


def told_start(run: Run, origin: int | None) -> dict[str, str | int]:
    """Return log fields: whether the ledger is new, and where it begins or continues."""
    if origin is not None:
        return {"ledger": "new", "origin": moment_text(origin)}
    return {"ledger": "goes on", "tick": run.ticks}


def _goes_on(run: Run, where: str) -> str:
    spec, tick = run.built.spec, run.ticks
    if tick == spec.clock.horizon:
        return "all its ticks are public already"
    begin = TickTimes(spec, run.log)(tick)
    first = "its first tick" if begin is None else f"the tick that begins at {begin}"
    return f"goes on with {first}, and catches up on {where} from there"


def _named(source: SourceSpec) -> str:
    if isinstance(source, KafkaSourceSpec):
        return f"topic {source.topic}"
    return source.path.name if isinstance(source, FileSourceSpec) else f"its {source.kind}"
