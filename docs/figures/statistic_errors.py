"""How far each statistic is off: the half-width that its releases carry, and beside it, in points, what runs were off.

Run: python docs/figures/statistic_errors.py. Writes STATISTIC-errors.svg beside this file. Rules: a line is what `plan`
says of a pipeline file, at confidence 0.95, and nothing else; a point is the 0.95 quantile of the errors of 400 runs of
the very mechanism of that file on a stream in which nothing happens, all seeds fixed.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import yaml
from matplotlib.figure import Figure
from scipy.stats import lognorm

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.mechanisms.quotients import quotient
from stream_dp.mechanisms.serving import Answer, Contrasts
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec

CONFIDENCE, RUNS, HOURS = 0.95, 400, 8_760
LOOKS = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", ":"))
MEASURED = (1, 4, 16, 48, 120, 400)
TICKS = tuple(sorted({*MEASURED, *(round(HOURS ** (n / 80)) for n in range(81))}))
WINDOWS = (1, 2, 4, 8, 16, 24, 48, 96, 168, 336, 720)
RECORDS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
SCHEMA = {
    "time": {"type": "time"},
    "user": {"type": "text"},
    "amount": {"type": "number"},
    "kind": {"type": "category", "domain": ["up", "down"]},
    "run": {"type": "category", "domain": [f"{run}" for run in range(RUNS - 1)]},
}
USERS = {"unit": "user", "user": "user", "max_events": 20, "per": "1d"}
RHO = {"filter": "zcdp", "delta": "1e-6"}

Entry = dict[str, Any]
Points = Mapping[float, float]


@lru_cache(maxsize=256)
def _planned(text: str) -> Built:
    return build(PipelineSpec.model_validate(yaml.safe_load(text)))


def planned(entry: Entry, more: Entry | None = None, horizon: int = HOURS) -> Built:
    """The plan of a pipeline of hours with this one series; `more` is what `privacy` says besides."""
    clock = {
        "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": horizon,
    }  # fmt: skip
    document = {
        "version": 1,
        "name": "figures",
        "source": {"kind": "file", "path": "events.jsonl"},
        "schema": SCHEMA,
        "privacy": {"epsilon": 2, **(more or {})},
        "clock": clock,
        "series": [{"name": "shown", "epsilon": "0.3", **entry}],
    }
    return _planned(yaml.safe_dump(document))


def band(entry: Entry, tick: int, more: Entry | None = None, window: str = "") -> float:
    """The half-width that `plan` tells of a tick; of a series over windows, that of one of them."""
    choice = planned(entry, more).chosen[0].choice
    return (choice.windows[window] if window else choice.expected)(tick)


def answer(entry: Entry, ticks: int, more: Entry | None = None, seed: int = 0) -> IntArray:
    """The mechanism's answer after so many ticks in which nothing happened."""
    mechanism = planned(entry, more).chosen[0].mechanism
    noise = NoiseStream(hashlib.sha256(f"{entry} {seed}".encode()).digest(), 0)
    state, nothing = mechanism.init(noise), Update(np.zeros(mechanism.width, dtype=np.int64))
    for _ in range(ticks):
        state, _ = mechanism.step(state, nothing, noise)
    told: IntArray = mechanism.step(state, Query(), noise)[1]
    return told


def observed(errors: Iterable[float]) -> float:
    """The quantile of errors that a half-width is to be compared with."""
    return float(np.quantile(np.abs(np.fromiter(errors, dtype=np.float64)), CONFIDENCE))


@dataclass(frozen=True)
class Picture:
    """What one figure shows: lines by what they are called, and points of some of them, each y by x."""

    title: str
    across: str
    up: str
    lines: Mapping[str, Points]
    points: Mapping[str, Points]
    scales: tuple[str, str] = ("log", "log")


def counts() -> Picture:
    """A count so far, by how long it has been counted."""
    tree, gaussian = (
        {"statistic": "count", "method": "tree"},
        {"statistic": "count", "method": "gaussian"},
    )
    kinds: dict[str, tuple[Entry, Entry]] = {
        "tree": (tree, {}),
        "Gaussian, delta 1e-6": (gaussian, RHO),
    }
    each = {"statistic": "histogram", "by": "run"}
    return Picture(
        "a count so far, epsilon 0.3, made for 8,760 ticks", "ticks so far", "events",
        {name: {tick: band(entry, tick - 1, more) for tick in TICKS} for name, (entry, more) in kinds.items()},
        {
            name: {tick: observed(answer(entry | each, tick, more)) for tick in MEASURED}
            for name, (entry, more) in kinds.items()
        },
        ("log", "linear"),
    )  # fmt: skip


