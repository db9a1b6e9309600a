"""A pipeline's promise in words, for `plan`, API, page, `ledger` and `audit`.

Rules: everything here is declared and public. The promise is that of the whole budget, so it holds for everything
asked later; a factor is rounded up, never down. The text never speaks of a person if the promise is for an event,
or for a person's window.
"""

import re
from collections.abc import Iterable, Iterator
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

from stream_dp.accounting.amounts import text
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wording import how_many
from stream_dp.engine.run_config import READ_AGAIN_MS
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.layout import user_entries, values_of
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.amount_units import UserTotal
from stream_dp.records.endpoints import KafkaSourceSpec, ReplayClock
from stream_dp.records.groupings import grouping_fields, grouping_text, most_ones, number_of_keys
from stream_dp.records.privacy import CAPS, TOTAL, Privacy
from stream_dp.records.scalars import duration_text, milliseconds
from stream_dp.records.schema import ListField
from stream_dp.statistics import Series
from stream_dp.statistics.parts.choice import noise_of

# Field names that suggest a person: only a hint, since others may identify a person too.
PEOPLE = (
    "user", "person", "people", "customer", "patient", "member", "email", "account", "client", "employee", "student",
    "passenger", "driver", "subscriber", "visitor", "guest", "citizen", "household", "device", "phone", "msisdn",
    "cookie", "fingerprint", "passport", "session", "player", "reviewer", "kunde", "kunden", "nutzer", "usuario",
    "utilisateur", "klant",
)  # fmt: skip
PEOPLE_WORDS = {
    "mail", "author", "ip", "mac", "ssn", "imei", "imsi", "uid", "iban", "card", "login", "owner", "buyer", "rider",
    "voter",
}  # fmt: skip
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def looks_like_people(names: Iterable[str]) -> list[str]:
    """Return the field names that suggest a person, or something that belongs to one person.

    >>> looks_like_people(["customerId", "client_ip", "zip", "trip", "userName", "IP"])
    ['customerId', 'client_ip', 'userName', 'IP']
    """
    words = {name: {word.lower() for word in _WORD.findall(name)} for name in names}
    return [
        n for n in words if words[n] & PEOPLE_WORDS or any(part in n.lower() for part in PEOPLE)
    ]


_TRANSACTIONS = {
    "late": "records of a transaction count if the transaction is committed before their ticks settle (wall clock: "
    "half of `delay` after the tick's end; replay: before the tick's mark). Otherwise the records are late. No tick "
    "waits for an open transaction",
    "wait": "ticks wait for the end of every open transaction, so every producer of the topic can delay ticks",
}


def warnings(built: Built) -> list[str]:
    """Return the notes that may be a reason to change the file."""
    found = []
    if built.spec.relation is Neighbors.REPLACE_ANY_TICK:
        found.append(
            "an event's own time decides its tick, so a replacement may move the event to another tick. Such a move "
            "is one event removed and one event added, and each mechanism has half the epsilon for either. If no "
            "replacement moves an event, declare it: privacy.moves: within_tick"
        )
    found += _unended(built.spec)
    found += [f"{c.spec.name}: {c.choice.advice}" for c in built.chosen if c.choice.advice]
    noisy = [(c.spec.name, noise_of(c.choice.alarms, c.spec.price)) for c in built.chosen]
    found += [f"{name}: {noise}" for name, noise in noisy if noise]
    people = looks_like_people(built.spec.fields) if built.spec.privacy.unit != "user" else []
    if people:
        found.append(
            f"the unit is one event, but the schema has {', '.join(people)}: each event of a person is protected, "
            "but not all events of the person together. privacy.unit: user protects all of them (docs/people.md)"
        )
    return found


