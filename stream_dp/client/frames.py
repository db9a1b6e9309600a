"""Releases as rows of one long table, as data frames, and as plots.

Rules: a row is one number of a release, made from published bytes alone; `stream-dp export` writes the same rows.
pandas, polars, pyarrow and matplotlib are imported when they are asked for.
"""

import importlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import UNSET, UnsetType

from stream_dp.core.wording import how_many, meant, shown_number
from stream_dp.errors import UsageError
from stream_dp.journal.release import Released, WindowPart, by_key, read_by_key

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.axes import Axes


def html_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = ""
) -> str:
    """Return an HTML table with a caption, and a line of text below it; everything is escaped.

    >>> html_table("a < b", ("n",), [[1]])
    '<table><caption>a &lt; b</caption><tr><th>n</th></tr><tr><td>1</td></tr></table>'
    """
    lines = [(columns, "th"), *((row, "td") for row in rows)]
    body = "".join(
        f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
        for cells, tag in lines
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(title)}</caption>{body}</table>{below}"


def plan_html(plan: Mapping[str, Any]) -> str:
    """Return the table of a plan, given as `stream-dp plan --json` prints it."""
    rows = []
    for series in plan["series"]:
        windows = {w["window"]: w["predicted_error"] for w in series.get("windows") or ()}
        for window, predicted in (windows or {"": series["predicted_error"]}).items():
            last = predicted[-1] if predicted else {"error": "", "tick": ""}
            cells = (series["epsilon"], window, last["error"], last["tick"])
            rows.append((series["name"], series["mechanism"], *cells))
    promise = plan["promise"]
    title = f"epsilon {promise['epsilon']}, delta {promise['delta']} for one {plan['unit']}"
    columns = ("series", "mechanism", "epsilon", "window", "error", "at tick")
    return html_table(title, columns, rows, f"The file's series alone: epsilon {plan['epsilon']}.")


class Row(NamedTuple):
    """One number of a release.

    `time_window` is the name of the window, "" if the series has none. `key` is the name of an entry, a quantile's
    share or a name of a top list, "" if the release is a single number. `kind` is `value`, `quantile`, `rank` or
    `fired`. `low` and `high` bound the true number with `confidence` (value minus and plus band, if there is a
    band); None for an open end. The band of quantiles is in ranks. `name` is the entry that has the maximum or the
    rank. `tied` lists, as a JSON array, the names that cannot be distinguished from that of the rank. `sequence` is
    the release's sequence number. `version` is that of its series: from 2 on, a changed pipeline file gave the name
    another definition.
    """

    pipeline: str
    series: str
    tick: int
    tick_end: datetime
    time_window: str
    key: str
    kind: str
    value: float | None
    low: float | None
    high: float | None
    band: float | None
    confidence: float
    name: str | None
    rank: int | None
    tied: str | None
    sequence: int
    version: int = 1

    @property
    def shown(self) -> str:
        """Its number with its band or its ends, as people read it; that it fired, where it has none."""
        if self.value is None:
            return "fired" if self.kind == "fired" else "none"
        number = shown_number(self.value)
        if self.kind == "quantile" or (self.band is None and (self.low, self.high) != (None, None)):
            ends = ("open" if end is None else shown_number(end) for end in (self.low, self.high))
            return f"{number} ({' to '.join(ends)})"
        return number if self.band is None else f"{number} ± {shown_number(self.band)}"


COLUMNS = Row._fields
TABLE = "stream_dp_releases"
"""The table that `stream-dp export` writes in databases."""
KINDS = dict.fromkeys(COLUMNS, "text") | {
    "tick": "bigint", "tick_end": "timestamptz", "value": "double precision", "low": "double precision",
    "high": "double precision", "band": "double precision", "confidence": "double precision", "rank": "integer",
    "sequence": "bigint", "version": "integer",
}  # fmt: skip
"""The SQL type of each column."""
HAS_VERSION = (
    f"select exists (select from pg_attribute where attrelid = to_regclass('{TABLE}') "  # noqa: S608 - ours
    "and attname = 'version' and not attisdropped)"
)
"""Asks PostgreSQL whether the table has the column `version`; tables of former versions of stream_dp have none."""

