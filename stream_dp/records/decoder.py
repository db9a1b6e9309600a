"""From a JSON payload to the few fields that the series need, or to the reason why not.

Rules: one record is decoded at a time, so none can influence another; a bad one never drops its batch. Types are
strict: 60.0 is no integer, "60" is no number, integers have 64 bits, a list has texts and no more of them than
declared. A nullable field may be null or absent.
Other fields are skipped. A refusal keeps a reason code and a field name of the schema, never the decoder's
message, which may carry content. Nothing a payload holds raises out of here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress
from typing import Annotated, Any, NamedTuple

import msgspec

from stream_dp.core.moments import EPOCH_UNITS
from stream_dp.journal.dead_letters import MISSING_FIELD, NOT_JSON, TOO_MANY_ENTRIES, WRONG_TYPE
from stream_dp.records.schema import ListField, TimeField

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: Mapping[str, Any] = {
    "category": str,
    "text": str,
    "integer": Int64,
    "number": float,
    "boolean": bool,
}
_ENTRY = re.compile(r"\[\d+\]`\Z")  # how a list's entry is called, behind the list's name
_TOO_LONG = "Expected `array` of length <= "
_TIMES: Mapping[str, Any] = {"iso": str} | dict.fromkeys(EPOCH_UNITS, Int64)
# TypeError: a payload that is None (a Kafka tombstone); RecursionError: nested without end.
_REFUSALS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError)


class Refusal(NamedTuple):
    """Why a record cannot be used; `position` counts within the batch."""

    position: int
    reason: str
    field: str | None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of a batch that could be read, where they stood, and the refusals."""

    records: list[Any]
    positions: Sequence[int]
    refused: list[Refusal]

    def part(self, stays: Sequence[bool]) -> "Decoded":
        """Return what was decoded of the payloads that stay in their batch, with their new positions."""
        kept = list(map(stays.__getitem__, self.positions))
        records = list(compress(self.records, kept))
        refused = [one for one in self.refused if stays[one.position]]
        if not refused:
            return Decoded(records, range(len(records)), [])
        places = [place - 1 for place in accumulate(stays)]
        positions = [places[position] for position in compress(self.positions, kept)]
        return Decoded(
            records, positions, [one._replace(position=places[one.position]) for one in refused]
        )


class RecordDecoder:
    """Decodes records of the given fields; each field becomes the attribute `attribute(name)`."""

    def __init__(self, fields: Mapping[str, Any], schema: Iterable[str] | None = None) -> None:
        """`fields` are the used fields of the `schema`: decoders of one schema call a field the same."""
        numbers = {name: i for i, name in enumerate(fields if schema is None else schema)}
        self._attributes = {name: f"f{numbers[name]}" for name in fields}
        struct = msgspec.defstruct(
            "Record",
            [_member(self._attributes[name], field) for name, field in fields.items()],
            rename={attribute: name for name, attribute in self._attributes.items()},
            kw_only=True,
            gc=False,
        )
        self._decode = msgspec.json.Decoder(struct).decode
        self._missing = {f"Object missing required field `{name}`": name for name in fields}
        self._wrong = {f"`$.{name}`": name for name in fields}

    def attribute(self, field: str) -> str:
        """The attribute of decoded records that holds this field."""
        return self._attributes[field]

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        """Decode each payload on its own."""
        decode = self._decode
        try:
            records = [decode(payload) for payload in payloads]
        except _REFUSALS:
            return self._one_by_one(payloads)
        return Decoded(records, range(len(records)), [])

    def _one_by_one(self, payloads: Sequence[bytes]) -> Decoded:
        records: list[Any] = []
        positions: list[int] = []
        refused: list[Refusal] = []
        for position, payload in enumerate(payloads):
            try:
                records.append(self._decode(payload))
            except _REFUSALS as error:
                refused.append(Refusal(position, *self._reason(error)))
            else:
                positions.append(position)
        return Decoded(records, positions, refused)

    def _reason(self, error: Exception) -> tuple[str, str | None]:
        if not isinstance(error, msgspec.ValidationError):
            return NOT_JSON, None
        message = str(error)
        if message in self._missing:
            return MISSING_FIELD, self._missing[message]
        reason = TOO_MANY_ENTRIES if message.startswith(_TOO_LONG) else WRONG_TYPE
        place = message.partition(" - at ")[2]
        return reason, self._wrong.get(place) or self._wrong.get(_ENTRY.sub("`", place))


def _member(attribute: str, field: Any) -> tuple[str, Any] | tuple[str, Any, None]:
    if isinstance(field, TimeField):
        return attribute, _TIMES[field.format]
    kind = _entries(field) if isinstance(field, ListField) else _TYPES[field.type]
    return (attribute, kind | None, None) if field.nullable else (attribute, kind)


def _entries(field: ListField) -> Any:
    return Annotated[list[str], msgspec.Meta(max_length=field.most)]
