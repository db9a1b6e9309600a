"""Who is protected, in words: what `plan` says first, and API, page, `ledger` and `audit` with it.

Rules: everything here is declared. A promise never names a person where it is for an event, or for a person's window.
"""

from typing import Any

from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.scalars import duration_text

_WINDOWS = {60_000: "minute", 3_600_000: "hour", 86_400_000: "day", 604_800_000: "week"}


def unit_name(spec: PipelineSpec) -> str:
    """Return the unit in short: `one event`, `(user, day)`, or `user, for ever`."""
    privacy = spec.privacy
    if privacy.unit == "event":
        return "one event"
    if privacy.per is None:
        return "user, for ever"
    return f"(user, {_WINDOWS.get(privacy.per) or duration_text(privacy.per)})"


def unit_words(spec: PipelineSpec) -> str:
    """Return the unit with what it means: whose events together, and how many of them count."""
    privacy, name = spec.privacy, unit_name(spec)
    if privacy.unit == "event":
        return name
    where = "for ever" if privacy.per is None else f"within one {window_name(privacy.per)}"
    many = f"{privacy.cap} {'counts' if privacy.cap == 1 else 'count'}"
    return f"{name}: all events of one {privacy.user} {where} together, of which at most {many}"


def unit_json(spec: PipelineSpec) -> dict[str, Any]:
    """Return the unit for API and `--json`: `unit`, and where it is a user under `users` who, how many and where."""
    privacy = spec.privacy
    if privacy.unit == "event":
        return {"unit": privacy.unit}
    per = None if privacy.per is None else duration_text(privacy.per)
    users = {
        "name": unit_name(spec), "field": privacy.user, "max_events": privacy.cap, "per": per,
    }  # fmt: skip
    return {"unit": privacy.unit, "users": users}


def window_name(milliseconds: int) -> str:
    """Return what a public window of this length is called: `day`, or `window of 36h`."""
    return _WINDOWS.get(milliseconds) or f"window of {duration_text(milliseconds)}"