_T = TypeVar("_T")
_Number = int | float | None
_Part = WindowPart | Released


class _Numbers(NamedTuple):
    """The columns of a row that differ within a release and a window."""

    key: str
    kind: str
    value: _Number
    low: _Number = None
    high: _Number = None
    band: _Number = None
    name: str | None = None
    rank: int | None = None
    tied: str | None = None


def rows_of(
    pipeline: str, body: bytes, read: Callable[[bytes], Released] = read_by_key
) -> list[Row]:
    """Return the rows of a published body, none if no alert in it fired; raise FailClosed if it cannot be read."""
    release = read(body)
    parts: Mapping[str, _Part] = release.windows or {"": release}
    at = datetime.fromtimestamp(release.end_ms / 1000, UTC)
    return [
        Row(
            pipeline, release.series, release.tick, at, window, row.key, row.kind,
            _float(row.value), _float(row.low), _float(row.high), _float(row.band),
            release.confidence, row.name, row.rank, row.tied, release.sequence, release.version,
        )
        for window, part in parts.items()
        for row in _numbers(part)
    ]  # fmt: skip


def _numbers(part: _Part) -> Iterator[_Numbers]:
    band = _known(part.band)
    if isinstance(part, Released) and part.fired is not UNSET:
        band, counts = _known(part.counts_band), part.counts or {}
        for key in part.fired or ():
            count = counts.get(key)
            yield _Numbers(key, "fired", count, *_around(count, band), band)
    elif part.ranks is not UNSET:
        for place, rank in enumerate(part.ranks, 1):
            tied = json.dumps(list(rank.tied), ensure_ascii=False)
            ends = _around(rank.value, band)
            yield _Numbers(rank.name, "rank", rank.value, *ends, band, rank.name, place, tied)
    elif isinstance(part, WindowPart) and part.quantiles is not UNSET:
        for share, quantile in part.quantiles.items():
            ends = _known(quantile.low), _known(quantile.high)
            yield _Numbers(share, "quantile", quantile.value, *ends, band)
    elif part.values is not UNSET:
        lows, highs = part.lows or repeat(None), part.highs or repeat(None)
        for (key, value), low, high in zip(by_key(part).items(), lows, highs, strict=False):
            ends = _around(value, band) if low is None and band is not None else (low, high)
            yield _Numbers(key, "value", value, *ends, band)
    else:
        value = _known(part.value)
        ends = _known(part.low), _known(part.high)
        if ends[0] is None and band is not None:
            ends = _around(value, band)
        name = _known(part.name) if isinstance(part, Released) else None
        yield _Numbers("", "value", value, *ends, band, name)


def _around(value: _Number, band: _Number) -> tuple[_Number, _Number]:
    """Return the interval of a value with its band, or two None if either is missing."""
    return (None, None) if value is None or band is None else (value - band, value + band)


def _float(number: _Number) -> float | None:
    return None if number is None else float(number)


def _known(value: _T | UnsetType) -> _T | None:
    return None if isinstance(value, UnsetType) else value


