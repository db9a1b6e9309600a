"""Series of every shape that a card shows, with what they released: a test takes those that it looks at.

Rules: what a series releases is a function of the tick; the history of a series is made once.
"""

import json
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from fractions import Fraction
from functools import cache
from typing import Any

from browser.page_worlds import Engine, described, pipeline, plan, planned, showing
from playwright.async_api import Browser, Page

from stream_dp.statistics.parts.choice import FalseAlarm

TICKS = 100
Content = dict[str, Any]
BANDS = {"tick": 15, "6h": 38, "24h": 75, "ever": 160}
NOTHING: Content = dict.fromkeys(("value", "low", "high"))
OPEN = (
    (31.5, 2.0, None, "at least 2"),
    (31.5, None, 40.25, "at most 40.25"),
    (None, None, None, "anything"),
    (31.5, None, None, "anything"),
    (31.512, 30.5, 32.75, "30.5 to 32.8"),
)
"""Value, ends and words of a tick, by its place among five."""
UNTOLD_DAYS = (2, 4)
DOORS = ["in", "out", "idle"]
KEYS = [f"k{place}" for place in range(16)]


def departures(tick: int) -> Content:
    return {"value": 50 * tick, "band": 45}


def leader(tick: int) -> Content:
    """Nobody, then ATL, of late LAX, once more ATL, and LAX."""
    if tick < 10:
        return {"value": 0, "band": 37}
    name = "LAX" if 70 <= tick < 80 or tick >= 90 else "ATL"
    return {"name": name, "value": 6 * tick, "band": 37}


def share(tick: int) -> Content:
    """About a quarter."""
    return {"value": 0.25 + tick % 10 / 1000, "low": 0.2105, "high": 0.2982}


def cut(tick: int) -> Content:
    """A share of this day, which may be anything at first, and of the day before."""
    today = {"value": 0.5, "low": 0.0, "high": 1.0} if tick % 24 < 4 else share(tick)
    return {"windows": {"1d": today, "1d before": NOTHING if tick < 24 else share(tick)}}


def bucket(middle: float) -> dict[str, float]:
    return {"value": middle, "low": middle - 1.5, "high": middle + 1.5}


