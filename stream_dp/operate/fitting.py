"""How well a pipeline can use a sample: reasons with an example place each, shares, fields, and hints.

Rules: the pipeline's own router decides, so the counts are those of the engine. Everything here is exact and NOT
PRIVATE, for the operator's own terminal alone. No journal is opened or made; nothing is charged or published.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from stream_dp.core.time import EPOCH_UNITS, TickGrid, own_time
from stream_dp.core.wording import alike_names, how_many
from stream_dp.engine.ports import Batch
from stream_dp.errors import UsageError
from stream_dp.files.records import Record, column_names, each_record
from stream_dp.journal.dead_letters import (
    BAD_MARK,
    MISSING_FIELD,
    TIME_OUT_OF_RANGE,
    TOO_MANY_ENTRIES,
    WRONG_PARTITION,
    WRONG_TYPE,
    Span,
)
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.sample import SampledBatch, sample_topic
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.operate.run.settings import settings_for
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import NO_KEY, guard_of
from stream_dp.pipeline.user_homes import PARTITIONERS, placement_of
from stream_dp.records.cells import WITH_COMMA, KeyAndHeaders
from stream_dp.records.decoder import RecordDecoder
from stream_dp.records.endpoints import UTF_8, FileSourceSpec, KafkaSourceSpec, ReplayClock
from stream_dp.records.groupings import grouping_fields
from stream_dp.records.schema import (
    CategoryField,
    Fields,
    FieldSpec,
    ListField,
    TimeField,
    formula_of,
    key_path,
    place_words,
)

UNSIGNED = (
    "its tick marks are signed by another key, for another start or for another step, so no tick would ever end. If "
    "`stream-dp key rotate` made a new data key after the topic was fed, feed a new topic with it"
)


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """Records of one partition, up to a tick mark if there is one; `refused` are unreadable records.

    `stamp`: when the records came, in ms; None where nothing says it.
    """

    partition: int
    payloads: Sequence[bytes]
    places: Sequence[int]
    refused: Sequence[Span] = ()
    mark: int | None = None
    stamp: int | None = None


@dataclass(frozen=True, repr=False)
class Sample:
    """Records of `origin` in reading order; `columns` are those of a table; `lines`: places are line numbers.

    `partitions` are all partitions of a topic, also those without records.
    """

    origin: str
    pieces: Sequence[Piece]
    columns: Sequence[str] = ()
    lines: bool = False
    partitions: Sequence[int] = (0,)

    @cached_property
    def payloads(self) -> list[bytes]:
        return [payload for piece in self.pieces for payload in piece.payloads]

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Partition and place of each payload."""
        return [(piece.partition, place) for piece in self.pieces for place in piece.places]

    @property
    def refused(self) -> list[tuple[int, Span]]:
        """Unreadable records, each with its partition."""
        return [(piece.partition, span) for piece in self.pieces for span in piece.refused]

    @property
    def records(self) -> int:
        """Number of records, including unreadable ones."""
        return len(self.payloads) + sum(span.records for _, span in self.refused)

    @property
    def unsigned(self) -> int:
        """Number of tick marks where the pipeline's key signed none of them; else 0."""
        if any(piece.mark is not None for piece in self.pieces):
            return 0
        return sum(span.records for _, span in self.refused if span.reason == BAD_MARK)

    def place(self, partition: int, place: int) -> str:
        return f"line {place:,}" if self.lines else f"partition {partition}, offset {place}"


def file_sample(spec: PipelineSpec, path: Path, most: int) -> Sample:
    """Return the first `most` records of a data file."""
    return next(iter(file_samples(spec, path, most)), Sample(path.name, (), lines=True))


def file_samples(spec: PipelineSpec, path: Path, most: int) -> Iterable[Sample]:
    """Yield the records of a data file in samples of `most` records; raises as `each_record`."""
    encoding = _encoding(spec)
    columns = column_names(path, encoding)
    time = _time_column(spec, path, columns)
    records = each_record(path, spec.fields, time, spec.own_times, encoding)
    while some := list(islice(records, most)):
        yield Sample(path.name, (piece_of(some, spec.fields),), columns, lines=True)


def _encoding(spec: PipelineSpec) -> str:
    return spec.source.encoding if isinstance(spec.source, FileSourceSpec) else UTF_8


