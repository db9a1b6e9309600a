"""Customers, week by week and privately: revenue, purchases, buyers, order sizes; each beside its exact value.

The purchases of CDNOW's customers (69,659 by 23,570 people in 1997 and 1998) come with the PyPI package Lifetimes,
from which this program reads them. The pipeline protects all that one customer does within four weeks. The plot is the
operator's own: it shows exact figures, is NOT PRIVATE, and stays in the folder `run`.

Run it from the repository:  .venv/bin/python examples/04_customers/customers.py
"""

import argparse
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from cdnow import START, Purchase, found, purchases
from panels import Line, Panel, svg

import stream_dp as sdp

HERE = Path(__file__).parent
WEEKS, WINDOW = 78, 4  # as in pipeline.yaml
CAP, CLAMP = 3, 100.0
SHARES = {"0.5": "half below", "0.9": "nine in ten below"}

Ends: TypeAlias = tuple[float, float, float]  # a value, from where to where it may be


def counting(made: Sequence[Purchase]) -> Iterator[Purchase]:
    """Yield what counts: of each customer the first purchases of four weeks, larger ones as the clamp says."""
    seen: Counter[tuple[int, int]] = Counter()
    for each in made:
        seen[each.customer, each.week // WINDOW] += 1
        if seen[each.customer, each.week // WINDOW] <= CAP:
            yield Purchase(each.day, each.customer, min(each.amount, CLAMP))


def figures(made: Sequence[Purchase]) -> dict[str, list[float | None]]:
    """Return the exact figures of each week, by series; `revenue 28d` and order sizes are of four weeks."""
    weeks: list[list[Purchase]] = [[] for _ in range(WEEKS)]
    for each in made:
        weeks[each.week].append(each)
    firsts = Counter({each.customer: each.week for each in reversed(made)}.values())
    sold = [len(week) for week in weeks]
    revenue = [sum(each.amount for each in week) for week in weeks]
    told: dict[str, list[float | None]] = {
        "revenue": [*revenue],
        "revenue 28d": [sum(revenue[max(0, w - WINDOW + 1) : w + 1]) for w in range(WEEKS)],
        "purchases": [*sold],
        "purchases 28d": [sum(sold[max(0, w - WINDOW + 1) : w + 1]) for w in range(WEEKS)],
        "buyers": [len({each.customer for each in week}) for week in weeks],
        "customers": [sum(firsts[before] for before in range(week + 1)) for week in range(WEEKS)],
    }
    for share in SHARES:
        told[f"order_size {share}"] = [
            _quantile(weeks, week, float(share)) for week in range(WEEKS)
        ]
    return told


def _quantile(weeks: Sequence[Sequence[Purchase]], week: int, share: float) -> float | None:
    end = (week + 1) // WINDOW * WINDOW
    amounts = sorted(each.amount for past in weeks[max(0, end - WINDOW) : end] for each in past)
    return amounts[min(len(amounts) - 1, int(share * len(amounts)))] if amounts else None


def released(lines: Sequence[str]) -> dict[str, list[Ends | None]]:
    """Return what was released at each week's end, with its ends: by series, and by the four weeks of one."""
    told: dict[str, list[Ends | None]] = {}
    for line in lines:
        release = json.loads(line)
        for window, part in release.get("windows", {"": release}).items():
            name = release["series"] + (" 28d" if window == "28d" and "value" in part else "")
            for key, ends in _told(name, part):
                told.setdefault(key, [None] * WEEKS)[release["tick"]] = ends
    return told


def _told(series: str, part: Mapping[str, Any]) -> Iterator[tuple[str, Ends]]:
    if "value" in part:
        yield series, (part["value"], part["value"] - part["band"], part["value"] + part["band"])
    for share, at in part.get("quantiles", {}).items():
        low, high = at["bucket"] if "bucket" in at else (at["low"], at["high"])
        yield f"{series} {share}", (at["value"], low, high)


def picture(made: Sequence[Purchase], lines: Sequence[str]) -> str:
    """Return the operator's plot as SVG: what was released, what is exact, what counts of it."""
    private, exact, counted = released(lines), figures(made), figures(list(counting(made)))
    days = [START + timedelta(days=7 * (week + 1)) for week in range(WEEKS)]

    def line(name: str, words: str = "") -> Line:
        ends = private[name]
        value, low, high = ([each and each[at] for each in ends] for at in range(3))
        return Line(value, low, high, exact[name], counted[name], words)

    named = [
        ("Revenue a week, dollars", {"revenue": ""}),
        ("Revenue of the last four weeks, dollars", {"revenue 28d": ""}),
        ("Purchases a week", {"purchases": ""}),
        ("Buyers a week", {"buyers": ""}),
        ("Customers so far", {"customers": ""}),
        (
            "Order size of four weeks, dollars (its error is in ranks)",
            {f"order_size {share}": words for share, words in SHARES.items()},
        ),
    ]
    panels = [
        Panel(title, [line(*each) for each in names.items()])
        for title, names in named
        if names.keys() & private.keys()
    ]
    warning = "NOT PRIVATE: exact figures, for the operator alone. Only what is blue was released."
    return svg("CDNOW's customers, 1997 and 1998", warning, days, panels)


def report(made: Sequence[Purchase], lines: Sequence[str]) -> Iterator[str]:
    """Yield how far off the released figures are, and what cap and clamp cut off: exact, so NOT PRIVATE."""
    private, exact, counted = released(lines), figures(made), figures(list(counting(made)))
    yield f"{'NOT PRIVATE':22}{'typical error':>15}{'of about':>10}{'cut off':>12}"
    for name, ends in private.items():
        weeks = [
            at for at, each in enumerate(ends) if each is not None and exact[name][at] is not None
        ]
        noise = [abs((ends[at] or (0,))[0] - (counted[name][at] or 0)) for at in weeks]
        size = sum(exact[name][at] or 0 for at in weeks) / len(weeks)
        cut = size - sum(counted[name][at] or 0 for at in weeks) / len(weeks)
        yield f"{name:22}{sum(noise) / len(noise):15,.1f}{size:10,.0f}{cut:12,.1f}"


def run(folder: Path, data: Path, accepted: str = "") -> Sequence[str]:
    """Run the pipeline on these purchases, as far as it has not run yet; return all releases, one a line."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{each.day}T00:00:00Z,{each.customer},{each.amount:.2f}\n" for each in purchases(data)]
    (folder / "purchases.csv").write_text(
        "time,customer,amount\n" + "".join(rows), encoding="ascii"
    )
    key = folder / "customers.key"
    if not key.exists():
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
    pipeline = sdp.Pipeline.load(folder.parent / "pipeline.yaml", key_file=key)
    print(str(pipeline.plan()).partition("\n")[0])
    pipeline.run(accept_new_guarantee=accepted)
    return (folder / "customers.releases.jsonl").read_text(encoding="utf-8").splitlines()


def main() -> None:
    """Find the purchases, run the pipeline, and draw what it released beside what is exact."""
    parser = argparse.ArgumentParser(description="Customers, week by week and privately.")
    parser.add_argument("--data", type=Path, help="the file CDNOW_master.txt; else the package's")
    parser.add_argument(
        "--accept-new-guarantee",
        default="",
        metavar="NAME",
        help="begin anew although it ran before: guarantees add up",
    )
    options = parser.parse_args()
    folder = HERE / "run"
    data = found(options.data, folder)
    lines = run(folder, data, options.accept_new_guarantee)
    made = purchases(data)
    plot = folder / "customers.svg"
    plot.write_text(picture(made, lines), encoding="utf-8")
    print("\n".join(report(made, lines)))
    print(f"{len(lines):,} releases in {folder / 'customers.releases.jsonl'}; the plot is {plot}")


if __name__ == "__main__":
    main()
