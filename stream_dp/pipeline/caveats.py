"""What a reader of the guarantee must know beside it."""

from stream_dp.core.neighbors import Neighbors
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.endpoints import KafkaSourceSpec

_PEOPLE = ("user", "person", "customer", "patient", "member", "email", "account", "client")
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
    people = [f for f in built.spec.fields if any(p in f.lower() for p in _PEOPLE)]
    if people:
        notes.append(
            f"the unit is one event, but the schema has {', '.join(people)}: a person with many events is "
            "protected for each of them, not for all together"
        )
    return notes