def fan(tick: int) -> Content:
    """Quantiles of the day that ended last; none on the first day."""
    if tick < 24:
        return {"windows": {"24h": {"quantiles": {}, "band": 48}}}
    centre = 12 + 6 * ((tick // 24 * 7) % 5)
    told = {"0.5": bucket(centre + 1.5), "0.9": bucket(2 * centre + 40.5)}
    last = {"value": 240, "low": 240, "high": 240}
    return {"windows": {"24h": {"quantiles": {**told, "0.99": last}, "band": 48}}}


def sparse_fan(tick: int) -> Content:
    """Of a day with events what is known; of one without any value, and all values between its ends."""
    told = {"0.5": (4.0, -6.0, 9.0), "0.9": (60.0, 36.0, 93.0)}
    if tick // 24 in UNTOLD_DAYS:
        told = {name: (random.Random(tick).randint(-30, 240), -30.0, 240.0) for name in told}
    ends = ("value", "low", "high")
    quantiles = {name: dict(zip(ends, at, strict=True)) for name, at in told.items()}
    return {"windows": {"24h": {"quantiles": quantiles, "band": 40}}}


def quotient(tick: int, *, short: bool) -> Content:
    """A mean; of a single tick at night there is no upper end, and at times nothing at all."""
    if short and tick % 24 == 5:
        return NOTHING
    if short and tick % 24 < 4:
        return {"value": 310.0, "low": 0.5, "high": None}
    centre = 12.03 + 5 * abs(tick % 24 - 12) / 12 + (tick * 7 % 5 - 2) * (2 if short else 0.2)
    width = 9 if short else 1.234
    ends = (round(end, 3) for end in (centre, centre - width, centre + 2 * width))
    return dict(zip(("value", "low", "high"), ends, strict=True))


def ranks(_: int) -> Content:
    """ORD alone, ATL and LAX together, and BOS with MCO and one that is not listed."""
    rows: list[Content] = [
        {"name": "ORD", "value": 870, "tied": []},
        {"name": "ATL", "value": 640, "tied": ["LAX"]},
        {"name": "LAX", "value": 610, "tied": ["ATL"]},
        {"name": "BOS", "value": 301, "tied": ["MCO", "SFO"]},
        {"name": "MCO", "value": 290, "tied": ["BOS", "SFO"], "more": 2},
    ]
    return {
        "windows": {"tick": {"ranks": rows[:2], "band": 15}, "24h": {"ranks": rows, "band": 75}}
    }


def open_mean(tick: int) -> Content:
    """A mean whose ends are open in turn."""
    return dict(zip(("value", "low", "high"), OPEN[tick % 5], strict=False))


def open_means(tick: int) -> Content:
    """The same of the first key; nothing is known of the second one."""
    value, low, high, _ = OPEN[tick % 5]
    values = {"in": value, "out": None, "idle": 24.25}
    return {"values": values, "lows": [low, None, 24.0], "highs": [high, None, 24.5]}


def rate(tick: int) -> Content:
    lengths = {"tick": 1, "6h": 6, "24h": 24, "ever": tick + 1}
    single = [55 - abs((at + 10) % 24 - 14) * 4 + at * 7 % 11 for at in range(tick + 1)]
    return {
        "windows": {
            name: {"value": sum(single[-length:]), "band": BANDS[name]}
            for name, length in lengths.items()
        }
    }


def rare(tick: int) -> Content:
    """A count of which single ticks say nothing, 6 hours seldom something, and days mostly."""
    values = {
        "tick": 2,
        "6h": 12 if tick % 5 else 90,
        "24h": 190 if tick % 5 else 48,
        "ever": 9_000,
    }
    return {"windows": {name: {"value": of, "band": BANDS[name]} for name, of in values.items()}}


def level(tick: int) -> Content:
    """A count so far that stays where it is, under noise that stays inside its band."""
    return {"value": 2_000 + tick * 7 % 11 - 5, "band": 40}


def keyed(values: dict[str, Any], band: int) -> Content:
    return {"values": values, "band": band}


_DAYS = {"windows": ["1d"]}
_WITHIN = {"parameters": {"of": "late", "over": "all", "digits": 4, "within": "0 to 1"}}
_RATIO: Content = {"statistic": "ratio", "epsilon": Fraction(0), "of": "late", "over": "all"}
_WATCHES = [{"name": "large", "above": 50}, {"name": "quiet", "below": 3, "over": "1h"}]
_WAITED = {"of": "delay", "clamp": ["0", "120"], "step": "0.5", **_DAYS}
_SPARSE = {
    "of": "delay",
    "clamp": ["-30", "240"],
    "buckets": "90",
    "at": ["0.5", "0.9"],
    "windows": ["24h"],
}
_SIGNS = {"of": "kind", "plus": "in", "minus": "out"}
_WINDOWS = ["6h", "24h", "ever"]
_MEANS = {"tick": {"values": {"in": 31.0, "out": None, "idle": 24.25}, "lows": [2.0, None, 24.0],
                   "highs": [None, None, 24.5]}}  # fmt: skip
_RATES = {
    "tick": keyed({"AA": 9, "UA": 4, "DL": 41}, 15),
    "24h": keyed({"AA": 610, "UA": 340, "DL": 12}, 75),
}
_SHARES = {"values": {"ATL": 0.31, "other": 0.5}, "lows": [0.22, 0.0], "highs": [0.44, 1.0]}


@cache
def gallery() -> dict[str, tuple[Content, Callable[[int], Content]]]:
    """What the API says of each series, and what it releases at a tick."""
    return {
        "departures": (described("count", "departures"), departures),
        "most": (described("maximum", "most", by="place"), leader),
        "silent": (
            described("alerts", "silent", by="place", threshold=60, below=True, usual=200, **_DAYS),
            lambda tick: {"fired": ["ATL"] if tick % 24 == 23 else [], "band": 38},
        ),
        "waited": (
            described("alerts", "waited", by="place", threshold=20000, **_WAITED),
            lambda _: {"fired": [], "band": 812.5},
        ),
        "watched": (
            described("monitor", "watched", watch=_WATCHES),
            lambda tick: {"fired": ["large"] if tick == 30 else [], "band": 84},
        ),
        "share": ({**described(name="share", **_RATIO), **_WITHIN}, share),
        "shares": ({**described(name="shares", **_RATIO), **_WITHIN}, lambda _: _SHARES),
        "cut": (described("cut_off", "cut", window="1d"), cut),
        "users": (
            described("distinct", "users", of="user", every="1d", running=True),
            lambda tick: {"windows": {"1d": {"value": 20 + 11 * (tick % 24), "band": 10}}},
        ),
        "inside": (described("gauge", "inside", **_SIGNS), lambda tick: {"value": 3 * tick - 220, "band": 8}),
        "delays": (
            {
                **described("count", "delays", windows=["24h"]), "windows": ["24h"],
                "about": "quantiles 0.5, 0.9, 0.99 of delay in each 24h", "error_unit": "events in rank",
                "parameters": {"told": "when a window ends", "clamp": "-30 to 240"},
            },
            fan,
        ),
        "waits": (described("quantiles", "waits", **_SPARSE), sparse_fan),
        "mean_delay": (
            {**described("count", "mean_delay", windows=["24h"]), "about": "mean of delay"},
            lambda tick: {"windows": {"tick": quotient(tick, short=True), "24h": quotient(tick, short=False)}},
        ),
        "leaders": ({**described("count", "leaders", windows=["24h"]), "about": "top 5 by destination"}, ranks),
        "gauge": (
            {**described("gauge", "gauge", **_SIGNS, by="door"), "domain": DOORS},
            lambda _: keyed({"in": 120, "out": -80, "idle": 3}, 20),
        ),
        "mean_by_door": (
            {**described("histogram", "mean_by_door", by="door", windows=["24h"]), "domain": DOORS},
            lambda _: {"windows": {**_MEANS, "24h": _MEANS["tick"]}},
        ),
        "mean": ({**described("count", "mean"), "nonnegative": False}, open_mean),
        "means": (
            {**described("histogram", "means", by="door"), "domain": DOORS, "nonnegative": False}, open_means,
        ),
        "rate": (described("count", "rate", windows=_WINDOWS), rate),
        "rates": (
            {**described("histogram", "rates", by="airline", windows=["24h"]), "domain": ["AA", "UA", "DL"]},
            lambda _: {"windows": _RATES},
        ),
        "rare": (described("count", "rare", windows=_WINDOWS), rare),
        "turnover": (described("count", "turnover"), lambda tick: {"value": tick * 3.25, "band": 310.5}),
        "level": (described("count", "level"), level),
        "later": (described("count", "later"), lambda _: {"value": 1, "band": 1}),
        "few": (
            {**described("histogram", "few", by="place"), "domain": KEYS[:15]},
            lambda _: keyed(dict.fromkeys(KEYS[:15], 30), 4),
        ),
        "many": (
            {**described("histogram", "many", by="place"), "domain": KEYS},
            lambda _: keyed(dict.fromkeys(KEYS, 30), 4),
        ),
    }  # fmt: skip


VERDICT = {"series": "departures", "verdict": "useful", "typical": 2508.4, "band": 45.0}


def plans() -> Content:
    """The plan: chances of false alarms, errors of windows and of the share."""
    alarms = {
        "silent": [FalseAlarm("silent", 200, 0.00291)],
        "waited": [FalseAlarm("waited", 10000, 1e-9, of="delay")],
        "watched": [FalseAlarm("large", 25, 0.01), FalseAlarm("quiet", 6, 0.2, keyed=False)],
    }
    told = [
        {**planned(name, 1, 99), "false_alarms": [alarm.json() for alarm in found]}
        for name, found in alarms.items()
    ]
    windows = [
        {"window": name, "predicted_error": planned("", band, 8760)["predicted_error"]}
        for name, band in BANDS.items()
    ]
    day = {"window": "24h", "predicted_error": planned("", 48, 8760)["predicted_error"]}
    more = [
        planned("cut", 22, 99),
        {**planned("departures", 45, 99), "verdicts": [VERDICT]},
        {**planned("delays", 48, 8760), "windows": [day]},
        {
            **planned("rate", 15, 8760),
            "windows": windows,
            "verdicts": [
                {**VERDICT, "series": "rate", "window": name, "verdict": verdict}
                for name, verdict in (("tick", "rough"), ("24h", "useful"), ("ever", "noise"))
            ],
        },
    ]
    return {**plan(), "series": [*told, *more]}


@cache
def _past(names: tuple[str, ...], ticks: int) -> Engine:
    made = Engine()
    for _ in range(ticks):
        step(made, *names)
    return made


def step(engine: Engine, *names: str) -> None:
    for name in names:
        engine.publish(name, gallery()[name][1](engine.tick))
    engine.tick += 1


class Cards:
    """Some of these series after so many ticks, and what the API says of them."""

    def __init__(self, *names: str, ticks: int = TICKS, **changes: Any) -> None:
        self.names = names
        self.engine = _past(names, ticks).again()
        series = [{**gallery()[name][0], **changes} for name in names]
        self.public = {**pipeline(), "series": series}

    def shown(
        self, browser: Browser, query: str = "", script: str = "", width: int = 1280
    ) -> AbstractAsyncContextManager[Page]:
        return showing(browser, self.engine, self.public, query, script, width, plan=plans)

    def released(self, name: str) -> Content:
        found: Content = json.loads(self.engine.log.latest()[name].body)
        return found