def caveats(built: Built) -> list[str]:
    notes = [
        "the guarantee is for this pipeline only: "
        "another pipeline on the same source has its own ledger, and the epsilons of both add up",
        "the guarantee holds against computationally bounded adversaries, because the noise comes from ChaCha20",
    ]
    source = built.spec.source
    if isinstance(source, KafkaSourceSpec):
        notes.append(_TRANSACTIONS[source.open_transactions])
    if built.spec.clock.step > READ_AGAIN_MS:
        notes.append(
            f"ticks are longer than {duration_text(READ_AGAIN_MS)}, so a new series starts at the next tick, and "
            "a watch begins or ends at the next tick: no record of the open tick is read again"
        )
    users = _of_users(built.spec) if built.spec.privacy.unit == "user" else ()
    about = [*_of_identifiers(built.spec), *users, *_of_shapes(built)]
    return [*warnings(built), *notes, *about]


def _unended(spec: PipelineSpec) -> list[str]:
    """Return which windows, or hops, the horizon cuts off: they never end, so nothing is told of them."""
    horizon, step = spec.clock.horizon or 0, spec.clock.step
    cut: dict[str, list[str]] = {}
    for series in spec.series:
        hop = getattr(series, "hop", None)
        ending, what = ((hop,), "hop") if hop else (getattr(series, "every", ()), "window")
        for place, window in enumerate(ending):
            rest = horizon % (milliseconds(window) // step)
            if rest and series.first_told(place, step):
                why = (
                    f"the horizon ends in the middle of a {what} of {window}, so no release contains the records "
                    f"of the horizon's last {how_many(rest, 'tick')}"
                )
                cut.setdefault(why, []).append(series.name)
    return [f"{', '.join(names)}: {why}" for why, names in cut.items()]


def _of_identifiers(spec: PipelineSpec) -> list[str]:
    kept = [
        (f"{s.name} remembers every different {kind.field}{_by(s)}", kind)
        for s in spec.series
        if (kind := s.identifier) is not None
    ]
    return [
        f"{what} "
        f"{'for ever' if kind.span is None else f'until its window of {duration_text(kind.span)} is over'}. Each "
        f"takes at most {64 * len(kind.keys)} bytes of memory, and {20 * len(kind.keys)} bytes in the private "
        f"commit of the tick where it counts{_early(spec, len(kind.keys))}. None is forgotten earlier, so the "
        "memory grows with their number. The size of a private commit shows roughly how many came"
        for what, kind in kept
    ]


def _by(series: Series) -> str:
    by = grouping_text(series.grouped_by)
    return f", once for each {by} with which it comes," if by else ""


def _early(spec: PipelineSpec, columns: int, size: int = 16) -> str:
    if not isinstance(spec.clock, ReplayClock):
        return ""
    return f", and {size * columns} bytes more in an earlier commit if its record was read before that tick's turn"


def _of_users(spec: PipelineSpec) -> Iterator[str]:
    privacy, source = spec.privacy, spec.source
    until = "for ever" if privacy.per is None else "until the window is over"
    yield (
        f"the guard remembers every user who counts, {until}. Each user takes at most 64 bytes of memory, and 20 "
        "bytes in the private commit of each tick in which the user counts. No user is forgotten earlier, so the "
        "memory grows with the number of users"
    )
    yield from _of_places(spec)
    cap = privacy.most_events(spec.clock)
    if cap > 1:
        yield (
            f"the noise must hide all {cap} events of a user that count, so it is {cap} times the noise for one "
            "event, unless a note below states less. The noise of a sum with user_total or shared_total hides "
            "that total. The noise of distinct users and of cut_off hides one user (with `by`: all entries in "
            "which one user may be)"
        )
    if cap < privacy.cap:
        reached = (
            f"per_tick lets {privacy.per_tick} count in each tick"
            if privacy.per_key is None
            or privacy.keys is None
            or cap < privacy.per_key * privacy.keys
            else f"per_key and keys let {privacy.per_key} count for each of {privacy.keys} values of {privacy.key}"
        )
        where = "for ever" if privacy.per is None else "in a window"
        yield f"of the {privacy.cap} events of a user that may count {where}, at most {cap} are reached: {reached}"
    if privacy.key is not None:
        yield from _of_keys(privacy, until)
    yield from _of_total(spec, until)
    if privacy.share is not None:
        yield (
            f"only {privacy.share} of all users count, chosen by a keyed hash. All counts are counts of these users "
            "alone"
        )
    if isinstance(source, KafkaSourceSpec) and source.keyed_by is not None:
        yield (
            f"a user's records count in one partition, the one that {source.partitioner} chooses among the "
            "partitions of the first start; records in other partitions are dead letters. Records in partitions "
            "that are added later do not count, nor do users whose records producers then send there"
        )
    for series in spec.series:
        if isinstance(series.amount, UserTotal):
            early = _early(spec, 1, 24)
            if (early or series.signed) and series.grouped_by is not None:
                early += ", and each key that the user has in it"
            yield (
                f"{series.name} remembers how much each user has added, {until}. Each user takes at most 64 bytes "
                f"of memory, and {24 if series.signed else 20} bytes in the private commit of each tick in which "
                f"the user adds to it{early}. Amounts beyond the total are cut off, and no series with `cut_off` "
                "counts these users"
            )
    yield (
        f"records with exactly the same value of {privacy.user} belong to one user; a record without a value is a "
        "dead letter"
    )
    if privacy.per is not None:
        yield (
            f"windows of {duration_text(privacy.per)} begin at the first tick. A user with records in several windows "
            "has this privacy loss in each window: the guarantee protects a user's part in one window, not whether the "
            "user is in the data at all "
            "(privacy.overall protects that)"
        )


def _of_places(spec: PipelineSpec) -> Iterator[str]:
    """Yield which series count fewer records than have a place of their users' caps."""
    some = [series.name for series in spec.counted if series.where]
    if some:
        yield (
            f"records that the where of {', '.join(some)} drops use up their users' caps, too. So fewer of the "
            "records that the series would count fit into the cap, and the noise is still for the whole cap"
        )


def _of_total(spec: PipelineSpec, until: str) -> Iterator[str]:
    """Yield what the guard remembers of a total that series share, and which of them have less for it."""
    several = bool(spec.privacy.totals)
    for total in spec.privacy.shared:
        shared = [series for series in spec.counted if series.shares == total.of]
        own = f", of: {total.of}" if several else ""
        yield (
            f"the guard also remembers, {until}, how much of {total.of} each user has added. Each user takes at "
            "most 64 bytes of memory, and 20 bytes in the private commit of each tick in which the user adds "
            f"some. Amounts beyond {total} are cut off (cut_off with cap: total{own} counts these users); a "
            f"record whose {total.of} does not fit the schema is a dead letter"
        )
        if some := [series.name for series in shared if series.where and not series.parts]:
            yield (
                f"records that the where of {', '.join(some)} drops use up the total, too: if a user adds more "
                f"than {total} in all, the sum contains only the part that was left, and is too small by the rest"
            )
        if means := [series.name for series in shared if series.parts]:
            yield (
                f"a record that does not fit wholly into what is left of {total} does not count in "
                f"{', '.join(means)}, neither in the sum nor in the number of records: of users with more than "
                f"{total}, only the first records count. The price of a sum is computed from units of the total, "
                "and the price of a number of records from events"
            )
        if not shared:
            yield (
                f"no series of this file has shared_total of {total.of}: the total changes nothing until a series "
                "that is added later has it"
                if several
                else "no series of this file has shared_total: the total changes nothing until a series that is "
                "added later has it"
            )
    if spec.privacy.shared:
        when = "never" if spec.privacy.per is None else "only once the window of the cap is over"
        totals, kinds = (
            ("a total", "the other kinds") if several else ("the total", "the other kind")
        )
        add = (
            "each total is a kind of its own, and so are events; the costs of all kinds add up"
            if several
            else "both costs add up"
        )
        yield (
            f"the price of series with shared_total is computed from units of {totals}, and of all other series "
            f"from events; {add}. The budget that a halt frees is free at once for series of the same kind, and "
            f"for {kinds} {when}"
        )


def _of_keys(privacy: Privacy, until: str) -> Iterator[str]:
    if privacy.keys is not None and privacy.per_key is None:
        yield (
            f"keys alone decides which events count. It reduces only the noise of distinct users by {privacy.key} "
            f"and, if {privacy.key} is a text or an integer, the noise of its distinct values. Add per_key to let "
            "fewer events of a user count"
        )
    beside = (
        "one entry for each value"
        if privacy.keys is None
        else "one entry for each value, and one for the number of values"
    )
    yield (
        f"the guard also remembers, {until}, which values of {privacy.key} the counted events of each user had: "
        f"{beside}. Each entry takes at most 64 bytes of memory, and 20 bytes in the private commit of each tick "
        "in which they count. Null is one value, and all values outside the domain of a category are one; a "
        f"record whose {privacy.key} does not fit the schema is a dead letter"
    )


def _of_shapes(built: Built) -> Iterator[str]:
    """Yield which series need less noise than for as many events as count, because caps say where these may lie."""
    spec = built.spec
    shaped = [c.spec.name for c in built.chosen if getattr(c.mechanism.rows, "shape", None)]
    valued = [
        (c.spec.name, most, entries)
        for c in built.chosen
        if (most := values_of(spec, c.spec)) is not None
        and c.mechanism.rows.changes
        in (most * (entries := user_entries(spec, c.spec)), 2 * most * entries)
    ]
    if shaped:
        yield (
            f"Gaussian noise of {', '.join(shaped)} is computed from squares: less noise is needed if a user's "
            "events must lie in several ticks (per_tick) or entries (per_key). The noise of trees and HSS "
            "depends only on the number of events"
        )
    for name, most, entries in valued:
        each = f", each in up to {entries} entries" if entries > 1 else ""
        values = f"{most} values of {spec.privacy.key} of a user{each}"
        yield f"{name} has noise for {values}, and the number of events does not matter"


STRONG = 2  # above this epsilon, the text says that the promise is weak
TELLING = 100  # from this factor on, the text no longer says that nothing can be told
ANY_ROW = "any row in its tick for any other: ~_H of [HSV]"
_WINDOWS = {60_000: "minute", 3_600_000: "hour", 86_400_000: "day", 604_800_000: "week"}
_EXACT, _SHOWN = (Context(prec=digits, rounding=ROUND_CEILING) for digits in (40, 3))


def plain_promise(spec: PipelineSpec) -> str:
    """Return who is protected and what that means, in one line without a symbol."""
    thing, them, other = _protected(spec)
    factor, privacy = times(spec.privacy.epsilon), spec.privacy
    change = (
        f"With or without {them}"
        if spec.relation is Neighbors.ADD_REMOVE
        else f"With {them} or with {other}"
    )
    slack = f", apart from a probability of {text(privacy.delta)}" if privacy.delta else ""
    says = (
        f"what is published hides any single {thing}"
        if factor < TELLING
        else f"what is published may reveal a single {thing}"
    )
    moved = ", at any time," if spec.relation is Neighbors.REPLACE_ANY_TICK else ","
    weak = (
        " That is weak: people usually take an epsilon of 0.5 to 2."
        if privacy.epsilon > STRONG
        else ""
    )
    vouched = f", if {spec.condition}" if spec.condition else ""
    bound = f"{change}{moved} every outcome is at most {factor:,f} times as likely{slack}{vouched}."
    return f"{spec.name} protects {unit_name(spec)}: {says}. {bound}{weak}"


def times(epsilon: Fraction) -> Decimal:
    """Return e to the power of `epsilon` in three digits, rounded up.

    >>> times(Fraction(2)), times(Fraction(1, 100)), times(Fraction(10))
    (Decimal('7.39'), Decimal('1.02'), Decimal('2.21E+4'))
    """
    power = _EXACT.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    factor = _EXACT.next_plus(power.exp(_EXACT))  # exp rounds to the nearest
    return _SHOWN.plus(factor)


def _protected(spec: PipelineSpec) -> tuple[str, str, str]:
    privacy = spec.privacy
    if privacy.unit == "event":
        return "event", "it", "another in its place"
    window = f" of one {_window(privacy.per)}" if privacy.per else ""
    return f"{privacy.user}'s events{window}", "them", "others in their place"


def unit_name(spec: PipelineSpec) -> str:
    """Return the unit in short: `one event`, `(user, day)`, or `user, for ever`."""
    privacy = spec.privacy
    if privacy.unit == "event":
        return "one event"
    if privacy.per is None:
        return "user, for ever"
    return f"(user, {_WINDOWS.get(privacy.per) or duration_text(privacy.per)})"


def unit_words(spec: PipelineSpec) -> str:
    """Return the unit in words: whose events together, and how many of them count."""
    privacy, name = spec.privacy, unit_name(spec)
    if privacy.unit == "event":
        return name
    where = "for ever" if privacy.per is None else f"within one {_window(privacy.per)}"
    cap = privacy.most_events(spec.clock)
    many = f"{cap} {'counts' if cap == 1 else 'count'}"
    return (
        f"{name}: all events of one {privacy.user} {where} together, of which at most {many}"
        f"{_other_caps(privacy)}"
    )


def _other_caps(privacy: Privacy) -> str:
    """Return the caps beside that of a window: `, 2 of a tick, 2 of a country and 3 values of country`."""
    caps = (
        (privacy.per_tick, "of a tick"),
        (privacy.per_key, f"of a {privacy.key}"),
        (privacy.keys, f"{'value' if privacy.keys == 1 else 'values'} of {privacy.key}"),
        *((total, "in sums with shared_total") for total in privacy.shared),
    )
    *first, last = [f"{most} {what}" for most, what in caps if most is not None] or [""]
    if not first:
        return f", and {last}" if last else ""
    return f", {', '.join(first)} and {last}"


def unit_json(spec: PipelineSpec) -> dict[str, Any]:
    """Return the unit for API and `--json`: `unit`, and for a user `users` with field, number and window."""
    privacy = spec.privacy
    if privacy.unit == "event":
        return {"unit": privacy.unit}
    per = None if privacy.per is None else duration_text(privacy.per)
    users = {
        "name": unit_name(spec), "field": privacy.user, "max_events": privacy.most_events(spec.clock), "per": per,
        **{name: getattr(privacy, name) for name in ("key", *CAPS) if getattr(privacy, name) is not None},
        **({TOTAL: ", ".join(map(str, privacy.shared))} if privacy.shared else {}),
    }  # fmt: skip
    return {"unit": privacy.unit, "users": users}


def _window(milliseconds: int) -> str:
    """Return the name of a public window of this length: `day`, or `window of 36h`."""
    return _WINDOWS.get(milliseconds) or f"window of {duration_text(milliseconds)}"


def lists_json(spec: PipelineSpec) -> dict[str, list[dict[str, Any]]]:
    """Return under `lists` those by which the file's series group: field, number of entries, `most` set at once."""
    named = dict.fromkeys(series.grouped_by for series in spec.series)
    lists = [
        {
            "field": grouping_text(by),
            "entries": number_of_keys(spec.fields, by),
            "most": most_ones(spec.fields, by),
        }
        for by in named
        if any(isinstance(spec.fields[name], ListField) for name in grouping_fields(by))
    ]
    return {"lists": lists} if lists else {}


def lists_words(spec: PipelineSpec) -> str:
    phrases = []
    for listed in lists_json(spec).get("lists", []):
        entries, most = listed["entries"], listed["most"]
        whole = spec.relation is Neighbors.REPLACE and most == entries
        many = f"up to {most} of the {how_many(entries, 'entry', 'entries')} of {listed['field']}"
        phrases.append(f"{many} ({ANY_ROW})" if whole else many)
    return f"an event sets {' and '.join(phrases)}" if phrases else ""