def windows() -> Picture:
    """A sliding window, by its length."""
    last = HOURS - 1
    alone = {hours: {"statistic": "count", "windows": [f"{hours}h"]} for hours in WINDOWS}
    beside = {
        hours: {"statistic": "count", "windows": [*dict.fromkeys([f"{hours}h", "24h", "168h"])]}
        for hours in WINDOWS
    }
    measured = {
        hours: observed(answer(entry | {"statistic": "histogram", "by": "run"}, hours)[-RUNS:])
        for hours, entry in alone.items()
    }
    return Picture(
        "a sliding window, epsilon 0.3", "ticks in the window", "events",
        {
            "alone": {hours: band(entry, last, None, f"{hours}h") for hours, entry in alone.items()},
            "beside those of 24 and 168": {
                hours: band(entry, last, None, f"{hours}h") for hours, entry in beside.items()
            },
            "the count so far, for comparison": dict.fromkeys(WINDOWS, band({"statistic": "count"}, last)),
        },
        {"alone": measured},
    )  # fmt: skip


def sums() -> Picture:
    """What a day brings, by the top of the clamp: noise, and what the clamp cuts off."""
    amounts, records = lognorm(1.0, scale=30.0), 2_000
    tops = (30, 60, 120, 240, 480, 960, 1_920)
    entries = {
        top: {"statistic": "sum", "of": "amount", "clamp": [0, top], "windows": ["24h"]} for top in tops
    }  # fmt: skip
    noise = {top: band(entry, HOURS - 1, None, "24h") for top, entry in entries.items()}
    above = {top: records * float(amounts.expect(lambda x, c=top: x - c, lb=top)) for top in tops}
    return Picture(
        "the sum of a day of 2,000 amounts of 49 on average, epsilon 0.3", "the top of the clamp",
        "how much the sum is off",
        {
            "noise": noise,
            "cut off by the clamp": above,
            "both": {top: noise[top] + above[top] for top in tops},
        },
        {
            "noise": {
                top: observed(answer(entry | {"by": "run"}, 24)[-RUNS:]) for top, entry in entries.items()
            }
        },
    )  # fmt: skip


def means() -> Picture:
    """A day's mean, by how many records it is of."""
    day = 1  # behind the single tick
    lines: dict[str, dict[float, float]] = {}
    points: dict[str, dict[float, float]] = {}
    for top in (60, 240):
        entry = {"statistic": "mean", "of": "amount", "clamp": [0, top], "windows": ["24h"]}
        chosen = planned(entry).chosen[0]
        tell = chosen.spec.teller(chosen.mechanism, day, CONFIDENCE)
        added, counted = np.split(answer(entry | {"by": "run"}, 24)[day * 2 * RUNS :], 2)
        name = f"clamp [0, {top}]"
        told = {n: tell((name,), np.array([0, n]), 23, None) for n in RECORDS}  # type: ignore[misc]
        lines[name] = {n: float(each["high"] - each["low"]) / 2 for n, each in told.items()}
        points[name] = {
            n: observed(added / (n + counted)) for n in RECORDS if n > 5 * observed(counted)
        }
    return Picture(
        "the mean of a day, in the middle of its clamp, epsilon 0.3", "records in the day",
        "half the interval", lines, points,
    )  # fmt: skip


def ratios() -> Picture:
    """A day's share, by how many records it is of."""
    entry = {"statistic": "count", "windows": ["24h"]}
    noise = Answer(planned(entry).chosen[0].mechanism, 1)
    widths = Contrasts(noise, noise, CONFIDENCE)(23)
    some, all_ = (
        answer(entry | {"statistic": "histogram", "by": "run"}, 24, seed=seed)[RUNS:]
        for seed in (1, 2)
    )
    lines: dict[str, dict[float, float]] = {}
    points: dict[str, dict[float, float]] = {}
    for share in (Fraction(1, 10), Fraction(1, 2)):
        name = f"a share of {float(share)}"
        told = {
            n: quotient(
                share * n, Fraction(n), widths, 4, signed=False, within=(Fraction(0), Fraction(1))
            )
            for n in RECORDS
        }
        lines[name] = {n: float((each.high or 1) - (each.low or 0)) / 2 for n, each in told.items()}
        points[name] = {
            n: observed((float(share) * n + some) / (n + all_) - float(share))
            for n in RECORDS
            if n > 5 * observed(all_)
        }
    return Picture(
        "the share of a day's records, two counts of epsilon 0.3", "records in the day", "half the interval",
        lines, points,
    )  # fmt: skip


