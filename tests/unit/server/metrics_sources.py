"""Where a line of `/metrics` comes from: found in the JSON of public answers, without the code that wrote it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from stream_dp import __version__
from stream_dp.server.view import PublicView

RELEASE = "stream_dp_release_"
LATEST = 2**63


class Sourceless(Exception):
    """A line says what nothing public says."""


def samples(text: bytes) -> list[Sample]:
    families = text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]
    return [sample for family in families for sample in family.samples]


def require_sources(text: bytes, view: PublicView, since: int = LATEST) -> int:
    """Return how many lines there are; `since` was the newest sequence at the first scrape.

    Raises:
        Sourceless: one of them says another number than is published, something that is not, or stands there twice.
    """
    found = samples(text)
    if len(found) != sum(not line.startswith(b"#") for line in text.splitlines()):
        raise Sourceless("a line stands there twice")
    for sample in found:
        try:
            said = source(sample.name, sample.labels, view, since)
        except (KeyError, StopIteration, ValueError) as error:
            raise Sourceless(f"{sample.name} {sample.labels}") from error
        if said is None or float(said) != sample.value:
            raise Sourceless(f"{sample.name} {sample.labels}: {sample.value}, not {said}")
    return len(found)


def source(name: str, labels: Mapping[str, str], view: PublicView, since: int) -> Any:
    labels = dict(labels)
    if labels.pop("pipeline") != view.pipeline()["name"]:
        raise ValueError("another pipeline")
    if name == "stream_dp_release_sequence":
        return view.log.last_sequence
    if name.startswith(RELEASE):
        bodies = [json.loads(each.body) for each in view.log.since(-1)]
        mine = [body for body in bodies if body["series"] == labels["series"]]
        if name == f"{RELEASE}fired_ticks_total":
            later = (body for body in mine if body["sequence"] > since)
            return sum(labels["key"] in body["fired"] for body in later)
        return released(name.removeprefix(RELEASE), labels, mine[-1])
    return configured(name.removeprefix("stream_dp_"), labels, view)


def released(what: str, labels: dict[str, str], body: dict[str, Any]) -> Any:
    key = labels.get("key", "")
    match what:
        case "tick" | "confidence" | "not_private":
            return body[what]
        case "end_timestamp_seconds":
            return datetime.fromisoformat(body["end"]).timestamp()
        case "threshold_band":
            return body["band"] if "fired" in body else None
        case "name_info":
            return body["name"] == labels["name"]
        case "fired":
            return key in body["fired"]
    window = labels.get("window", "")
    return numbers(what, key, body["windows"][window] if window else body)


def numbers(what: str, key: str, part: dict[str, Any]) -> Any:
    if what == "rank_band":
        return part["band"] if "quantiles" in part else None
    if "quantiles" in part:
        return part["quantiles"][key][what]
    if "ranks" in part:
        place, rank = next(
            (place, rank) for place, rank in enumerate(part["ranks"], 1) if rank["name"] == key
        )
        tied = len(rank["tied"]) + rank.get("more", 0)
        return {"value": rank["value"], "band": part["band"], "rank": place, "tied": tied}[what]
    if "counts" in part:
        return {"value": part["counts"][key], "band": part["counts_band"]}[what]
    if "value" in part:
        return part[what] if not key else None
    if what in {"low", "high"}:
        return part[f"{what}s"][list(part["values"]).index(key)]
    return part["values"][key] if what == "value" else part["band"]


def configured(what: str, labels: dict[str, str], view: PublicView) -> Any:
    pipeline, budget, kind = view.pipeline(), view.budget(), labels.pop("kind", "")
    match what:
        case "pipeline_info":
            shown = {"fingerprint": pipeline["fingerprint"], "version": __version__}
            return labels == shown
        case "series_info":
            name = labels.pop("series")
            named = next(each for each in pipeline["series"] if each["name"] == name)
            return all(str(named.get(key, "")) == said for key, said in labels.items())
        case "tick_seconds":
            return pipeline["clock"]["step"]
        case "tick_delay_seconds":
            return pipeline["clock"]["delay"]
        case "catching_up":
            return view.catching_up()
        case _ if what.startswith("budget_"):
            return budgeted(what, kind, labels, budget)
    raise ValueError("nothing public is called so")


def budgeted(what: str, kind: str, labels: dict[str, str], budget: Mapping[str, Any]) -> Any:
    match what:
        case "budget_filter" if labels["unit"] == budget["unit"]:
            return budget["epsilon"]["spent"] if kind == "spent" else budget[kind]
        case "budget_epsilon" if kind != "spent" or budget["unit"] == "epsilon":
            return budget["epsilon"][kind]
        case "budget_delta":
            return budget["delta"][kind]
        case "budget_odometer_epsilon":
            return budget["odometer"]["bound"]
        case "budget_analyst_epsilon":
            mine = (a for a in budget["analysts"] if a["name"] == labels["analyst"])
            return next(mine)["epsilon"][kind]
        case "budget_series_epsilon":
            mine = (s for s in budget["series"] if s["name"] == labels["series"])
            return next(mine)["epsilon"]
    raise ValueError("nothing public is called so")


def told_numbers(body: dict[str, Any]) -> Iterator[float]:
    """Yield the released values of a release, of whatever shape: what `stream_dp_release_value` must all say."""
    for part in body.get("windows", {"": body}).values():
        several: Iterable[Any] = (
            [part.get("value")],
            part.get("values", {}).values(),
            part.get("counts", {}).values(),
            (rank["value"] for rank in part.get("ranks", ())),
            (quantile["value"] for quantile in part.get("quantiles", {}).values()),
        )
        for each in several:
            yield from (float(value) for value in each if value is not None)
