"""Notes that a reader of the guarantee must know."""

from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.run_config import READ_AGAIN_MS
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.file.spec import PipelineSpec, ReplayClock
from stream_dp.pipeline.people import looks_like_people
from stream_dp.records.endpoints import KafkaSourceSpec
from stream_dp.records.scalars import duration_text
from stream_dp.statistics.parts.false_alarm import noise_of

_TRANSACTIONS = {
    "late": "records of a transaction count in their ticks if it is committed before these settle (wall clock: half of "
    "`delay` after their end; replay: before their marks), else they are late; an open one holds nothing up",
    "wait": "ticks wait for the end of every open transaction: whoever may write into the topic can hold them up",
}


def caveats(built: Built) -> list[str]:
    """Return the notes that `stream-dp plan` prints below the guarantee."""
    notes = [
        "this pipeline only: other pipelines on the same source have ledgers of their own and add up",
        "the guarantee holds against computationally bounded adversaries (noise comes from ChaCha20)",
    ]
    if built.spec.relation is Neighbors.REPLACE_ANY_TICK:
        notes.append(
            "an event's own time says its tick, so a replacement may move to another one: one event removed and one "
            "added, and each mechanism has half the epsilon for either. If no replacement moves, say so: "
            "privacy.moves: within_tick"
        )
    source = built.spec.source
    if isinstance(source, KafkaSourceSpec):
        notes.append(_TRANSACTIONS[source.open_transactions])
    if built.spec.clock.step > READ_AGAIN_MS:
        notes.append(
            f"a tick is longer than {duration_text(READ_AGAIN_MS)}: what is created while it runs, and a watch that "
            "begins or ends, does so with the next tick, so that nothing of the open one is read again"
        )
    return [*notes, *_of_noise(built), *_of_identifiers(built.spec), *_of_people(built.spec)]


def _of_noise(built: Built) -> list[str]:
    """Return notes on alarms that fire mostly by noise, and what would help."""
    found = [(c.spec.name, noise_of(c.choice.alarms, c.spec.price)) for c in built.chosen]
    return [f"{name}: {noise}" for name, noise in found if noise]


def _of_identifiers(spec: PipelineSpec) -> list[str]:
    """Return notes on the identifiers that series remember."""
    kept = [(s.name, s.identifier) for s in spec.series if s.identifier is not None]
    return [
        f"{name} remembers every different {one.field} "
        f"{'for ever' if one.span is None else f'until its window of {duration_text(one.span)} is over'}: at most "
        f"{64 * len(one.keys)} bytes of memory each, and {20 * len(one.keys)} bytes in the private commit of the tick "
        f"where it counts{_early(spec, len(one.keys))}. It grows with them and forgets none earlier; the size of a "
        "private commit tells roughly how many came"
        for name, one in kept
    ]


def _early(spec: PipelineSpec, columns: int) -> str:
    """Return a note on the space for an identifier that arrives before its tick."""
    if not isinstance(spec.clock, ReplayClock):
        return ""
    return f", {16 * columns} more in an earlier one for each tick before whose turn it is read"


def _of_people(spec: PipelineSpec) -> list[str]:
    """Return notes on people whom the unit protects not at all, or not for all their events together."""
    privacy, people = spec.privacy, looks_like_people(spec.fields)
    if privacy.unit == "event":
        found = (
            f"the unit is one event, but the schema has {', '.join(people)}: a person with many events is "
            "protected for each of them, not for all together; privacy.unit: user protects all of them (docs/people.md)"
        )
        return [found] if people else []
    notes = _of_memory(spec)
    who = f"a user is whoever has the same {privacy.user}, to the letter; a record without one is a dead letter"
    if privacy.per is None:
        return [*notes, who]
    length = duration_text(privacy.per)
    return [
        *notes,
        who,
        f"windows of {length} count from the first tick on. A user who is there in several of them loses as much in "
        "each: what is protected is a user's part in one window, not that they were ever there (overall does that)",
    ]


def _of_memory(spec: PipelineSpec) -> list[str]:
    """Return notes on the users that the guard remembers, and on the records that it accepts."""
    privacy, source = spec.privacy, spec.source
    until = "for ever" if privacy.per is None else "until the window is over"
    found = [
        f"the guard remembers every user who counts {until}: at most 64 bytes of memory each, and 20 bytes in the "
        "private commit of each tick in which the user counts. It grows with the users and forgets nobody earlier"
    ]
    if privacy.share is not None:
        found.append(
            f"only {privacy.share} of all users count, chosen by a keyed hash: counts are of these users alone"
        )
    if isinstance(source, KafkaSourceSpec) and source.keyed_by is not None:
        found.append(
            f"a user's records count in one partition, that of {source.partitioner} over the partitions of the first "
            "start: others are dead letters. Added partitions count nowhere, and users who move with them no more"
        )
    return found
