"""What `method: typical` chooses for a histogram, in 76 cells, and how much worse that is than the best choice.

Cells: six kinds of streams (`hss_streams`) x 10 or 100 categories x 2^12 or 2^16 ticks x epsilon 1/4, 1 or 4, that is
72; the flights at the three; and 1,000 categories, Zipf-like, 2^12 ticks, epsilon 1. EVENTS says how many events a kind
has; all are under add_remove. Regret is the RMSE of what `typical` chose over the smallest of those it may choose from:
the tree and both forms of HSS; the others are shown beside them. It is asked three times: with the number of events and
their shape declared, with their number alone, and with neither.

With `bands` in place of RESULTS.json it is what `auto` chose, by its band: that of the last tick, on average over the
categories of two runs, over the smallest. The last cells are of sizes that nothing was made for.

Run: PYTHONPATH=.:tests python tests/benchmarks/auto_cells.py RESULTS.json [part of a cell's name ...]. What has been
measured is kept in RESULTS.json and not measured again. Minutes long, so not one of the benchmarks that run together.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from statistics import mean

from benchmarks.hss_blocks import Truth, bins_run, joint_run
from benchmarks.hss_forms import FORMS, BlockNoise, Summary, errors, mechanism, setting
from benchmarks.hss_streams import KINDS, Stream, flights

from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.statistics.parts.choice import Choice, ExpectedShape
from stream_dp.statistics.parts.choose_hss import Demand, narrowest_choice, typical_choice

EVENTS = {
    "even": 40_000,
    "zipf": 40_000,
    "nearly empty": 400,
    "bursty": 40_000,
    "lists of 5": 8_000,
    "whole rows": 2_000,
}
SHAPES: dict[str, ExpectedShape] = {
    "even": "even",
    "lists of 5": "even",
    "whole rows": "even",
    "bursty": "bursts",
}  # the others: zipf
WIDTHS, TICKS = (10, 100), (1 << 12, 1 << 16)
EPSILONS = (Fraction(1, 4), Fraction(1), Fraction(4))
MAY_CHOOSE = ("tree", "joint", "bins")
GOAL, CONFIDENCE = 1.1, 0.95
Chooser = Callable[[Demand], Choice]


@dataclass(frozen=True, slots=True)
class Cell:
    """A stream and an epsilon."""

    kind: str
    width: int
    ticks: int
    epsilon: Fraction

    @property
    def name(self) -> str:
        """In words, as a key of the results."""
        return f"{self.kind}, d={self.width}, T={self.ticks}, eps={self.epsilon}"

    @property
    def runs(self) -> int:
        return 10 if self.ticks < 1 << 16 else 4

    @property
    def stream(self) -> Stream:
        return _stream(self.kind, self.width, self.ticks)

    def measured(self) -> dict[str, Summary]:
        truth = _truth(self.kind, self.width, self.ticks)
        return {form: errors(form, self.stream, truth, self.epsilon, self.runs) for form in FORMS}

    def bands(self) -> dict[str, Summary]:
        """The mean band of each form at the last tick; of HSS it goes by the intervals that have closed."""
        truth, ticks = _truth(self.kind, self.width, self.ticks), self.ticks
        made = {form: mechanism(form, self.stream, self.epsilon) for form in MAY_CHOOSE}
        closed = {"joint": list[int](), "bins": list[int]()}
        for _ in range(2):
            closed["joint"].append(len(joint_run(made["joint"], truth, BlockNoise())) - 1)
            columns = bins_run(made["bins"], truth, BlockNoise())
            closed["bins"] += [len(column) - 1 for column in columns]
        bands = {"tree": float(made["tree"].band(ticks, CONFIDENCE))}
        for form, number in closed.items():
            bands[form] = mean(made[form].lag(ticks, each, CONFIDENCE) for each in number)
        return {form: Summary(2, band, 0.0, band, 0.0) for form, band in bands.items()}

    def chosen(
        self, choose: Chooser, events: int | None, shape: ExpectedShape | None = None
    ) -> str:
        """Which form is chosen where so many events, and this shape, are expected."""
        public = setting(self.stream)
        demand = Demand(public, None, self.epsilon, events, shape)
        found = choose(demand).mechanism
        return (
            "joint"
            if isinstance(found, HSS)
            else "bins"
            if isinstance(found, PerBinHSS)
            else "tree"
        )


def cells() -> Iterator[Cell]:
    """Yield all of them, streams of one size together."""
    for ticks in TICKS:
        for width in WIDTHS:
            for epsilon in EPSILONS:
                for kind in EVENTS:
                    yield Cell(kind, width, ticks, epsilon)
    for epsilon in EPSILONS:
        yield Cell("flights", 106, 8_760, epsilon)
    yield Cell("zipf", 1_000, 1 << 12, Fraction(1))


def unseen() -> Iterator[Cell]:
    for epsilon in (Fraction(1, 2), Fraction(2)):
        for kind in EVENTS:
            yield Cell(kind, 30, 6_000, epsilon)


@lru_cache(maxsize=len(EVENTS))
def _stream(kind: str, width: int, ticks: int) -> Stream:
    return flights() if kind == "flights" else KINDS[kind](ticks, width, EVENTS[kind])


@lru_cache(maxsize=len(EVENTS))
def _truth(kind: str, width: int, ticks: int) -> Truth:
    return Truth(_stream(kind, width, ticks).rows)


def regret(found: dict[str, Summary], chosen: str) -> float:
    """The RMSE of this form over the smallest."""
    return found[chosen].rmse / min(found[form].rmse for form in MAY_CHOOSE)


def line(
    cell: Cell, found: dict[str, Summary], choose: Chooser = typical_choice
) -> tuple[str, list[float]]:
    forms = [form for form in FORMS if form in found]
    shown = "".join(f"{found[form].rmse:8.1f}/{found[form].largest:<6.0f}" for form in forms)
    events, shape = cell.stream.events, SHAPES.get(cell.kind, "zipf")
    chosen = [
        cell.chosen(choose, *told) for told in ((events, shape), (events, None), (None, None))
    ]
    all_regrets = [regret(found, form) for form in chosen]
    asked = "".join(
        f"  {form:5}{of:5.2f}{'!' if of > GOAL else ' '}"
        for form, of in zip(chosen, all_regrets, strict=True)
    )
    return f"{cell.name:38}{shown}{asked}", all_regrets


def main(path: Path, parts: list[str]) -> None:
    """Measure what is not kept yet, and print the table."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    forms = "".join(f"{form:>11}    " for form in FORMS)
    print(f"{'RMSE / mean largest error':38}{forms}  declared    events only  nothing")
    found: list[list[float]] = []
    for cell in cells():
        if parts and not any(part in cell.name for part in parts):
            continue
        if cell.name not in kept:
            kept[cell.name] = {form: asdict(one) for form, one in cell.measured().items()}
            path.write_text(json.dumps(kept, indent=1))
        text, regrets = line(cell, {form: Summary(**one) for form, one in kept[cell.name].items()})
        found.append(regrets)
        print(text, flush=True)
    summed(found)


def by_band(parts: list[str]) -> None:
    found: list[list[float]] = []
    for cell in (*cells(), *unseen()):
        if not parts or any(part in cell.name for part in parts):
            text, regrets = line(cell, cell.bands(), narrowest_choice)
            found.append(regrets)
            print(text, flush=True)
    summed(found)


def summed(found: list[list[float]]) -> None:
    told = ("events and shape", "events", "nothing")
    for what, asked in zip(told, zip(*found, strict=True), strict=True):
        worse = sum(one > GOAL for one in asked)
        print(
            f"{what} declared: {worse} of {len(found)} more than {GOAL - 1:.0%} worse, {max(asked):.2f} at most"
        )


if __name__ == "__main__":
    if sys.argv[1] == "bands":
        by_band(sys.argv[2:])
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
