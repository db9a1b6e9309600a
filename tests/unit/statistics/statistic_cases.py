"""The table of statistics: for each one entry of a pipeline file, and all that is known of it beforehand.

A statistic is added here by a case; `test_statistics.py` asks every case the same. What one record moves, and what
releases show, is written by hand.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.engine.series import Series
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, CutOffCounter
from stream_dp.mechanisms.linear.counter import Counter, SumCounter
from stream_dp.mechanisms.linear.ended_windows import (
    EndedArrivals,
    EndedCounts,
    EndedSums,
    RunningWindows,
)
from stream_dp.mechanisms.linear.joint_windows import NestedWindows
from stream_dp.mechanisms.linear.pairs import (
    MeansWithinTotal,
    SharedSums,
    SumsAndCounts,
    SumsAndEver,
    UserSums,
    WindowsAndEver,
)
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.quantiles.bucket_windows import TumblingQuantiles
from stream_dp.mechanisms.quantiles.value_tree import SlidingQuantiles
from stream_dp.mechanisms.watches.kinds import Alerts, Monitor, SumMonitor
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.yaml import load
from stream_dp.testing.noise import ZeroNoise

FILE = """\
version: 1
name: shop
source: {{kind: file, path: shop.jsonl}}
schema:
  time: {{type: time}}
  country: {{type: category, domain: [DE, FR]}}
  tags: {{type: list, domain: [new, gift], most: 2}}
  amount: {{type: number, nullable: true}}
  pieces: {{type: integer}}
  kind: {{type: category, domain: [enter, leave, look], nullable: true}}
  customer: {{type: text}}
