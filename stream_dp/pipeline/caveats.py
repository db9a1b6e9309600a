"""What a reader of the guarantee must know beside it."""

from stream_dp.core.neighbors import Neighbors
from stream_dp.pipeline.builder import Built

_PEOPLE = ("user", "person", "customer", "patient", "member", "email", "account", "client")


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
    people = [f for f in built.spec.fields if any(p in f.lower() for p in _PEOPLE)]
    if people:
        notes.append(
            f"the unit is one event, but the schema has {', '.join(people)}: a person with many events is "
            "protected for each of them, not for all together"
        )
    return notes