def piece_of(records: Sequence[Record], fields: Fields) -> Piece:
    payloads, beside = [record.payload for record in records], KeyAndHeaders.of(fields)
    if beside is not None:
        payloads = list(map(beside.placed, payloads))
    return Piece(0, payloads, [record.line for record in records])


def _time_column(spec: PipelineSpec, path: Path, columns: Sequence[str]) -> str:
    """Return the time column; if the clock does not use one, return any column of the schema."""
    if isinstance(spec.clock, ReplayClock):
        return spec.clock.field
    if not columns:
        return next(iter(spec.fields))
    for name, field in spec.fields.items():
        if (field.path or name) in columns:
            return name
    raise UsageError(f"{path}: no column of this file is a field of the schema")


async def topic_sample(
    spec: PipelineSpec, topic: str, most: int, sealer: Callable[[], Sealer], *, newest: bool = True
) -> Sample:
    """Return the `most` newest (or oldest) records of each partition of a topic of the pipeline's brokers.

    The operator's key is read only if the topic may hold tick marks: a mark counts only with that key's signature.
    """
    if not isinstance(spec.source, KafkaSourceSpec):
        raise UsageError(
            "--topic: this pipeline reads a file, so the pipeline file does not say where the "
            "topic is"
        )
    clock = spec.clock
    replayed = isinstance(clock, ReplayClock)
    sample = await sample_topic(
        settings_for(spec.source), topic, most,
        marks=replayed, newest=newest, limit=spec.source.largest_batch,
        read=spec.source.read(spec.fields),
    )  # fmt: skip

    def pieces() -> list[Piece]:
        batches = sample.batches
        if not isinstance(clock, ReplayClock) or not any(batch.records.marks for batch in batches):
            return [Piece(n, r.values, r.offsets, r.refused, stamp=at) for n, r, at in batches]
        marks = TickMarks(sealer().mark_key(), topic, clock.grid)
        return [piece for batch in batches for piece in _marked(batch, marks)]

    return Sample(f"topic {topic}", await asyncio.to_thread(pieces), partitions=sample.partitions)


def _marked(batch: SampledBatch, marks: TickMarks) -> Iterable[Piece]:
    """Yield a record batch, cut at its tick marks; a false mark becomes a refused record."""
    values, offsets, refused, claims, _ = batch.records
    begin, bad = 0, list(refused)
    for at, claim in sorted(claims.items()):
        mark = marks.read(batch.partition, claim)
        if mark is None:
            bad.append(Span(BAD_MARK, None, offsets[at], offsets[at]))
        yield Piece(batch.partition, values[begin:at], offsets[begin:at], (), mark)
        begin = at + 1
    yield Piece(batch.partition, values[begin:], offsets[begin:], bad)


@dataclass(frozen=True, slots=True)
class FieldFit:
    """One field in a sample: positions of records by outcome; `used` says whether series or clock need the field.

    `wrong` includes lists that are too long. `other` holds values outside of the domain. Nulls are in `null` only.
    """

    name: str
    type: str
    used: bool
    fits: Sequence[int]
    null: Sequence[int]
    missing: Sequence[int]
    wrong: Sequence[int]
    other: Sequence[int]


def used_fields(spec: PipelineSpec) -> set[str]:
    """Return the fields without which a record cannot be counted, and what these are made of."""
    used = {name for feature, _ in RowLayout.of(spec).counted(spec) for name in feature.fields}
    used.update(spec.privacy.guarded)
    formulas = (formula_of(spec.fields[name]) for name in used if name in spec.fields)
    used |= {name for formula in formulas if formula is not None for name in formula.names}
    return used | ({spec.clock.field} if isinstance(spec.clock, ReplayClock) else set())


