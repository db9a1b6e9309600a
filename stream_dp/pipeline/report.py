"""The content of `plan`: the derivation tree, the price of each part, the expected error; what other caps would have.

Touches no data.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from stream_dp.accounting.amounts import number
from stream_dp.core.derivation import Alternative, Derivation
from stream_dp.core.guarantee import NAMES, Guarantee, parameters
from stream_dp.core.wording import shown_number
from stream_dp.errors import NotDerivable, UsageError
from stream_dp.pipeline.builder import Built, Chosen, chosen_for
from stream_dp.pipeline.derivations import dp_at
from stream_dp.pipeline.promise import lists_json, unit_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import counting_events
from stream_dp.records.amount_units import UserTotal
from stream_dp.records.groupings import decimal_text
from stream_dp.records.privacy import CAPS, TOTAL, TOTALS, Guesses, Privacy
from stream_dp.records.scalars import milliseconds
from stream_dp.statistics import Series
from stream_dp.statistics.parts.choice import ENDLESS
from stream_dp.statistics.parts.series_spec import MadeOf, Rest
from stream_dp.statistics.parts.windows import EVER, TICK

POINTS = 12
MADE = "post-processing"


def plan_json(built: Built) -> dict[str, Any]:
    """Return the plan as `stream-dp plan --json` prints it; amounts are rounded up. `epsilon`, `delta` and `derivation`
    concern the file's series alone; `promise` covers everything asked later.
    """
    spec, measure = built.spec, dp_at(built.derivation, built.spec.privacy.delta)
    return {
        "epsilon": number(measure.epsilon),
        "delta": number(measure.delta),
        **unit_json(spec),
        "neighbors": str(spec.relation),
        **condition_json(spec),
        **lists_json(spec),
        "horizon": spec.clock.horizon,
        "series": [
            *(
                series_json(chosen, predicted_errors(spec, chosen), float(spec.confidence))
                for chosen in built.chosen
            ),
            *map(made_json, built.made),
        ],
        "derivation": derivation_json(built.derivation),
        "promise": promise_json(built, built.promise),
    }


def condition_json(spec: PipelineSpec) -> dict[str, str]:
    return {} if spec.condition is None else {"condition": spec.condition}


def promise_json(built: Built, promise: Derivation) -> dict[str, Any]:
    """Return the guarantee for everything asked now and later: the filter's budget and its derivation."""
    privacy = built.spec.privacy
    return {
        "epsilon": number(privacy.epsilon),
        "delta": number(privacy.delta),
        "filter": built.ledger.filter.name,
        "derivation": derivation_json(promise),
    }


def series_json(
    chosen: Chosen, errors: Sequence[tuple[int, float]], confidence: float, start: int = 0
) -> dict[str, Any]:
    """Return a series, of the file or from `start` on, with price and predicted `errors` (tick, half-width)."""
    measure = chosen.derivation.guarantee.measure
    alarms = [alarm.json() for alarm in chosen.choice.alarms]
    windows = [
        {
            "window": name,
            "predicted_error": _errors_json(
                [(tick, expected(tick - start)) for tick, _ in errors], confidence
            ),
        }
        for name, expected in chosen.choice.windows.items()
    ]
    return {
        "name": chosen.spec.name,
        "mechanism": type(chosen.mechanism).__name__,
        "why": chosen.choice.why,
        **{name: number(amount) for name, amount in parameters(measure).items()},
        "predicted_error": _errors_json(errors, confidence),
        **({"windows": windows} if windows else {}),
        **({"false_alarms": alarms} if alarms else {}),
        **({} if chosen.choice.bounds is None else {"bounds": asdict(chosen.choice.bounds())}),
    }


def made_json(made: MadeOf) -> dict[str, Any]:
    """Return a series that is made of other releases: it is free, and its error depends on them."""
    return {
        "name": made.series.name,
        "mechanism": MADE,
        "why": made.why,
        "epsilon": 0,
        "delta": 0,
        "predicted_error": [],
    }


def _errors_json(errors: Sequence[tuple[int, float]], confidence: float) -> list[dict[str, Any]]:
    return [{"tick": tick, "error": error, "confidence": confidence} for tick, error in errors]


def predicted_errors(spec: PipelineSpec, chosen: Chosen) -> list[tuple[int, float]]:
    """Return (tick, half-width) of the series' releases at a dozen ticks over the horizon."""
    return [(tick, chosen.choice.expected(tick)) for tick in _ticks(spec.clock.horizon or ENDLESS)]


