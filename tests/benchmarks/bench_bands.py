"""The bands that `stream-dp plan` predicts, on average over the ticks, each beside that of the way there was before.

Bands follow from the file alone, so there is no seed and no data. A year of hours; users have at most 20 events a day.
Run: PYTHONPATH=tests python tests/benchmarks/bench_bands.py
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

FILE = """\
version: 1
name: bands
source: {{kind: file, path: events.jsonl}}
schema:
  time: {{type: time}}
  who: {{type: text}}
  amount: {{type: number}}
  kind: {{type: category, domain: [a, b, c]}}
  page: {{type: category, domain: [{pages}]}}
clock: {{kind: replay, field: time, start: 2026-01-01T00:00:00Z, step: 1h, horizon: {horizon}}}
privacy: {{epsilon: 1, {privacy}}}
series: [{{name: it, {series}}}]
"""
USERS = "unit: user, user: who, max_events: 20, per: 1d, neighbors: add_remove"
SUM = "statistic: sum, of: amount, clamp: [0, 240], step: 1, epsilon: 0.5"
DELTA = "unit: event, delta: 1e-6, filter: zcdp"
WINDOWS = "statistic: count, epsilon: 1, windows: [24h, 7d, ever]"
FOREST, CORRELATED = f"{WINDOWS}, method: gaussian", f"{WINDOWS}, method: correlated"
TREE, NESTED = f"{WINDOWS}, method: tree", f"{WINDOWS}, method: nested"
RANKS = "statistic: quantiles, of: amount, clamp: [0, 400], buckets: 20, at: [0.25, 0.5, 0.75], epsilon: 0.3"


@dataclass(frozen=True, slots=True)
class Pair:
    """The keys of a series before and now, and the band that is aimed at."""

    before: str
    now: str
    aim: int
    privacy: str = "unit: event"
    horizon: int = 8_760
    window: int = -1


PAIRS = {
    "daily count": Pair("statistic: count, windows: [24h], epsilon: 1", "statistic: count, every: 24h, epsilon: 1", 3),
    "daily count of users": Pair(
        "statistic: count, windows: [24h], epsilon: 0.5", "statistic: count, every: 24h, epsilon: 0.5", 120, USERS
    ),
    "daily sum of users": Pair(f"{SUM}, windows: [24h]", f"{SUM}, every: 24h, user_total: 600", 3_700, USERS),
    "maximum of 4": Pair(
        "statistic: maximum, by: kind, method: hss, epsilon: 0.3", "statistic: maximum, by: kind, epsilon: 0.3", 92,
        horizon=1_000,
    ),
    "maximum of 20": Pair(
        "statistic: maximum, by: page, method: hss, epsilon: 1", "statistic: maximum, by: page, epsilon: 1", 47
    ),
    "quartiles, planned buckets": Pair(
        f"{RANKS}, windows: [24h]", f"{RANKS}, windows: [24h]".replace("buckets: 20", "buckets: 10"), 200
    ),
    "quartiles of 100 buckets": Pair(
        f"{RANKS}, windows: [24h]".replace("buckets: 20", "buckets: 100"),
        f"{RANKS}, windows: [24h], method: correlated, delta: 1e-6".replace("buckets: 20", "buckets: 100"),
        190, "unit: event, delta: 2e-6, filter: optimal",
    ),
    "quartiles, a hop of 12 h": Pair(
        f"{RANKS}, windows: [24h]", f"{RANKS}, windows: [24h], hop: 12h", 130
    ),
    "tick beside three windows": Pair(FOREST, CORRELATED, 12, DELTA, window=0),
    "24 h beside tick, 7 d, ever": Pair(FOREST, CORRELATED, 27, DELTA, window=1),
    "7 d beside tick, 24 h, ever": Pair(FOREST, CORRELATED, 36, DELTA, window=2),
    "ever beside three windows": Pair(FOREST, CORRELATED, 46, DELTA, window=3),
    "pure tick beside three windows": Pair(TREE, NESTED, 6, window=0),
    "pure 24 h beside three": Pair(TREE, NESTED, 21, window=1),
    "pure 7 d beside three": Pair(TREE, NESTED, 25, window=2),
    "pure ever beside three": Pair(TREE, NESTED, 38, window=3),
    "quartiles of a day, ranks": Pair(f"{RANKS}, every: 24h", f"{RANKS}, every: 24h, method: together", 65),
}  # fmt: skip


def band(folder: Path, series: str, pair: Pair) -> float:
    """Return the mean half-width over the ticks, of the pair's window where there are several."""
    file, pages = folder / "bands.yaml", ", ".join(f"p{n}" for n in range(19))
    file.write_text(
        FILE.format(series=series, privacy=pair.privacy, horizon=pair.horizon, pages=pages)
    )
    (chosen,) = build(load(file)).chosen
    errors = list(chosen.choice.windows.values()) or [chosen.choice.expected]
    return mean(errors[pair.window](pair.horizon * at // 200) for at in range(200))


def main() -> None:
    print(f"{'':28}{'before':>10}{'now':>10}{'aim':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name, pair in PAIRS.items():
            before, now = (band(Path(folder), keys, pair) for keys in (pair.before, pair.now))
            print(f"{name:28}{before:10,.0f}{now:10,.0f}{pair.aim:10,}")


if __name__ == "__main__":
    main()
