"""Baskets of several goods, bought in bursts: a histogram by a list, once by HSS and once by a tree, both measured.

A basket counts in each of its goods, five at most, and is protected as one event. A tree gives every good a fifth of
the epsilon at every minute; HSS ([HSV] section 7) only spends where something happens, and nearly all happens in the
breaks between concerts. The baskets are made up from a fixed seed, so exact values may be shown.

Run it from the repository:  .venv/bin/python examples/05_baskets/baskets.py
"""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import yaml

import stream_dp as sdp

HERE = Path(__file__).parent
START = datetime(2024, 7, 4, 12, tzinfo=UTC)
MINUTES = 3 * 24 * 60
BREAKS = tuple(day * 1440 + 60 * hour for day in range(3) for hour in (6, 9))
LENGTH = 12  # minutes of a break
BASKETS = 20_000
QUIET = 500  # one basket in so many comes outside the breaks
MOST = 5
METHODS = {"goods": "HSS", "goods_by_tree": "tree"}
SHOWN = 5

Basket = tuple[int, tuple[str, ...]]


def baskets(goods: Sequence[str], number: int = BASKETS) -> list[Basket]:
    """Make that many baskets: the minute of each, and what is in it; few goods are in most of them."""
    draws = random.Random(4)  # noqa: S311 - made-up data, no noise
    popular = [1 / (rank + 1) for rank in range(len(goods))]
    made = []
    for _ in range(number):
        within = draws.choice(BREAKS) + draws.randrange(LENGTH)
        minute = draws.randrange(MINUTES) if draws.randrange(QUIET) == 0 else within
        chosen = draws.choices(goods, popular, k=draws.randint(1, MOST))
        made.append((minute, tuple(sorted(set(chosen)))))
    return sorted(made)


def lines(made: Sequence[Basket]) -> Iterator[str]:
    """Write baskets as records, one JSON object a line."""
    for minute, items in made:
        when = START + timedelta(minutes=minute)
        yield json.dumps({"time": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "items": items}) + "\n"


def exact(made: Sequence[Basket], goods: Sequence[str]) -> np.ndarray:
    """Return how many baskets so far held each good; shape (minutes, goods)."""
    counts = np.zeros((MINUTES, len(goods)), dtype=np.int64)
    place = {good: at for at, good in enumerate(goods)}
    for minute, items in made:
        for item in items:
            counts[minute, place[item]] += 1
    return counts.cumsum(axis=0)


def released(folder: Path, goods: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Run the pipeline in a folder with its records; return the histograms of each method, as `exact` has them."""
    found = {name: np.zeros((MINUTES, len(goods)), dtype=np.int64) for name in METHODS}

    def take(release: sdp.PublicRelease) -> None:
        if release.series in found and isinstance(release.value, Mapping):
            found[release.series][release.tick] = [release.value[good] for good in goods]

    sdp.Pipeline.load(folder / "pipeline.yaml").run(take)
    return found


def report(goods: Sequence[str], truth: np.ndarray, private: Mapping[str, np.ndarray]) -> None:
    """Print the best-selling goods at the end, and the errors of both methods over all minutes and goods."""
    order = np.argsort(-truth[-1])[:SHOWN]
    print(f"{'baskets with':14}{'exact':>8}" + "".join(f"{METHODS[name]:>8}" for name in private))
    for at in order:
        row = [truth[-1, at], *(values[-1, at] for values in private.values())]
        print(f"{goods[at]:14}" + "".join(f"{number:8,}" for number in row))
    errors = [float(np.sqrt(np.mean((values - truth) ** 2.0))) for values in private.values()]
    for method, error in zip(METHODS.values(), errors, strict=True):
        print(f"typical error of {method} (RMSE over all minutes and goods): {error:.1f}")
    print(f"HSS has {1 - errors[0] / errors[1]:.0%} less error than the tree at the same epsilon")


def main() -> None:
    """Make baskets, run the pipeline on them, and print both methods beside the exact values."""
    schema = yaml.safe_load((HERE / "pipeline.yaml").read_text(encoding="utf-8"))["schema"]
    goods = schema["items"]["domain"]
    made = baskets(goods)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["STREAM_DP_HOME"] = str(folder / "home")  # marks and key go with the folder
        shutil.copy(HERE / "pipeline.yaml", folder)
        (folder / "baskets.jsonl").write_text("".join(lines(made)), encoding="utf-8")
        private = released(folder, goods)
    report(goods, exact(made, goods), private)


if __name__ == "__main__":
    main()