def distinct() -> Picture:
    """Who was there in a window, at its end, by its length: of a number that runs in it, and of its own number."""
    entries = {
        hours: {"statistic": "distinct", "of": "user", "every": f"{hours}h", "running": True}
        for hours in WINDOWS
    }

    def line(more: Callable[[int], Entry], **keys: object) -> Points:
        return {
            hours: band(entry | keys, hours - 1, more(hours), f"{hours}h")
            for hours, entry in entries.items()
        }

    return Picture(
        "distinct users of a window, at its end, epsilon 0.3", "ticks in the window", "users",
        {
            "running, users capped per window": line(lambda hours: USERS | {"per": f"{hours}h"}),
            "running, single events": line(lambda _: {}),
            "told at the end, either": line(lambda _: {}, running=False),
        },
        {
            "running, single events": {
                hours: observed(int(answer(entries[hours], hours, None, run)[0]) for run in range(RUNS))
                for hours in (1, 8, 24)
            }
        },
    )  # fmt: skip


def gauges() -> Picture:
    """How many are there now, by how long it has been counted."""
    gauge = {"statistic": "gauge", "of": "kind", "plus": "up", "minus": "down"}
    half = {"statistic": "count", "epsilon": "0.15", "method": "tree"}
    count = Answer(planned(half).chosen[0].mechanism)
    apart = Contrasts(count, count, CONFIDENCE)
    come, gone = (
        {
            tick: answer(half | {"statistic": "histogram", "by": "run"}, tick, None, seed)
            for tick in MEASURED
        }
        for seed in (1, 2)
    )
    return Picture(
        "what came less what went, epsilon 0.3 in all", "ticks so far", "events",
        {
            "gauge": {tick: band(gauge, tick - 1) for tick in TICKS},
            "two counts at half of it each": {tick: float(apart(tick - 1).at(Fraction(1))) for tick in TICKS},
        },
        {
            "gauge": {tick: observed(answer(gauge | {"by": "run"}, tick)) for tick in MEASURED},
            "two counts at half of it each": {tick: observed(come[tick] - gone[tick]) for tick in MEASURED},
        },
        ("log", "linear"),
    )  # fmt: skip


def alerts() -> Picture:
    """How likely noise alone makes a key fire on a day, by how far its count stays from the threshold."""
    threshold, margins = 1_000, range(10, 101, 5)
    kinds: dict[str, Entry] = {
        "since the alert before": {},
        "over the last 24 ticks": {"windows": ["24h"]},
        "in a single tick": {"windows": ["1h"]},
    }
    entry = {"statistic": "alerts", "by": "kind", "threshold": threshold}

    def chance(more: Entry, margin: int) -> float:
        chosen = planned(entry | more | {"usual": threshold - margin}).chosen[0]
        return chosen.choice.alarms[0].chance

    lines = {
        name: {margin: chance(more, margin) for margin in margins} for name, more in kinds.items()
    }
    return Picture(
        "alerts, epsilon 0.3", "events from the usual count to the threshold",
        "chance of a false alarm, per key and day", lines, {}, ("linear", "log"),
    )  # fmt: skip


def monitors() -> Picture:
    """By how much a watch may fire too early or too late, by how often it has been compared."""

    def watch(touch: int) -> Entry:
        above = [{"name": "many", "above": 1_000}]
        return {"statistic": "monitor", "touch": touch, "watch": above}

    return Picture(
        "a watch of a monitor, epsilon 0.3", "ticks so far", "events",
        {f"touch: {touch}": {tick: band(watch(touch), tick - 1) for tick in TICKS} for touch in (1, 3, 10)},
        {},
        ("log", "linear"),
    )  # fmt: skip


PICTURES: Mapping[str, Callable[[], Picture]] = {
    "counts": counts,
    "windows": windows,
    "sums": sums,
    "means": means,
    "ratios": ratios,
    "distinct": distinct,
    "gauges": gauges,
    "alerts": alerts,
    "monitors": monitors,
}


def draw(name: str, picture: Picture, path: Path) -> None:
    """Write a picture; in the SVG a line's id is `name/line/label`, that of points `name/points/label`."""
    settings = {"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(5.6, 3.4))
        figure.subplots_adjust(0.14, 0.14, 0.97, 0.91)
        axes = figure.add_subplot()
        looks = dict(zip(picture.lines, LOOKS, strict=False))
        for label, line in picture.lines.items():
            colour, dashes = looks[label]
            axes.plot(
                list(line), list(line.values()), dashes, color=colour, label=label, linewidth=1.4,
                gid=f"{name}/line/{label}",
            )  # fmt: skip
        for label, points in picture.points.items():
            axes.plot(
                list(points), list(points.values()), "o", color=looks[label][0], markersize=4,
                label=f"{label}: runs", gid=f"{name}/points/{label}",
            )  # fmt: skip
        across, up = picture.scales
        axes.set(
            title=picture.title, xlabel=picture.across, ylabel=picture.up, xscale=across, yscale=up
        )
        if up == "linear":
            axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    for each, computed in PICTURES.items():
        draw(each, computed(), Path(__file__).parent / f"{each}-errors.svg")