def library(name: str, extra: str) -> Any:
    """Return a module that is not always installed; raise UsageError, which names the extra that brings it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UsageError(f"this needs {package}: pip install 'stream_dp[{extra}]'") from None


def arrow_table(rows: Sequence[Row]) -> Any:
    """Return the rows as a `pyarrow.Table`; Parquet and DuckDB read it a hundred times faster than single rows."""
    pyarrow = library("pyarrow", "export")
    types = {
        "text": pyarrow.string(), "bigint": pyarrow.int64(), "integer": pyarrow.int32(),
        "double precision": pyarrow.float64(), "timestamptz": pyarrow.timestamp("ms", "UTC"),
    }  # fmt: skip
    schema = pyarrow.schema([(name, types[kind]) for name, kind in KINDS.items()])
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
    return pyarrow.table({name: columns.get(name, ()) for name in COLUMNS}, schema=schema)


class Label(NamedTuple):
    """What a plot calls a series, and what its numbers count; empty if nobody said so."""

    title: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ReleaseTable:
    """The numbers of releases as rows, in the columns of `Row`; `labels` are those of its series, for plots.

    An alert is a row where it fired, and no row where it did not. `table["orders"]` has the rows of one series.
    """

    rows: Sequence[Row]
    labels: Mapping[str, Label] = field(default_factory=dict)

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series."""
        return tuple(dict.fromkeys(row.series for row in self.rows))

    def __getitem__(self, series: str) -> "ReleaseTable":
        if series not in self.series:
            raise UsageError(f"no row belongs to series {series!r}{meant(series, self.series)}")
        return ReleaseTable([row for row in self.rows if row.series == series], self.labels)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`."""
        return arrow_table(self.rows)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas data frame; `tick_end` is a time in UTC, a missing number is NaN."""
        pd, columns = library("pandas", "frames"), self._columns()
        kinds = {
            "bigint": "int64", "integer": "Int32", "double precision": "float64",
            "timestamptz": "datetime64[ms, UTC]", "text": object,
        }  # fmt: skip
        frame: pandas.DataFrame = pd.DataFrame(
            {name: pd.Series(columns[name], dtype=kinds[KINDS[name]]) for name in COLUMNS}
        )
        return frame

    def to_polars(self) -> "polars.DataFrame":
        """Return a polars data frame; `tick_end` is a time in UTC, a missing number is null."""
        pl = library("polars", "frames")
        kinds = {
            "bigint": pl.Int64, "integer": pl.Int32, "double precision": pl.Float64,
            "timestamptz": pl.Datetime("ms", "UTC"), "text": pl.String,
        }  # fmt: skip
        frame: polars.DataFrame = pl.DataFrame(
            self._columns(), schema={n: kinds[k] for n, k in KINDS.items()}
        )
        return frame

    def _columns(self) -> dict[str, list[Any]]:
        columns = zip(*self.rows, strict=True) if self.rows else repeat((), len(COLUMNS))
        return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}

    def plot(
        self,
        *,
        window: str | None = None,
        keys: Iterable[str] | None = None,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """Draw one series with matplotlib, and return the axes.

        Of a series with several versions the newest is drawn. Numbers and quantiles are lines within their bands, or
        the ranges of quantiles; alerts are points, where they fired; of a top list the newest release is drawn, with
        its ties. `window` is the name of one of its windows (if not given, the first that is longer than a tick);
        `keys` are those to draw (of many the ten that were largest last); `ax` are axes to draw on. Raises UsageError
        for more than one series, an unknown window or key, or without matplotlib.
        """
        if len(self.series) > 1:
            names = ", ".join(self.series[:5])
            raise UsageError(f'a plot shows one series, such as table["{self.series[0]}"]: {names}')
        pyplot = library("matplotlib.pyplot", "plot")
        axes: Axes = pyplot.subplots()[1] if ax is None else ax
        if not self.rows:
            axes.set_title("no release has a number, or no alert fired")
            return axes
        shown = self._window(window)
        lines = _lines_of(shown, keys)
        _DRAWN.get(shown[0].kind, _draw_lines)(axes, lines)
        self._label(axes, shown[0], len(lines), len({row.key for row in shown}))
        return axes

    def _window(self, window: str | None) -> list[Row]:
        """Return the rows of one window of the newest version, in the order of their ticks."""
        newest = max(row.version for row in self.rows)
        rows = [row for row in self.rows if row.version == newest]
        names = tuple(dict.fromkeys(row.time_window for row in rows))
        name = (
            next((name for name in names if name != "tick"), names[0]) if window is None else window
        )
        if name not in names:
            there = ", ".join(names) if any(names) else "it has none"
            raise UsageError(f"window: {name!r} is no window of {self.series[0]}: {there}")
        return sorted((row for row in rows if row.time_window == name), key=lambda row: row.tick)

    def _label(self, axes: "Axes", row: Row, drawn: int, keys: int) -> None:
        label = self.labels.get(row.series, Label())
        title = label.title or row.series
        title += f", {row.time_window}" if row.time_window else ""
        title += f" ({drawn} of {how_many(keys, 'key')})" if drawn < keys else ""
        axes.set_title(f"{title} ({row.confidence:.0%} confidence)")
        if label.unit:
            (axes.set_xlabel if row.kind == "rank" else axes.set_ylabel)(label.unit)

    def _repr_html_(self) -> str:
        last = self.rows[-10:]
        rows = [(row.series, row.tick_end, row.time_window, row.key, row.shown) for row in last]
        title = f"{how_many(len(self.rows), 'row')}, the last {len(last)}"
        return html_table(title, ("series", "tick_end", "time_window", "key", "value"), rows)

    def __repr__(self) -> str:
        return f"<ReleaseTable: {how_many(len(self.rows), 'row')} of {', '.join(self.series) or 'no series'}>"


def release_html(title: str, rows: Sequence[Row], note: str = "") -> str:
    """Return a table for notebooks of the rows of one release, of many the first twenty."""
    cells = [(row.time_window, row.key, row.shown) for row in rows[:_MOST_SHOWN]]
    if len(rows) > _MOST_SHOWN:
        cells.append(("", f"and {len(rows) - _MOST_SHOWN} more", ""))
    return html_table(title, ("window", "key", "value"), cells, note)


_Lines = Mapping[str, Sequence[Row]]
_MOST_LINES, _MOST_SHOWN = 10, 20


def _lines_of(rows: Sequence[Row], keys: Iterable[str] | None) -> _Lines:
    """Return the rows by key: of `keys`, or of the ten that were largest last, in the order of the release."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row.key, []).append(row)
    if keys is not None:
        wanted = [keys] if isinstance(keys, str) else list(keys)
        if unknown := [key for key in wanted if key not in lines]:
            raise UsageError(f"keys: there is no {unknown[0]!r}{meant(unknown[0], lines)}")
        return {key: lines[key] for key in wanted}
    if rows[0].kind != "value":
        return lines
    largest = sorted(lines, key=lambda key: lines[key][-1].value or 0.0, reverse=True)[:_MOST_LINES]
    return {key: line for key, line in lines.items() if key in largest}


def _draw_lines(axes: "Axes", lines: _Lines) -> None:
    for key, rows in lines.items():
        times: Any = [row.tick_end for row in rows]
        [line] = axes.plot(
            times,
            [_drawn(row.value) for row in rows],
            label=key,
            marker="." if len(rows) == 1 else "",
        )
        lows, highs = [_drawn(row.low) for row in rows], [_drawn(row.high) for row in rows]
        axes.fill_between(times, lows, highs, alpha=0.2, color=line.get_color(), linewidth=0)
    if len(lines) > 1:
        axes.legend()
    axes.figure.autofmt_xdate()


def _draw_alerts(axes: "Axes", lines: _Lines) -> None:
    for key, rows in lines.items():
        times: Any = [row.tick_end for row in rows]
        axes.plot(times, [key] * len(rows), "|", markersize=14)
    axes.figure.autofmt_xdate()


def _draw_ranks(axes: "Axes", lines: _Lines) -> None:
    newest = max(row.sequence for rows in lines.values() for row in rows)
    ranks = sorted(
        (row for rows in lines.values() for row in rows if row.sequence == newest),
        key=lambda row: -(row.rank or 0),
    )
    names = [f"{row.rank}. {row.name}" for row in ranks]
    bars = axes.barh(
        names,
        [_drawn(row.value) for row in ranks],
        xerr=[_drawn(row.band) for row in ranks],
        capsize=3,
    )
    ties = [json.loads(row.tied or "[]") for row in ranks]
    axes.bar_label(bars, [_tie_text(names) for names in ties], padding=3)
    axes.set_xlim(right=1.3 * axes.get_xlim()[1])  # room for the ties


def _tie_text(names: Sequence[str]) -> str:
    more = f" or {len(names) - 2} more" if len(names) > 2 else ""
    return f"or {', '.join(names[:2])}{more}" if names else ""


_DRAWN: dict[str, Callable[["Axes", _Lines], None]] = {"fired": _draw_alerts, "rank": _draw_ranks}


def _drawn(number: float | None) -> float:
    return math.nan if number is None else number