def _fit(name: str, fields: Fields, used: bool, payloads: Sequence[bytes]) -> FieldFit:
    """Return how one declared field fits, by the product's own decoder."""
    field, formula = fields[name], formula_of(fields[name])
    read = [name] if formula is None else formula.names
    decoder = RecordDecoder({name: field}, fields)
    decoded, value_of = decoder.decode(payloads), attrgetter(decoder.attribute(name))
    known = _known(field)

    def refused(*reasons: str) -> list[int]:
        return [r.position for r in decoded.refused if r.field in read and r.reason in reasons]

    fits: list[int] = []
    null: list[int] = []
    other: list[int] = []
    wrong = refused(WRONG_TYPE, TOO_MANY_ENTRIES)
    for record, at in zip(decoded.records, decoded.positions, strict=True):
        value = value_of(record)
        if value is None:
            null.append(at)
        elif isinstance(field, TimeField) and own_time(value, field.form) is None:
            wrong.append(at)
        else:
            fits.append(at)
        if value is not None and not known(value):
            other.append(at)
    return FieldFit(
        name, field.type, used, fits, null, refused(MISSING_FIELD), sorted(wrong), other
    )


def _known(field: Any) -> Callable[[Any], bool]:
    """Return a test that is False for a value which counts in `other`."""
    if not isinstance(field, CategoryField | ListField):
        return lambda value: True
    domain = frozenset(field.domain)
    return domain.__contains__ if isinstance(field, CategoryField) else domain.issuperset


_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
_NUMBER = re.compile(r"\s*[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?\s*")
_FRAMED = 5
"""Bytes before a value in Confluent's wire format: a zero and the number of a schema."""
_CONFLUENT_JSON = (
    "JSON behind a zero byte and a schema's number (Confluent JSON Schema): declare `values: {format: json, ids: "
    "[...]}` in `source:`"
)
_CONFLUENT = (
    "a zero byte and a schema's number come first (Confluent's wire format: Avro or Protobuf): declare `values:` in "
    "`source:`, or write JSON objects"
)
_UNITS = (("epoch_s", 10**8, 10**11), ("epoch_ms", 10**11, 10**14), ("epoch_us", 10**14, 10**17))
"""The range of a time between the years 1973 and 5138, in each unit."""
_CELL = {
    "integer": "numbers that are not whole (12.5); declare `type: number`, or write whole numbers",
    "number": "numbers in another form than 12.5 or 1e3, for example with a space before them",
}
_MAY_LACK = "declare `nullable: true` if the field may be missing"
_NOBODY = "a record without a user cannot be counted: write the user into the record, or leave such records out"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Hint:
    """A known mistake and the number of sample records that show it (NOT PRIVATE); 0: it is about the whole sample."""

    says: str
    records: int


def hints(
    spec: PipelineSpec, sample: Sample, fits: Sequence[FieldFit], outside: Sequence[int]
) -> list[Hint]:
    """Return hints at known mistakes, the most frequent first; `outside` are positions of times out of range.

    A hint names fields and values of the pipeline file. It never shows a record's content, except a field name that
    differs from a declared name in its spelling. No payload makes it raise.
    """
    seen: Counter[str] = Counter()
    values = [_object(payload) for payload in sample.payloads]
    for payload, value in zip(sample.payloads, values, strict=True):
        if not isinstance(value, dict):
            seen[_framing(spec, payload, value, table=bool(sample.columns))] += 1
    for fit in fits:
        if fit.used and formula_of(spec.fields[fit.name]) is None:
            seen.update(_of_field(spec, fit, values, sample.columns))
    seen.update(_of_range(spec, values, outside))
    return [Hint(says, records) for says, records in seen.most_common()]


