"""Checks that a journal belongs to this run: the header of its first commit against that of the run."""

from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Header

_FIELDS = {
    "private": "whether its noise is private",
    "pipeline": "the pipeline's name",
    "source": "the source",
}


def require_same(journal: Header, now: Header, *, grows: bool = False) -> None:
    """Refuse a journal that was written for something else; if the source `grows`, it may have more partitions.

    Raises:
        FailClosed: something differs; the message names what.
    """
    differing = [
        f"{what}: then {getattr(journal, name)!r}, now {getattr(now, name)!r}"
        for name, what in _FIELDS.items()
        if getattr(journal, name) != getattr(now, name)
    ]
    gone = not set(journal.partitions) <= set(now.partitions)
    if gone or (len(journal.partitions) != len(now.partitions) and not grows):
        differing.append(
            f"the source's partitions: then {journal.partitions!r}, now {now.partitions!r}"
        )
    if journal.identity and now.identity and journal.identity != now.identity:
        differing.append(f"the source: {now.source!r} was deleted and made anew since")
    if journal.fingerprint != now.fingerprint:
        names = sorted(journal.parts.keys() | now.parts.keys())
        changed = [n for n in names if journal.parts.get(n) != now.parts.get(n)]
        differing.append(_meaning(changed))
    if differing:
        raise FailClosed(
            f"the journal was written for something else (changed: {'; '.join(differing)}). Use the pipeline file "
            "it belongs to; a changed one needs a name of its own, which opens a second ledger: the two guarantees "
            "then add up"
        )


def _meaning(changed: list[str]) -> str:
    """Return what changed: the code's mechanisms, or parts of the pipeline file."""
    if changed == ["mechanisms"]:
        return "the mechanisms that this version of stream_dp runs for the same file: use the version that wrote it"
    return f"in the pipeline file: {', '.join(changed) or 'its meaning'}"