def _ticks(horizon: int) -> list[int]:
    spread = {round(horizon ** (i / (POINTS - 1))) - 1 for i in range(POINTS)}
    return sorted(spread | {0, horizon - 1})


def derivation_json(derivation: Derivation) -> dict[str, Any]:
    """Return the tree as plain values; `alternatives` are the rules that were tried and not taken."""
    return {
        "subject": derivation.subject,
        "rule": derivation.rule,
        "source": derivation.source,
        "guarantee": guarantee_json(derivation.guarantee),
        "conditions": [
            {"name": c.name, "holds": c.holds, "why": c.why} for c in derivation.conditions
        ],
        "alternatives": [_alternative_json(other) for other in derivation.alternatives],
        "premises": [derivation_json(premise) for premise in derivation.premises],
    }


def guarantee_json(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee's parameters by name, with the measure unless it is DP, and with group or users."""
    name = NAMES[type(guarantee.measure)]
    amounts = {key: number(amount) for key, amount in parameters(guarantee.measure).items()}
    kind = {} if name == "DP" else {"measure": name}
    group = {} if guarantee.group == 1 else {"group": guarantee.group}
    users = {} if guarantee.users is None else {"users": str(guarantee.users)}
    return {**kind, **amounts, "neighbors": str(guarantee.neighbors), **group, **users}


def _alternative_json(other: Alternative) -> dict[str, Any]:
    named = {"rule": other.rule, "source": other.source}
    if isinstance(other.outcome, Guarantee):
        return {**named, "guarantee": guarantee_json(other.outcome)}
    return {**named, "refused": other.outcome}


# What other caps would have, by the public guesses of `privacy.expect`. Bands are those that `build` derives for the
# same file with these caps; what they cut off of a typical user's events is what the guard's own rule does.

SMALLER, LARGER = 4, 2
"""So many caps of a window below that of the file are compared, and above it."""
_AS_IS = ""


@dataclass(frozen=True)
class Capped:
    """Caps of users, those of the file (`words` empty) or others; `series`: a sum with another total."""

    words: str
    privacy: Privacy
    guesses: Guesses
    ticks: int
    series: Series | None = None

    @cached_property
    def counting(self) -> list[int]:
        return counting_events(self.privacy, self.guesses, self.ticks)


def caps_json(built: Built) -> dict[str, Any]:
    """Return under `caps` what each series would have with other caps, by the file's guesses; nothing without them."""
    spec = built.spec
    if (guesses := spec.privacy.expect) is None or guesses.users is None:
        return {}
    last = (spec.clock.horizon or ENDLESS) - 1
    ticks = spec.privacy.window_ticks(spec.clock) or last + 1
    files = Capped(_AS_IS, spec.privacy, guesses, ticks)
    others = [
        Capped(words, privacy, guesses, ticks) for words, privacy in _others(spec.privacy, guesses)
    ]
    return {"caps": [_caps_of(built, chosen, files, others) for chosen in built.chosen]}


def _others(privacy: Privacy, guesses: Guesses) -> Iterator[tuple[str, Privacy]]:
    """Yield other caps with what they change: that of the window, or one beside it left out, halved, or as guessed."""
    changes: list[dict[str, int | None]] = [
        {privacy.cap_name: cap} for cap in _window_caps(privacy.cap, max(guesses.events))
    ]
    for name in CAPS:
        most = getattr(privacy, name)
        if most is not None:
            changes += [{name: None}, {name: most // 2}]
        elif name == "per_tick" or privacy.key is not None:
            changes.append({name: getattr(guesses, name)})
    for change in changes:
        ((name, cap),) = change.items()
        other = privacy.capped(change)
        if other is not None and other != privacy:
            yield f"without {name}" if cap is None else f"{name}: {cap}", other


def _window_caps(now: int, enough: int) -> list[int]:
    """Return other caps of a window, the largest first: half, twice, `enough` for all typical users, and round ones.

    >>> _window_caps(20, 60), _window_caps(6, 4), _window_caps(1, 1000)
    ([60, 50, 40, 10, 5, 2, 1], [4, 3, 2, 1], [1000, 5, 2])
    """
    around = [digit * 10**zeros for zeros in range(5) for digit in (1, 2, 5)]
    more = sorted({2 * now, *(cap for cap in around if cap > now)})
    larger = {cap for cap in more[:LARGER] if cap < enough} | {enough}
    less = [now // 2, *(cap for cap in reversed(around) if cap < now // 2)]
    smaller = {cap for cap in less[:SMALLER] if cap}
    return sorted((larger | smaller) - {now}, reverse=True)


def _caps_of(
    built: Built, chosen: Chosen, files: Capped, others: Sequence[Capped]
) -> dict[str, Any]:
    """Return the bands of a series by the file's caps and by others, what they cut off, and which of them err least.

    `error` is the band of a number over `over` and what is cut off of it, where that can be guessed; what it typically
    would be is `value`. `counting`: how many events of a typical user count with the file's caps.
    """
    series = chosen.spec
    asked = _Asked.of(built, chosen, files)
    tried = (*others, *_totals(asked, series, (files, *others)))
    ways = [(files, chosen), *((other, _chosen_with(built, series, other)) for other in tried)]
    rows = [asked.row(capped, found) for capped, found in ways if found is not None]
    known = [row for row in rows if row["error"] is not None]
    least = min(known, key=lambda row: row["error"])["caps"] if known else None
    passing = float(asked.passing) if series.name in files.guesses.passing else None
    return {
        "name": series.name,
        "over": asked.over,
        "value": float(asked.value) if known else None,
        **({"passing": passing} if series.where else {}),
        "counting": sum(files.counting) / len(files.counting),
        "ways": rows,
        "least": least,
    }


def _totals(asked: "_Asked", series: Series, capped: Sequence[Capped]) -> Iterator[Capped]:
    """Yield other totals of a sum's users; a first one also beside a cap that cuts off no typical user's events.

    The first of `capped` are the file's caps.
    """
    if series.shares is not None:
        yield from _shared_totals(series.shares, asked.amount or Fraction(0), capped)
        return
    each = asked.passing * (asked.amount or 0)
    for place, caps in enumerate(capped):
        if place and (series.totals or caps.counting != list(caps.guesses.events)):
            continue
        for total, other in series.with_totals(max(caps.counting) * each).items():
            words = " and ".join(filter(None, (caps.words, total)))
            yield replace(caps, words=words, series=other)


def _shared_totals(of: str, amount: Fraction, capped: Sequence[Capped]) -> Iterator[Capped]:
    """Yield other totals of an amount that series share: twice and half of the file's, and as much as the largest
    typical user adds beside caps that cut off nobody's events.
    """
    for place, caps in enumerate(capped):
        now, every = caps.privacy.total_of(of), caps.privacy.totals
        if now is None:
            return
        tried = [] if place else [2 * now.at_most, now.at_most / 2]
        if caps.counting == list(caps.guesses.events):
            tried.append(max(caps.counting) * amount)
        for most in dict.fromkeys(math.ceil(most / now.step) * now.step for most in tried):
            other = now.model_copy(update={"at_most": most})
            others = tuple(other if total == now else total for total in every)
            privacy = caps.privacy.capped({TOTALS: others} if every else {TOTAL: other})
            if privacy is None or other == now or most >= privacy.cap * now.clamp[1]:
                continue
            words = f"{TOTAL}{f' of {of}' if every else ''}: {decimal_text(most)}"
            yield replace(
                caps, words=f"{caps.words} and {words}" if place else words, privacy=privacy
            )


def _chosen_with(built: Built, series: Series, capped: Capped) -> Chosen | None:
    """Return a series' mechanism by these caps; None: it refuses them, or there is none."""
    spec = built.spec.model_copy(update={"privacy": capped.privacy})
    changed = capped.series or series
    if changed.own_problems() or changed.problems(Rest(spec.fields, spec.clock, spec.privacy)):
        return None
    try:
        return chosen_for(spec, changed, built.layout.slice(series.name))
    except (NotDerivable, UsageError):
        return None


@dataclass(frozen=True)
class _Asked:
    """What a number of a series would typically be by the guesses: `value`, of a user's events `passing` its `where`,
    each of which adds `amount`; it covers `windows` of the cap and is one of `entries` alike.
    """

    over: str
    last: int
    guesses: Guesses
    users: Fraction
    passing: Fraction
    amount: Fraction | None
    windows: Fraction
    entries: int

    @classmethod
    def of(cls, built: Built, chosen: Chosen, files: Capped) -> "_Asked":
        """Of several windows it is that which is nearest to the cap's, and the longer one of two."""
        spec, series, guesses = built.spec, chosen.spec, files.guesses
        last = (spec.clock.horizon or ENDLESS) - 1
        spans = {
            name: span_of(name, spec.clock.step, last) for name in chosen.choice.windows or ("",)
        }
        over = min(spans, key=lambda name: (abs(spans[name] - files.ticks), -spans[name]))
        rows = built.layout.slice(series.name)
        return cls(
            over, last, guesses,
            users=(guesses.users or 0) * (spec.privacy.share or Fraction(1)),
            passing=guesses.passing.get(series.name, Fraction(1)),
            amount=series.typical(guesses.amounts.get(series.name)),
            windows=Fraction(spans[over], files.ticks),
            entries=rows.stop - rows.start,
        )  # fmt: skip

    @property
    def value(self) -> Fraction:
        return self._of_users(self.guesses.events)

    def _of_users(
        self, events: Sequence[int], total: Fraction | None = None, *, shared: bool = False
    ) -> Fraction:
        """Return what users add up to who have so many events; a `shared` total is used by records that do not pass,
        too.
        """
        before, after = (1, self.passing) if shared else (self.passing, 1)
        each = [number * before * (self.amount or 0) for number in events]
        capped = [amount if total is None else min(amount, total) for amount in each]
        added = Fraction(sum(capped)) * after / len(events)
        return self.users * added * self.windows / self.entries

    def row(self, capped: Capped, chosen: Chosen) -> dict[str, Any]:
        bands = {
            name: error(self.last)
            for name, error in (chosen.choice.windows or {"": chosen.choice.expected}).items()
        }
        amount, total = chosen.spec.amount, None
        shared = capped.privacy.total_of(chosen.spec.shares)
        if isinstance(amount, UserTotal):
            total = amount.most * chosen.spec.grain
        elif shared is not None:
            total = shared.at_most
        kept, events = sum(capped.counting), sum(self.guesses.events)
        lost, error = 1 - Fraction(kept, events), None
        if self.amount is not None:
            missing = self.value - self._of_users(capped.counting, total, shared=shared is not None)
            lost = missing / self.value if self.value else lost
            error = bands[self.over] + float(abs(missing))
        return {"caps": capped.words, "bands": bands, "cut_off": float(lost), "error": error}


def span_of(window: str, step: int, last: int) -> int:
    """Return how many ticks a number over a window covers, at the last tick of a prediction."""
    if window in ("", EVER):
        return last + 1
    return 1 if window == TICK else milliseconds(window.removesuffix(" before")) // step


def caps_words(series: Mapping[str, Any]) -> str:
    """Return an entry of `caps_json` as a line."""
    over, (files, *others) = series["over"], series["ways"]
    about = f"{series['name']}{f' over {over}' if over else ''}"
    if all(row["bands"] == files["bands"] for row in others) and series["least"] is None:
        return f"{about}: ± {shown_number(files['bands'][over])} with each of these caps"
    if series["value"] is not None:
        about += f", about {shown_number(series['value'])}"
    if "passing" in series:
        passing, many = series["passing"], series["counting"]
        taken = "all (nothing is guessed)" if passing is None else f"{passing * many:,.3g}"
        about += f" (its where keeps {taken} of the {many:,.3g} events of a user that count)"
    bands = "; ".join(
        _way(row, over) for row in (files, *others) if row is files or _other(row, files)
    )
    if series["least"] is None:
        return f"{about}: {bands}. No guess says how this changes the error"
    least = next(row for row in series["ways"] if row["caps"] == series["least"])
    now = "" if least is files else f"; with the caps of the file, it is {_both(files, over)}"
    best = f"{least['caps'] or 'the caps of the file'} ({_both(least, over)}){now}"
    return f"{about}: {bands}. The sum of band and cut-off part is least with {best}"


def _other(row: Mapping[str, Any], files: Mapping[str, Any]) -> bool:
    return any(row[key] != files[key] for key in ("bands", "cut_off"))


def _way(row: Mapping[str, Any], over: str) -> str:
    what = "of all events cut off" if row["error"] is None else "cut off"
    band = shown_number(row["bands"][over])
    return f"{row['caps'] or 'as in the file'} ± {band}, {row['cut_off']:.1%} {what}"


def _both(row: Mapping[str, Any], over: str) -> str:
    band, error = row["bands"][over], row["error"]
    return f"{shown_number(band)} + {shown_number(error - band)} = {shown_number(error)}"