def _object(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
        return _ABSENT


def _framing(spec: PipelineSpec, payload: bytes, value: object, *, table: bool) -> str:
    """Return what a payload that is not a JSON object looks like."""
    if payload[:1] == b"{" and not _utf8(payload):
        if table and isinstance(spec.source, FileSourceSpec):
            return f"text that is not {spec.source.encoding}: declare `source.encoding`, such as latin-1 or cp1252"
        return "text that is not UTF-8: convert it, such as with `iconv -f latin1 -t utf-8`"
    if table:
        return (
            "rows with more or fewer cells than the first line, or with an open quote: each line is a record, so a "
            "cell cannot hold a line break"
        )
    if value is not _ABSENT:
        return "JSON, but no object: a record is one object with the declared fields"
    if not payload:
        return "records without a value (tombstones)"
    if payload[0] == 0 and len(payload) >= _FRAMED:
        return _CONFLUENT_JSON if payload[_FRAMED:].lstrip()[:1] == b"{" else _CONFLUENT
    if payload.startswith(b"Obj\x01"):
        return "Avro container files: JSON objects are needed"
    if payload.startswith(b"\x1f\x8b"):
        return "values compressed by their producer (gzip): let the Kafka client compress, or send JSON as it is"
    if _binary(payload):
        return "binary values, perhaps Avro, Protobuf or MessagePack: JSON objects are needed"
    return "text that is not JSON: each record must be one JSON object"


def _utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _binary(payload: bytes) -> bool:
    return not _utf8(payload) or _CONTROL.search(payload.decode()) is not None


def _value(record: Any, path: Iterable[str]) -> Any:
    for key in path:
        record = record.get(key, _ABSENT) if isinstance(record, dict) else _ABSENT
    return record


def _texts(record: Any, name: str, field: FieldSpec) -> Any:
    """Return the value of a field; of a list of objects the list of what each has in the place of the text."""
    value, inner = _value(record, key_path(name, field)), getattr(field, "inner", ())
    return [_value(each, inner) for each in value] if inner and isinstance(value, list) else value


def _alike(record: Any, path: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return names beside the first key of the path that a record does not have, which are spelled alike."""
    *above, key = path
    for name in above:
        if not isinstance(record, dict) or name not in record:
            key = name
            break
        record = record[name]
    return alike_names(key, columns or (record if isinstance(record, dict) else ()))


def _of_field(
    spec: PipelineSpec, fit: FieldFit, values: Sequence[Any], columns: Sequence[str]
) -> Iterator[str]:
    """Yield a hint about one field for each record that shows a mistake in it."""
    field = spec.fields[fit.name]
    path = key_path(fit.name, field)
    nothing = (_ABSENT, None) if field.beside else (_ABSENT,)  # a header that is not there is null
    there = [_value(value, path) not in nothing for value in values]
    nowhere = not any(there)
    where = place_words(fit.name, field)
    advice = _NOBODY if fit.name == spec.privacy.user else _MAY_LACK
    if nowhere:
        advice = f"no record has {where}: check its name" + " or its `path:`" * (not field.beside)
        advice = "no record has a key: check `from_key`" if field.from_key else advice
    told = f"; {advice}" if not isinstance(field, TimeField) or nowhere else ""
    for at in (*fit.missing, *(fit.null if nowhere else ())):
        if there[at]:
            yield f"{fit.name}: a list with an entry that has no {where}; {_MAY_LACK}"
        else:
            alike = [] if field.beside else _alike(values[at], path, columns)
            meant = (
                f"the records have {alike[0]!r}; did you mean that?" if alike else f"absent{told}"
            )
            yield f"{fit.name}: {meant}"
    for at in fit.wrong:
        value = _texts(values[at], fit.name, field)
        if value is _ABSENT:
            says: str | None = f"inside of something that is null or not an object; {advice}"
        elif isinstance(field, TimeField):
            says = _of_time(field, value)
        elif value is None:
            says = f"null; {advice}"
        else:
            says = _of_value(field, value, cells=bool(columns) or field.beside)
        if says:
            yield f"{fit.name}: {says}"
    if isinstance(field, CategoryField | ListField):
        yield from _of_domain(fit, field, values)


def _of_domain(
    fit: FieldFit, field: CategoryField | ListField, values: Sequence[Any]
) -> Iterator[str]:
    exact, domain = set(field.domain), {key.strip().casefold() for key in field.domain}
    for at in fit.other:
        value = _texts(values[at], fit.name, field)
        texts = value if isinstance(value, list) else [value]
        spelled = [text for text in texts if isinstance(text, str) and text not in exact]
        if any(text.strip().casefold() in domain for text in spelled if text):
            yield (
                f"{fit.name}: values that differ from the domain only in upper and lower case or in spaces count as "
                "`other`"
            )


def _of_time(field: TimeField, value: object) -> str | None:
    """Return the mistake in a time value, or None."""
    if value is None:
        return "no time (null)"
    if field.form.patterned:
        return f"not in the form of the pattern {field.format}"
    if type(value) is int:
        unit = next((name for name, least, end in _UNITS if least <= value < end), None)
        return f"whole numbers; declare `format: {unit}` if they are in this unit" if unit else None
    if isinstance(value, float):
        return (
            "numbers with a fraction; declare `format: epoch_float` if they are seconds since 1970"
        )
    if not isinstance(value, str):
        return "neither a text nor a whole number"
    if _NUMBER.fullmatch(value):
        return "numbers in quotes; write them without, and declare their `format:`"
    if field.format != "iso" and own_time(value) is not None:
        return f"texts, but `format: {field.format}` is declared; leave `format` out"
    if own_time(f"{value.strip()}Z") is not None:
        return "times without an offset; declare their `zone:` (such as Europe/Berlin), or write the offset"
    return (
        "texts that are not a time with an offset, such as 2013-01-01T10:00:00Z. If they have another form, "
        'declare it as a pattern with its zone, such as `format: "%d.%m.%Y %H:%M", zone: Europe/Berlin`'
    )


def _of_value(field: Any, value: object, *, cells: bool) -> str:
    """Return the mistake in a value that is neither a time nor null; `cells`: the values are a file's cells."""
    if isinstance(field, ListField):
        return _of_list(field, value)
    if isinstance(value, str) and field.type in _CELL:
        if "," in value and WITH_COMMA.fullmatch(value):
            declared = 'declare `decimal: ","`, or ' * (cells and field.type == "number")
            return f"numbers with a comma; {declared}write them with a decimal point, such as 12.5"
        if _NUMBER.fullmatch(value) is None:
            return "texts, but numbers are declared"
        return _CELL[field.type] if cells else "numbers in quotes; write them without"
    if isinstance(value, float) and field.type == "integer":
        return "numbers with a fraction (60.0); declare `type: number`, or write whole numbers"
    if field.type == "boolean":
        return "texts or numbers, but true or false is declared"
    if isinstance(value, bool | int | float):
        return (
            f"numbers, or true and false, but `type: {field.type}` is declared; write them as text"
        )
    return f"values of another type than `{field.type}`"


def _of_list(field: ListField, value: object) -> str:
    if isinstance(value, str):
        return "texts, but lists are declared; write lists, or declare the `separator:` of a file's cells"
    if not isinstance(value, list):
        return "values that are not lists"
    if len(value) > field.most and all(isinstance(text, str) for text in value):
        most = how_many(field.most, "entry", "entries")
        return f"lists with more than {most}; a larger `most:` accepts them, but adds noise to all numbers"
    return "lists with entries that are not texts"


def _of_range(spec: PipelineSpec, values: Sequence[Any], outside: Sequence[int]) -> Iterator[str]:
    """Yield a hint about each time outside of the declared range."""
    clock = spec.clock
    if not isinstance(clock, ReplayClock):
        return
    for at in outside:
        value = _value(values[at], key_path(clock.field, spec.fields[clock.field]))
        moment = own_time(value, spec.own_times)
        yield f"{clock.field}: {_where(value, moment, clock.grid)}"


def _where(value: object, moment: int | None, grid: TickGrid) -> str:
    if type(value) is int:
        for name, (times, over) in EPOCH_UNITS.items():
            if grid.find(value * times // over) is not None:
                return f"in the clock's range if `format: {name}` is declared"
    side = "before" if moment is None or moment < grid.start(0) else "after"
    return f"{side} the range that the clock declares (start, step, horizon)"


_WITH_OTHER = ("category", "list", "boolean")  # field types whose series have an entry `other`


@dataclass(frozen=True, slots=True)
class Reason:
    """Number of records that one reason makes unusable; `field` is its cause if known, `example` a place."""

    reason: str
    field: str | None
    records: int
    example: str

    @property
    def name(self) -> str:
        return self.reason if self.field is None else f"{self.reason} in {self.field}"


@dataclass(frozen=True, slots=True)
class Fitting:
    """Numbers of sample records: all, `dead` (unusable), `late` (after a mark of their tick), `other`, `null`.

    A record counts in `other` if a field by which a series groups is null or outside of its domain; `null` counts
    the records with a null.
    """

    origin: str
    records: int
    dead: int
    late: int
    other: int
    null: int
    reasons: Sequence[Reason]
    fields: Sequence[FieldFit]
    hints: Sequence[Hint]

    @property
    def wholly_refused(self) -> bool:
        """Whether there are records and none of them can be used."""
        return 0 < self.records == self.dead

    def share(self, records: int) -> float:
        """Return the share of the sample, from 0 to 1, that this number of records is."""
        return records / self.records if self.records else 0.0


Why = dict[int, tuple[str, str | None]]
"""Reason and field for each position that cannot be used."""


def fitting_of(spec: PipelineSpec, sample: Sample) -> Fitting:
    """Route a sample as the engine would.

    Raises UsageError if users are protected, but the source does not declare how they are placed on partitions.
    """
    why, late = routed(spec, sample)
    used = used_fields(spec)
    fits = [_fit(name, spec.fields, name in used, sample.payloads) for name in spec.fields]
    reasons = reasons_of(sample, why)
    grouped = {name for series in spec.series for name in grouping_fields(series.grouped_by)}
    by = [fit for fit in fits if fit.name in grouped and fit.type in _WITH_OTHER]
    null = {at for fit in by for at in fit.null} - why.keys()
    other = ({at for fit in by for at in fit.other} - why.keys()) | null

    def because(reason: str) -> list[int]:
        return [at for at, (cause, _) in why.items() if cause == reason]

    advice = [Hint(UNSIGNED, sample.unsigned)] if sample.unsigned else []
    advice += partitioner_hints(spec, sample, because(WRONG_PARTITION))
    advice += hints(spec, sample, fits, because(TIME_OUT_OF_RANGE))
    dead = sum(reason.records for reason in reasons)
    return Fitting(
        sample.origin, sample.records, dead, late, len(other), len(null), reasons, fits, advice
    )


def routed(
    spec: PipelineSpec, sample: Sample, shown: Callable[[int], None] = lambda done: None
) -> tuple[Why, int]:
    """Return why records cannot be used, and the number of records behind their mark.

    `shown` receives the number of routed records.
    """
    replayed = isinstance(spec.clock, ReplayClock)
    router, guard = Router(spec, start := spec.clock.start or 0), guard_of(spec, start, NO_KEY)
    guard.begin(sample.partitions)
    why: Why = {}
    marked: dict[int, int] = {}
    late = begin = 0
    for piece in sample.pieces:
        shown(begin)
        places = range(begin, begin + len(piece.payloads))
        begin = places.stop
        tick = None if replayed else 0
        batch = Batch(piece.partition, piece.payloads, places, begin, tick)
        mark = marked.get(piece.partition, -1)
        rows = router.route(guard.admit(batch, mark))
        for span in rows.dead:
            why |= dict.fromkeys(range(span.first, span.last + 1), (span.reason, span.field))
        late += sum(records for tick, records in rows.records.items() if tick <= mark)
        marked[piece.partition] = max(mark, -1 if piece.mark is None else piece.mark)
    return why, late


def reasons_of(sample: Sample, why: Why) -> list[Reason]:
    """Return the reasons, the most frequent first, each with its first place."""
    counts: Counter[tuple[str, str | None]] = Counter()
    examples: dict[tuple[str, str | None], str] = {}
    for at, cause in sorted(why.items()):
        counts[cause] += 1
        examples.setdefault(cause, sample.place(*sample.places[at]))
    for partition, span in sample.refused:
        cause = span.reason, span.field
        counts[cause] += span.records
        examples.setdefault(cause, sample.place(partition, span.first))
    return [Reason(*cause, records, examples[cause]) for cause, records in counts.most_common()]


def partitioner_hints(spec: PipelineSpec, sample: Sample, astray: Sequence[int]) -> list[Hint]:
    """Return hints that name a partitioner which explains the partitions of most records at `astray`."""
    if not astray or not isinstance(spec.source, KafkaSourceSpec):
        return []
    payloads = [sample.payloads[at] for at in astray]
    actual = [sample.places[at][0] for at in astray]
    advice = []
    for other in sorted(PARTITIONERS.keys() - {spec.source.partitioner}):
        source = spec.source.model_copy(update={"partitioner": other})
        placed = placement_of(spec.model_copy(update={"source": source}))
        explained = sum(map(int.__eq__, placed(payloads, sample.partitions), actual))
        if 2 * explained > len(actual):
            says = (
                f"records are in the partitions in which `partitioner: {other}` puts their users; declare it in "
                "`source:`"
            )
            advice.append(Hint(says, explained))
    return advice