privacy: {{epsilon: 20{privacy}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: {horizon}}}
series:
"""
HORIZON = 8
EVENT, MOVES, WITHIN = "", ", neighbors: replace", ", neighbors: replace, moves: within_tick"
USER = ", unit: user, user: customer"
PER, OVERALL = f"{USER}, max_events: 20, per: 4h", f"{USER}, overall: 20"
SHARED = f"{PER}, total: {{of: amount, clamp: [0, 240], step: 0.5, at_most: 600}}"
GRID = TickGrid(1_767_225_600_000, 3_600_000)


@dataclass(frozen=True)
class StatisticCase:
    """An entry of `series:`; `keys` are those behind its name and epsilon, `statistic` first.

    `moved`: what one event (of users that are counted: a user) moves in a row, for each privacy under which the entry
    is tried. `rows` and `shown`: the rows of ticks, and what releases without noise show of them.
    """

    keys: str
    mechanism: type
    moved: dict[str, tuple[int, ...]]
    rows: Sequence[Sequence[int]]
    shown: Sequence[Any]
    about: str
    why: str
    parameters: dict[str, Any] = field(default_factory=dict)
    exact: Any = None
    epsilon: str = "1"
    error_unit: str = "events"
    nonnegative: bool = True
    predicted: bool = True
    """Whether the error that a plan predicts is the band, in the unit that people read."""
    live: bool = True

    @property
    def statistic(self) -> str:
        return self.keys.partition("statistic: ")[2].partition(",")[0]

    @property
    def entry(self) -> str:
        return f"{{name: it, epsilon: {self.epsilon}, {self.keys}}}"


def shop(folder: Path, *entries: str, privacy: str = EVENT, horizon: int = HORIZON) -> Path:
    """A pipeline file with these entries; one without a name is called `it`, at epsilon 1."""
    whole = [e if e.startswith("{") else f"{{name: it, epsilon: 1, {e}}}" for e in entries]
    path = folder / "shop.yaml"
    lines = "".join(f"  - {entry}\n" for entry in whole)
    path.write_text(FILE.format(privacy=privacy, horizon=horizon) + lines)
    return path


def built_of(folder: Path, *entries: str, privacy: str = EVENT, horizon: int = HORIZON) -> Built:
    return build(load(shop(folder, *entries, privacy=privacy, horizon=horizon)))


def series_of(built: Built) -> Series:
    return built.run_config(0).series[0]


def bodies(series: Series, rows: Sequence[Sequence[int]], noise: Any = None) -> list[bytes]:
    """The releases of these rows, by default without noise; none is longer than was said beforehand."""
    noise, found = noise or ZeroNoise(), list[bytes]()
    state: Any = series.mechanism.init(noise)
    for tick, row in enumerate(rows):
        update = Update(np.array(row, dtype=np.int64))
        state, _ = series.mechanism.step(state, update, noise)
        state, answer = series.mechanism.step(state, Query(), noise)
        assert answer is not None
        found.append(series.body(GRID, tick + 1, tick, state, answer))
        assert len(found[-1]) <= series.most_bytes
    return found


TIME = "2026-01-01T00:30:00Z"
PLAIN: dict[str, Any] = {
    "time": TIME, "country": "DE", "tags": [], "amount": None, "pieces": 0, "kind": None, "customer": "c",
}  # fmt: skip


def rows_of(built: Built, *records: dict[str, Any]) -> IntArray:
    """The row of the tick in which all of them lie, by the real router; shape (width,)."""
    router = Router(built.spec, built.spec.clock.start or 0)
    payloads = [json.dumps(PLAIN | record).encode() for record in records]
    routed = router.route(Batch(0, payloads, range(len(payloads)), len(payloads)))
    assert not routed.dead
    found: IntArray = routed.rows.get(0, np.zeros(router.width, np.int64))
    return found


AMOUNTS = "of: amount, clamp: [-10, 240], step: 0.01"
DOORS = "of: kind, plus: enter, minus: [leave]"
FAN = "of: pieces, clamp: [0, 6], buckets: 3, at: [0.5, 0.9]"
WATCHES = "watch: [{name: many, above: 50}, {name: each, by: country, above: 7, rearm: false}]"
CASES: dict[str, StatisticCase] = {
    "count": StatisticCase(
        "statistic: count", Counter, {EVENT: (1,), MOVES: (1,), f"{USER}, max_events: 3, per: 2h": (1,)},
        [[3], [0], [4]], [3, 3, 7], "count so far", "a count is a tree counter", exact=([7], 7),
    ),
    "count in windows": StatisticCase(
        "statistic: count, windows: [3h, ever]", WindowsAndEver, {EVENT: (1,), WITHIN: (1,)},
        [[1], [2], [4], [8]],
        [{"tick": n, "3h": three, "ever": ever} for n, three, ever in ((1, 1, 1), (2, 3, 3), (4, 7, 7), (8, 14, 15))],
        "count per tick and over 3h, and so far", "the count so far gets 1/3 of the epsilon",
    ),
    "count every so often": StatisticCase(
        "statistic: count, every: 2h", EndedCounts, {EVENT: (1,), WITHIN: (1,), MOVES: (1,)},
        [[1], [2], [4], [8]], [{"2h": None}, {"2h": 3}, {"2h": 3}, {"2h": 12}],
        "count in each 2h", "each window gets noise once, at its end", {"told": "when a window ends"},
    ),
    "count while it runs": StatisticCase(
        "statistic: count, every: 2h, running: true", RunningWindows, {EVENT: (1,), WITHIN: (1,), MOVES: (1,)},
        [[1], [2], [4], [8]], [{"2h": 1}, {"2h": 3}, {"2h": 4}, {"2h": 12}],
        "count since each 2h began", "a tree counter that starts at zero with each window", {"told": "since a "
        "window began"},
    ),
    "histogram while it runs": StatisticCase(
        "statistic: histogram, by: country, every: [1h, 2h], running: true", RunningWindows,
        {EVENT: (1,), WITHIN: (2,)},
        [[3, 0, 1], [0, 2, 0]],
        [
            {w: {"DE": 3, "FR": 0, "other": 1} for w in ("1h", "2h")},
            {"1h": {"DE": 0, "FR": 2, "other": 0}, "2h": {"DE": 3, "FR": 2, "other": 1}},
        ],
        "histogram by country since each 1h, 2h began", "a tree counter that starts at zero with each window",
        {"told": "since a window began"},
    ),
    "histogram every so often": StatisticCase(
        "statistic: histogram, by: country, every: [1h, 2h]", EndedCounts, {EVENT: (1,), WITHIN: (2,)},
        [[3, 0, 1], [0, 2, 0]],
        [
            {"1h": {"DE": 3, "FR": 0, "other": 1}, "2h": {"DE": None, "FR": None, "other": None}},
            {"1h": {"DE": 0, "FR": 2, "other": 0}, "2h": {"DE": 3, "FR": 2, "other": 1}},
        ],
        "histogram by country in each 1h, 2h", "each window gets noise once", {"told": "when a window ends"},
    ),
    "sum every so often": StatisticCase(
        f"statistic: sum, {AMOUNTS}, every: 2h", EndedSums, {EVENT: (24_000,), WITHIN: (25_000,)},
        [[1250], [-2000], [0]], [{"2h": None}, {"2h": -7.5}, {"2h": -7.5}],
        "sum of amount, each from -10 to 240, in each 2h",
        "each window gets noise once, at its end; one event changes the numbers by up to 240 in all",
        {"of": "amount", "clamp": "-10 to 240", "step": "0.01", "told": "when a window ends"},
        error_unit="of amount", nonnegative=False,
    ),
    "sum with a total while it runs": StatisticCase(
        "statistic: sum, of: amount, clamp: [0, 240], step: 0.5, user_total: 600, every: 2h, running: true", UserSums,
        {PER: (1200,), OVERALL: (1200,)}, [[1200], [80], [4]], [{"2h": 600}, {"2h": 640}, {"2h": 2}],
        "sum of amount, each from 0 to 240, since each 2h began, of each user at most 600",
        "a tree counter that starts at zero with each window; a user changes the numbers by up to 600 in all",
        {"of": "amount", "clamp": "0 to 240", "step": "0.5", "told": "since a window began", "user_total": "600"},
        error_unit="of amount", live=False,
    ),
    "sum with a total": StatisticCase(
        "statistic: sum, of: amount, clamp: [0, 240], step: 0.5, user_total: 600, every: 2h", UserSums,
        {PER: (1200,), OVERALL: (1200,)}, [[1200], [80], [0]], [{"2h": None}, {"2h": 640}, {"2h": 640}],
        "sum of amount, each from 0 to 240, in each 2h, of each user at most 600",
        "each window gets noise once, at its end; a user changes the numbers by up to 600 in all, over all ticks",
        {"of": "amount", "clamp": "0 to 240", "step": "0.5", "user_total": "600", "told": "when a window ends"},
        error_unit="of amount", live=False,
    ),
    "sum with a total of both signs": StatisticCase(
        "statistic: sum, of: amount, clamp: [-240, 240], step: 0.5, user_total: 600, every: 4h", UserSums,
        {PER: (1200,)}, [[0], [0], [0], [-1080], [0]], [{"4h": n} for n in (None, None, None, -540, -540)],
        "sum of amount, each from -240 to 240, in each 4h, of each user from -600 to 600 in a window",
        "each window gets noise once, at its end; a user changes the numbers by up to 600 in each window",
        {"of": "amount", "clamp": "-240 to 240", "step": "0.5", "user_total": "600", "told": "when a window ends"},
        error_unit="of amount", nonnegative=False, live=False,
    ),
    "sum with a shared total": StatisticCase(
        "statistic: sum, of: amount, clamp: [0, 240], step: 0.5, shared_total: true, every: 2h", SharedSums,
        {SHARED: (1200,)}, [[1200], [80], [0]], [{"2h": None}, {"2h": 640}, {"2h": 640}],
        "sum of amount, each from 0 to 240, in each 2h, of each user no more than is left of the total",
        "at its end; a user changes this series and all other series with shared_total by up to 600 together",
        {"of": "amount", "clamp": "0 to 240", "step": "0.5", "shared_total": "of users", "told": "when a window ends"},
        error_unit="of amount",
    ),
    "sum with a total by key": StatisticCase(
        "statistic: sum, of: pieces, clamp: [0, 9], user_total: 12, by: tags", UserSums, {PER: (12,)},
        [[9, 3, 0], [0, 4, 0]], [{"new": 9, "gift": 3, "other": 0}, {"new": 9, "gift": 7, "other": 0}],
        "sum of pieces, each from 0 to 9, by tags so far, of each user at most 12",
        "a sum is a tree counter; a user changes the numbers by up to 12 in all",
        {"of": "pieces", "clamp": "0 to 9", "step": "1", "user_total": "12"},
        ([9, 7, 0], {"new": 9, "gift": 7, "other": 0}), error_unit="of pieces", live=False,
    ),
    "histogram": StatisticCase(
        "statistic: histogram, by: country, method: tree", Counter, {EVENT: (1,), WITHIN: (2,), MOVES: (1,)},
        [[3, 0, 1], [0, 2, 0]], [{"DE": 3, "FR": 0, "other": 1}, {"DE": 3, "FR": 2, "other": 1}],
        "histogram by country so far", "method: tree", exact=([3, 2, 1], {"DE": 3, "FR": 2, "other": 1}),
    ),
    "histogram by a list": StatisticCase(
        "statistic: histogram, by: tags, windows: [2h]", WindowForest, {EVENT: (2,), WITHIN: (3,)},
        [[1, 0, 10], [1, 1, 20], [1, 2, 30]],
        [
            {"tick": {"new": 1, "gift": n, "other": 10 * (n + 1)}, "2h": {"new": two, "gift": g, "other": o}}
            for n, two, g, o in ((0, 1, 0, 10), (1, 2, 1, 30), (2, 2, 3, 50))
        ],
        "histogram by tags per tick and over 2h", "each window is the sum",
    ),
    "histogram of nested windows": StatisticCase(
        "statistic: histogram, by: tags, windows: [2h, ever], method: nested", NestedWindows,
        {EVENT: (2,), WITHIN: (3,), MOVES: (2,), f"{USER}, max_events: 3, per: 2h": (2,)},
        [[1, 0, 10], [1, 1, 20], [1, 2, 30]],
        [
            {w: {"new": new, "gift": gift, "other": other} for w, (new, gift, other) in told.items()}
            for told in (
                {"tick": (1, 0, 10), "2h": (1, 0, 10), "ever": (1, 0, 10)},
                {"tick": (1, 1, 20), "2h": (2, 1, 30), "ever": (2, 1, 30)},
                {"tick": (1, 2, 30), "2h": (2, 3, 50), "ever": (3, 3, 60)})
        ],
        "histogram by tags per tick and over 2h, and so far", "method: nested, the same noise for tick / 2h / ever",
    ),
    "sum": StatisticCase(
        f"statistic: sum, {AMOUNTS}", SumCounter,
        {EVENT: (24_000,), WITHIN: (25_000,), MOVES: (24_000,), f"{USER}, max_events: 3, per: 2h": (24_000,)},
        [[1250], [-2000]], [12.5, -7.5], "sum of amount, each from -10 to 240, so far",
        "a sum is a tree counter; one event changes the numbers by up to 240 in all",
        {"of": "amount", "clamp": "-10 to 240", "step": "0.01"}, ([-750], -7.5),
        error_unit="of amount", nonnegative=False,
    ),
    "sum by key": StatisticCase(
        "statistic: sum, of: pieces, clamp: [0, 60], step: 20, by: country", SumCounter, {EVENT: (3,), WITHIN: (6,)},
        [[3, 0, 2], [-4, 1, 0]], [{"DE": 60, "FR": 0, "other": 40}, {"DE": 0, "FR": 20, "other": 40}],
        "sum of pieces, each from 0 to 60, by country so far", "one event changes the numbers by up to 60 in all",
        {"of": "pieces", "clamp": "0 to 60", "step": "20"}, ([1, 0, 2], {"DE": 20, "FR": 0, "other": 40}),
        error_unit="of pieces",
    ),
    "sum by a list": StatisticCase(
        f"statistic: sum, {AMOUNTS}, by: tags, windows: [2h, 4h]", SumForest, {EVENT: (48_000,), WITHIN: (72_000,)},
        [[100, 0, -50]], [{w: {"new": 1, "gift": 0, "other": -0.5} for w in ("tick", "2h", "4h")}],
        "sum of amount, each from -10 to 240, by tags per tick and over 2h, 4h",
        "one event changes the numbers by up to 480 in all", {"of": "amount", "clamp": "-10 to 240", "step": "0.01"},
        error_unit="of amount", nonnegative=False,
    ),
    "sum in windows": StatisticCase(
        "statistic: sum, of: pieces, clamp: [-5, 3], windows: [3h, ever]", SumsAndEver,
        {EVENT: (5,), WITHIN: (8,), f"{USER}, max_events: 3, per: 2h": (5,)},
        [[12], [-20], [1], [-3]],
        [{"tick": n, "3h": three, "ever": ever} for n, three, ever in (
            (12, 12, 12), (-20, -8, -8), (1, -7, -7), (-3, -22, -10))],
        "sum of pieces, each from -5 to 3, per tick and over 3h, and so far",
        "each window is the sum of its single ticks; the sum so far gets 1/3 of the epsilon; one event changes "
        "the numbers by up to 5 in all",
        {"of": "pieces", "clamp": "-5 to 3"}, error_unit="of pieces", nonnegative=False,
    ),
    "mean": StatisticCase(
        f"statistic: mean, {AMOUNTS}", SumsAndCounts,
        {EVENT: (12_500, 1), WITHIN: (25_000, 1), MOVES: (12_500, 1), f"{USER}, max_events: 3, per: 2h": (12_500, 1)},
        [[0, 0], [-300, 2], [3_300, 4]], [None, 113.5, 120], "mean of amount, each from -10 to 240, so far",
        "sums of (amount - 115), with 3/5 of the epsilon, are divided by counts, with the rest",
        {"of": "amount", "clamp": "-10 to 240", "step": "0.01", "digits": 4}, ([-300, 2], 113.5),
        error_unit="of amount", nonnegative=False, predicted=False,
    ),
    "mean by key": StatisticCase(
        "statistic: mean, of: pieces, clamp: [-20, 60], step: 20, by: country, windows: [3h, ever]", SumsAndCounts,
        {EVENT: (2, 1), WITHIN: (4, 2)},
        [[3, 0, 1, 3, 0, 1], [-1, 2, 0, 1, 1, 0], [0, 0, -2, 0, 0, 1]],
        [
            {w: {"DE": 40, "FR": None, "other": 40} for w in ("tick", "3h", "ever")},
            {"tick": {"DE": 0, "FR": 60, "other": None}}
            | {w: {"DE": 30, "FR": 60, "other": 40} for w in ("3h", "ever")},
            {"tick": {"DE": None, "FR": None, "other": -20}}
            | {w: {"DE": 30, "FR": 60, "other": 10} for w in ("3h", "ever")},
        ],
        "mean of pieces, each from -20 to 60, by country per tick and over 3h, and so far",
        "divided by counts, with the rest", {"of": "pieces", "clamp": "-20 to 60", "step": "20", "digits": 2},
        error_unit="of pieces", nonnegative=False, predicted=False,
    ),
    "mean with a shared total": StatisticCase(
        "statistic: mean, of: amount, clamp: [0, 240], step: 0.5, shared_total: true, every: 2h", MeansWithinTotal,
        {SHARED: (1200, 1)}, [[300, 2], [60, 1], [0, 0]], [{"2h": None}, {"2h": 60}, {"2h": 60}],
        "mean of amount, each from 0 to 240, in each 2h, of records that fit into what is left of their user's total",
        "changes the sums, together with all other series that share the total, by up to 600, and the counts by "
        "up to 20 records",
        {
            "of": "amount", "clamp": "0 to 240", "step": "0.5", "digits": 3, "shared_total": "of users",
            "told": "when a window ends",
        },
        error_unit="of amount", predicted=False,
    ),
    "mean every so often": StatisticCase(
        "statistic: mean, of: pieces, clamp: [-20, 60], step: 20, by: country, every: [1h, 2h]", SumsAndCounts,
        {EVENT: (2, 1), WITHIN: (4, 2)},
        [[3, 0, 1, 3, 0, 1], [-1, 2, 0, 1, 1, 0], [0, 0, -2, 0, 0, 1]],
        [
            {"1h": {"DE": 40, "FR": None, "other": 40}, "2h": {"DE": None, "FR": None, "other": None}},
            {"1h": {"DE": 0, "FR": 60, "other": None}, "2h": {"DE": 30, "FR": 60, "other": 40}},
            {"1h": {"DE": None, "FR": None, "other": -20}, "2h": {"DE": 30, "FR": 60, "other": 40}},
        ],
        "mean of pieces, each from -20 to 60, by country in each 1h, 2h",
        "divided by counts, with the rest of the epsilon; each window gets noise once, at its end",
        {"of": "pieces", "clamp": "-20 to 60", "step": "20", "digits": 2, "told": "when a window ends"},
        error_unit="of pieces", nonnegative=False, predicted=False,
    ),
    "mean while it runs": StatisticCase(
        "statistic: mean, of: pieces, clamp: [-20, 60], step: 20, every: 2h, running: true", SumsAndCounts,
        {EVENT: (2, 1)}, [[4, 4], [-1, 3], [2, 1]], [{"2h": 40}, {"2h": 28.57}, {"2h": 60}],
        "mean of pieces, each from -20 to 60, since each 2h began",
        "divided by counts, with the rest of the epsilon; a tree counter that starts at zero with each window",
        {"of": "pieces", "clamp": "-20 to 60", "step": "20", "digits": 2, "told": "since a window began"},
        error_unit="of pieces", nonnegative=False, predicted=False,
    ),
    "gauge every so often": StatisticCase(
        f"statistic: gauge, {DOORS}, by: country, every: 2h", EndedSums, {EVENT: (1,), WITHIN: (2,), PER: (1,)},
        [[2, -1, 0], [-5, 3, 0], [9, 9, 9]],
        [{"2h": {"DE": None, "FR": None, "other": None}}, *[{"2h": {"DE": -3, "FR": 2, "other": 0}}] * 2],
        "enter less leave of kind, by country in each 2h", "each window gets noise once, at its end",
        {"of": "kind", "plus": "enter", "minus": "leave", "told": "when a window ends"}, nonnegative=False,
    ),
    "gauge": StatisticCase(
        f"statistic: gauge, {DOORS}", SumCounter, {EVENT: (1,), WITHIN: (2,), PER: (1,)},
        [[2], [-5], [4]], [2, -3, 1], "enter less leave of kind, so far",
        "a gauge is a tree counter; one event changes the numbers by up to 1 in all",
        {"of": "kind", "plus": "enter", "minus": "leave"}, ([-2], -2), nonnegative=False,
    ),
    "gauge with a floor": StatisticCase(
        f"statistic: gauge, {DOORS}, by: country, windows: [2h, ever], floor: 0", SumsAndEver,
        {EVENT: (1,), WITHIN: (2,), MOVES: (1,)},
        [[2, -1, 0], [-5, 3, 0]],
        [
            {w: {"DE": 2, "FR": 0, "other": 0} for w in ("tick", "2h", "ever")},
            {"tick": {"DE": 0, "FR": 3, "other": 0}} | {w: {"DE": 0, "FR": 2, "other": 0} for w in ("2h", "ever")},
        ],
        "enter less leave of kind, by country per tick and over 2h, and so far",
        "changes the numbers by up to 1 in all",
        {"of": "kind", "plus": "enter", "minus": "leave", "floor": 0},
    ),
    "distinct": StatisticCase(
        "statistic: distinct, of: customer", ArrivalCounter,
        {EVENT: (2,), WITHIN: (2,), MOVES: (2,), PER: (2,), OVERALL: (1,)},
        [[3], [1], [0], [2], [5]], [3, 4, 4, 6, 11], "different values of customer so far",
        "a tree counter of first ticks; one event changes the numbers by up to 2 in all", {"of": "customer"}, ([9], 9),
        error_unit="values of customer", live=False,
    ),
    "distinct every so often": StatisticCase(
        "statistic: distinct, of: customer, every: 4h", EndedArrivals,
        {EVENT: (1,), WITHIN: (1,), MOVES: (1,), PER: (1,), OVERALL: (20,)},
        [[3], [1], [0], [2], [5], [1]], [{"4h": n} for n in (None, None, None, 6, 6, 6)],
        "different values of customer in each 4h",
        "each window gets noise once, at its end; one event changes the numbers by up to 1 in all",
        {"of": "customer", "told": "when a window ends"}, error_unit="values of customer", live=False,
    ),
    "distinct by key": StatisticCase(
        "statistic: distinct, of: customer, by: country, every: 4h", EndedArrivals,
        {EVENT: (1,), MOVES: (1,), PER: (3,), OVERALL: (20,)},
        [[3, 0, 1], [1, 0, 0], [0, 0, 0], [2, 5, 0], [5, 1, 0]],
        [{"4h": n} for n in (*[dict.fromkeys(("DE", "FR", "other"))] * 3, *[{"DE": 6, "FR": 5, "other": 1}] * 2)],
        "different values of customer by country in each 4h",
        "each window gets noise once, at its end; one event changes the numbers by up to 1 in all",
        {"of": "customer", "told": "when a window ends"}, error_unit="values of customer", live=False,
    ),
    "distinct so far by key": StatisticCase(
        "statistic: distinct, of: customer, by: country", ArrivalCounter,
        {EVENT: (2,), MOVES: (2,), PER: (6,), OVERALL: (3,)},
        [[3, 0, 1], [1, 0, 0], [0, 2, 0]],
        [{"DE": 3, "FR": 0, "other": 1}, {"DE": 4, "FR": 0, "other": 1}, {"DE": 4, "FR": 2, "other": 1}],
        "different values of customer by country so far",
        "a tree counter of first ticks; one event changes the numbers by up to 2 in all", {"of": "customer"},
        ([9, 0, 2], {"DE": 9, "FR": 0, "other": 2}), error_unit="values of customer", live=False,
    ),
    "distinct in windows": StatisticCase(
        "statistic: distinct, of: customer, every: [4h], running: true", ArrivalCounter,
        {EVENT: (2,), PER: (1,), OVERALL: (20,)},
        [[3], [1], [0], [2], [5], [1]], [{"4h": n} for n in (3, 4, 4, 6, 5, 6)],
        "different values of customer since each 4h began", "a tree counter of first ticks",
        {"of": "customer", "told": "since a window began"}, error_unit="values of customer", live=False,
    ),
    "cut_off": StatisticCase(
        "statistic: cut_off, window: 4h", CutOffCounter, {PER: (2,)},
        [[400, 0], [100, 50], [300, 150], [0, 0], [1000, 10]],
        [{"4h": share, "4h before": before} for share, before in (
            (0, None), (0.1, None), (0.25, None), (0.25, None), (0.01, 0.25))],
        "the share of the users active in each 4h who had events beyond their cap, which are not counted",
        "two tree counters of first ticks, each with half of the epsilon, give the share of the users active in each "
        "4h who had events beyond their caps", {"within": "0 to 1", "told": "since a window began"},
        error_unit="users in either number", live=False,
    ),
    "cut_off for ever": StatisticCase(
        "statistic: cut_off", CutOffCounter, {OVERALL: (2,)}, [[400, 0], [100, 50], [300, 150]], [0, 0.1, 0.25],
        "the share of the users active so far who had events beyond their cap, which are not counted",
        "give the share of the users active ever who had events beyond their caps", {"within": "0 to 1"},
        error_unit="users in either number", live=False,
    ),
    "top": StatisticCase(
        "statistic: top, by: country, k: 2", Counter, {EVENT: (1,), WITHIN: (2,)},
        [[40, 10, 40], [0, 500, 0]], [[("DE", 40), ("other", 40)], [("FR", 510), ("DE", 40)]],
        "top 2 by country so far", "bands of all names at once at the end: tree", {"k": 2},
        ([1, 2, 3], {"DE": 1, "FR": 2, "other": 3}),
    ),
    "top in windows": StatisticCase(
        "statistic: top, by: country, k: 1, windows: [2h, ever]", WindowsAndEver, {EVENT: (1,), MOVES: (1,)},
        [[40, 10, 0], [0, 20, 0], [0, 1, 0]],
        [{"tick": [t], "2h": [two], "ever": [ever]} for t, two, ever in (
            (("DE", 40), ("DE", 40), ("DE", 40)), (("FR", 20), ("DE", 40), ("DE", 40)),
            (("FR", 1), ("FR", 21), ("DE", 40)))],
        "top 1 by country per tick and over 2h, and so far", "each window is the sum", {"k": 1},
    ),
    "top every so often": StatisticCase(
        "statistic: top, by: country, k: 2, every: [1h, 2h]", EndedCounts, {EVENT: (1,), MOVES: (1,), WITHIN: (2,)},
        [[40, 10, 0], [0, 90, 0], [0, 0, 1]],
        [
            {"1h": [("DE", 40), ("FR", 10)], "2h": []},
            {"1h": [("FR", 90), ("DE", 0)], "2h": [("FR", 100), ("DE", 40)]},
            {"1h": [("other", 1), ("DE", 0)], "2h": [("FR", 100), ("DE", 40)]},
        ],
        "top 2 by country in each 1h, 2h", "each window gets noise once, at its end",
        {"k": 2, "told": "when a window ends"},
    ),
    "top while it runs": StatisticCase(
        "statistic: top, by: country, k: 1, every: 2h, running: true", RunningWindows, {EVENT: (1,), WITHIN: (2,)},
        [[40, 10, 0], [0, 90, 0], [0, 0, 1]], [{"2h": [("DE", 40)]}, {"2h": [("FR", 100)]}, {"2h": [("other", 1)]}],
        "top 1 by country since each 2h began", "a tree counter that starts at zero with each window",
        {"k": 1, "told": "since a window began"},
    ),
    "top by an HSS": StatisticCase(
        "statistic: top, by: country, k: 2, method: hss", PerBinHSS, {EVENT: (1,)},
        [[0, 4_000, 0]], [[("FR", 4_000), ("DE", 0)]], "top 2 by country so far", "method: hss", {"k": 2}, epsilon="8",
        predicted=False,
    ),
    "maximum": StatisticCase(
        "statistic: maximum, by: country", Counter, {EVENT: (1,), WITHIN: (2,)},
        [[0, 0, 0], [0, 4, 0], [9, 0, 0]], [(None, 0), ("FR", 4), ("DE", 9)],
        "maximum by country so far, with its name", "the name is released too, at no further cost",
        {"named": "country"},
    ),
    "maximum by an HSS": StatisticCase(
        "statistic: maximum, by: country, method: hss", HSS, {EVENT: (1,)},
        [[0, 0, 0], [0, 4_000, 0], [9_000, 0, 0]], [(None, 0), ("FR", 4_000), ("DE", 9_000)],
        "maximum by country so far, with its name", "method: hss", {"named": "country"}, epsilon="8", predicted=False,
    ),
    "largest": StatisticCase(
        "statistic: largest, rank: 2, by: country", Counter, {EVENT: (1,)},
        [[4, 3, 0], [0, 9, 5]], [3, 5], "rank 2 by country so far", "bands at the end: tree", {"rank": 2},
    ),
    "largest by an HSS": StatisticCase(
        "statistic: largest, rank: 2, by: country, method: hss", HSS, {EVENT: (1,)},
        [[4_000, 3_000, 0]], [3_000], "rank 2 by country so far", "method: hss", {"rank": 2}, epsilon="8",
        predicted=False,
    ),
    "columns_above": StatisticCase(
        "statistic: columns_above, level: 500, by: country", HSS, {EVENT: (1,)},
        [[0, 0, 0], [4_000, 3_000, 0]], [0, 2], "how many of country have at least 500 so far", "method: hss",
        {"level": 500}, epsilon="8", error_unit="values of country", predicted=False,
    ),
    "quantiles": StatisticCase(
        f"statistic: quantiles, {FAN}, windows: [2h, ever]", SlidingQuantiles, {EVENT: (1,), WITHIN: (2,)},
        [[0, 10, 0, 0, 0, 0], [0, 0, 0, 30, 0, 0], [0, 0, 0, 10, 0, 0]],
        [
            {w: {"0.5": 1, "0.9": 1.8} for w in ("2h", "ever")},
            {w: {"0.5": 4.66, "0.9": 5.72} for w in ("2h", "ever")},
            {"2h": {"0.5": 5, "0.9": 5.8}, "ever": {"0.5": 4.74, "0.9": 5.74}},
        ],
        "quantiles 0.5, 0.9 of pieces over 2h and so far", "counts", {"of": "pieces", "clamp": "0 to 6"},
        error_unit="events in rank",
    ),
    "quantiles every so often": StatisticCase(
        f"statistic: quantiles, {FAN}, every: [2h]", TumblingQuantiles, {EVENT: (1,), WITHIN: (2,)},
        [[0, 10, 0, 0, 0, 90], [0, 0, 0, 15, 0, 0], [0, 0, 5, 0, 0, 0]],
        [{"2h": {}}, {"2h": {"0.5": 5, "0.9": 5}}, {"2h": {"0.5": 5, "0.9": 5}}],
        "quantiles 0.5, 0.9 of pieces in each 2h", "; with method: together, the band would be", {"of": "pieces"},
        error_unit="events in rank",
    ),
    "quantiles by hops": StatisticCase(
        f"statistic: quantiles, {FAN}, windows: [4h, ever], hop: 2h", SlidingQuantiles, {EVENT: (1,), WITHIN: (2,)},
        [[0, 10, 0, 0, 0, 0], [0, 0, 0, 30, 0, 0], [0, 0, 0, 10, 0, 0]],
        [{w: {} for w in ("4h", "ever")}, *[{w: {"0.5": 4.66, "0.9": 5.72} for w in ("4h", "ever")}] * 2],
        "quantiles 0.5, 0.9 of pieces over 4h and so far, told every 2h", "counts are released at the end of each 2h",
        {"of": "pieces", "hop": "2h"}, error_unit="events in rank",
    ),
    "quantiles chosen together": StatisticCase(
        f"statistic: quantiles, {FAN}, every: [2h], method: together", TumblingQuantiles, {EVENT: (1,), WITHIN: (2,)},
        [[0, 10, 0, 0, 0, 90], [0, 0, 0, 15, 0, 0], [0, 0, 5, 0, 0, 0]],
        [{"2h": {}}, {"2h": {"0.5": 5, "0.9": 5}}, {"2h": {"0.5": 5, "0.9": 5}}],
        "quantiles 0.5, 0.9 of pieces in each 2h", "the choice of all quantiles together has epsilon", {"of": "pieces"},
        error_unit="events in rank",
    ),
    "alerts": StatisticCase(
        "statistic: alerts, by: country, threshold: 50", Alerts, {EVENT: (1,), WITHIN: (2,), MOVES: (1,)},
        [[30, 0, 0], [30, 49, 0], [0, 1, 0]], [[], ["DE"], ["FR"]], "alerts by country", "", {"threshold": 50},
        predicted=False,
    ),
    "alerts in a window": StatisticCase(
        "statistic: alerts, by: country, threshold: 50, windows: [2h], below: true", Monitor,
        {EVENT: (1,), MOVES: (1,)}, [[30, 30, 60], [30, 0, 0], [0, 0, 60]], [[], ["FR"], ["DE"]],
        "alerts by country over 2h", "",
        {"threshold": 50, "window": "2h", "fires": "below"}, predicted=False,
    ),
    "alerts on a sum": StatisticCase(
        f"statistic: alerts, by: country, {AMOUNTS}, threshold: 90, windows: [2h]", SumMonitor,
        {EVENT: (24_000,), WITHIN: (48_000,)},
        [[5_000, -500, 0], [4_000, 9_000, 0]], [[], ["DE"]], "alerts on amount by country over 2h", "",
        {"threshold": 90, "window": "2h", "of": "amount", "clamp": "-10 to 240", "step": "0.01"}, predicted=False,
        error_unit="of amount", nonnegative=False,
    ),
    "monitor": StatisticCase(
        f"statistic: monitor, {WATCHES}, most: 4", Monitor, {EVENT: (2,), PER: (2,)},
        [[30, 7, 0, 0], [30, 9, 0, 7]], [["each/DE"], ["many", "each/other"]], "2 watches",
        "an event counts in at most 2 of its places at once",
        {"many": "above 50", "each": "above 7 for each of country, once"}, predicted=False,
    ),
    "monitor of sums": StatisticCase(
        "statistic: monitor, of: pieces, clamp: [-1, 9], most: 1, watch: [{name: many, above: 50, over: 2h}]",
        SumMonitor, {EVENT: (9,), WITHIN: (10,)}, [[30], [21], [49], [49]], [[], ["many"], [], ["many"]],
        "1 watch on sums of pieces, each from -1 to 9", "at most 1 of its places", {"many": "above 50 in 2h"},
        error_unit="of pieces", nonnegative=False, predicted=False,
    ),
}  # fmt: skip
