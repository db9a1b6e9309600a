"""The body of a release: its one form, written and read here and nowhere else.

Rules: a body is one line of JSON in UTF-8, made of an answer and of public values; it says no batch, offset or wall
time. The form has a version, `v`: the meaning of its fields never changes, a later form has another number, and an
unknown form is refused. A written release is never written again in another form: the bytes are the release.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from stream_dp.core.mechanism import IntArray
from stream_dp.core.time import parse_moment
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Release
from stream_dp.journal.public_body import Concealed, PublicBody, decoded_body

VERSION = 1  # the form that is written, and the only one that is read

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_End: TypeAlias = int | float | None
_Values: TypeAlias = dict[str, _End] | tuple[_End, ...]
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_EXACT = json.JSONDecoder(parse_float=Decimal)
_WIDE = Context(prec=40)
_ONE = Fraction(1)
_FEW = 256  # entries; fewer are encoded one by one
_BUCKET = re.compile(rb'"bucket":\[([-+.0-9eE]+),([-+.0-9eE]+)\]')
_BESIDE = re.compile(rb',"lows?":[^"]+,"highs?":[^"]+,"ends":"[a-z]+"')
_moment = lru_cache(maxsize=16)(parse_moment)  # all series of a tick have one end


class Shape(StrEnum):
    """The form of a series' releases; each of its `windows` has a value, values, quantiles or ranks."""

    SCALAR = "scalar"
    HISTOGRAM = "histogram"
    FLAGS = "flags"
    RANKS = "ranks"
    WINDOWS = "windows"


class Head(PublicBody, frozen=True, kw_only=True):
    """The first fields of every release; `end` is the end of its tick, ISO 8601 in UTC.

    `version` counts the series that had this name: from 2 on, a changed pipeline file ended the one before, and this
    one has another definition, mechanism and first tick.
    """

    sequence: _Number
    series: str
    tick: _Number
    end: str
    version: Annotated[int, msgspec.Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        if _moment(self.end) is None:
            raise ValueError("the end of a release's tick must be a time with an offset")

    @property
    def end_ms(self) -> int:
        return _moment(self.end) or 0


class Quantile(Concealed, frozen=True, kw_only=True, omit_defaults=True):
    """A released quantile: a `value`, and the ends, `low` and `high`, of the public buckets that it may be in.

    A window that ended has in place of them the two ends of the one `bucket` that was chosen. These say nothing of the
    noise, and the exact quantile may lie anywhere. Former versions wrote them as `low` and `high`.
    """

    value: int | float
    low: int | float | UnsetType = UNSET
    high: int | float | UnsetType = UNSET
    bucket: tuple[int | float, int | float] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.low, self.high, self.bucket).count(UNSET) != (2 if self.bucket else 1):
            raise ValueError("a quantile needs a low and a high end, or the ends of its bucket")


class Rank(Concealed, frozen=True, kw_only=True, omit_defaults=True):
    """A place in a top list: who holds it by the released values, and who else may hold it.

    `tied` are the names that cannot be distinguished from `name`, the greatest first; `more` others are not listed.
    """

    name: str
    value: int | float
    tied: tuple[str, ...]
    more: _Number = 0


class WindowPart(Concealed, frozen=True, kw_only=True, omit_defaults=True):
    """What a release says of one window: one `value`, or `values` by key, and the half-width `band` of each.

    Before the first end of a window that ends, each value is null.

    Or `quantiles`: none before the first end of a window that ends. Then `band` is in ranks: by how many events a
    released bucket may miss the rank that was asked for. Or `ranks`, the greatest first; none before the first end of a
    window that ends. Then `band` holds for all their values at once. A quotient has two ends in place of a band, as in
    `Released`.
    """

    value: _End | UnsetType = UNSET
    values: _Values | UnsetType = UNSET
    quantiles: dict[str, Quantile] | UnsetType = UNSET
    ranks: tuple[Rank, ...] | UnsetType = UNSET
    band: int | float | UnsetType = UNSET
    low: _End | UnsetType = UNSET
    high: _End | UnsetType = UNSET
    lows: tuple[_End, ...] | UnsetType = UNSET
    highs: tuple[_End, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if [self.value, self.values, self.quantiles, self.ranks].count(UNSET) != 3:
            raise ValueError("a window must have exactly one of value, values, quantiles and ranks")
        _require_one_width(self)


class Released(Head, frozen=True, kw_only=True, omit_defaults=True):
    """A whole release; of `value`, `values`, `fired`, `ranks` and `windows` exactly one is set.

    `name` may stand beside `value`: whose value it is. `counts` may stand beside `fired`: the noisy count of each key
    that fired, and `counts_band` their half-width. `ranks` and `windows` are in the order in which they are shown: the
    greatest rank first, the single tick first. `band` is the half-width that holds with `confidence`; of a release with
    windows, each window has its own and there is no other. A quotient has the ends of its interval in place of a band:
    `low` and `high` beside `value`, `lows` and `highs` beside `values` in the order of their keys. Null is an open end,
    or a value that does not exist. What lags behind has such ends beside its band, which hold with `confidence` too,
    and `ends` says why: "proven", or "calibrated" by a search for the worst data. `not_private` marks noise of the test
    kit, which protects nobody. `values` may be an array, also in windows; `keys` then name its entries, in the first
    release of the series alone (`ReleaseReader`).
    """

    name: str | UnsetType = UNSET
    value: _End | UnsetType = UNSET
    keys: tuple[str, ...] | UnsetType = UNSET
    values: _Values | UnsetType = UNSET
    fired: tuple[str, ...] | UnsetType = UNSET
    ranks: tuple[Rank, ...] | UnsetType = UNSET
    counts: dict[str, int | float] | UnsetType = UNSET
    windows: dict[str, WindowPart] | UnsetType = UNSET
    band: int | float | UnsetType = UNSET
    low: _End | UnsetType = UNSET
    high: _End | UnsetType = UNSET
    lows: tuple[_End, ...] | UnsetType = UNSET
    highs: tuple[_End, ...] | UnsetType = UNSET
    ends: Literal["proven", "calibrated"] | UnsetType = UNSET
    counts_band: int | float | UnsetType = UNSET
    confidence: float
    not_private: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if [self.value, self.values, self.fired, self.ranks, self.windows].count(UNSET) != 4:
            raise ValueError(
                "a release must have exactly one of value, values, fired, ranks and windows"
            )
        if not self.windows:
            _require_one_width(self)
        elif [self.band, self.low, self.high, self.lows, self.highs].count(UNSET) != 5:
            raise ValueError("each window has its own band, so the release may have no other band")
        if self.name is not UNSET and self.value is UNSET:
            raise ValueError("a release may have a name only together with a value")
        counts = {} if self.counts is UNSET else self.counts
        if UNSET in (self.counts, self.counts_band):
            if self.counts is not self.counts_band:
                raise ValueError(
                    "a release must have both its counts and their band, or neither of the two"
                )
        elif self.fired is UNSET or tuple(counts) != self.fired:
            raise ValueError("the counts must be those of the keys that fired, in their order")
        if self.keys is not UNSET and not self.in_order:
            raise ValueError("keys name the entries of values in an array")

    @property
    def in_order(self) -> bool:
        """Whether it has values in the order of keys, which its first release alone names."""
        parts: Iterable[WindowPart | Released] = self.windows.values() if self.windows else (self,)
        return any(part.values is not UNSET and not isinstance(part.values, dict) for part in parts)

    @property
    def shape(self) -> Shape:
        shown = {
            Shape.SCALAR: self.value,
            Shape.HISTOGRAM: self.values,
            Shape.RANKS: self.ranks,
            Shape.WINDOWS: self.windows,
        }
        return next((shape for shape, field in shown.items() if field is not UNSET), Shape.FLAGS)


def _require_one_width(part: "WindowPart | Released") -> None:
    """Raise `ValueError` unless there is a band, or both ends of each value, or `ends` says why there are all."""
    ends = ((part.low, part.high, part.value), (part.lows, part.highs, part.values))
    there = [pair for pair in ends if pair[:2] != (UNSET, UNSET)]
    beside = isinstance(part, Released) and part.ends is not UNSET
    if len(there) != (part.band is UNSET) + beside or any(UNSET in pair for pair in there):
        raise ValueError("a value needs either a band, or a low and a high end")
    if isinstance(part.values, msgspec.Raw):
        return
    if part.lows and not len(part.lows) == len(part.highs or ()) == len(part.values or ()):
        raise ValueError("each value needs a low and a high end")


_P = TypeVar("_P", WindowPart, Released)


def content(shape: Shape, keys: Sequence[str], answer: IntArray) -> dict[str, Any]:
    """Return the fields that hold an answer of shape (len(keys),), in the order of the keys.

    Flags with counts have len(keys) more entries, the counts; only the counts of keys that fired are returned.

    >>> content(Shape.FLAGS, ("AA", "UA"), np.array([0, 1])), content(Shape.SCALAR, ("",), np.array([7]))
    ({'fired': ('UA',)}, {'value': 7})
    """
    counted = shape is Shape.FLAGS and len(answer) == 2 * len(keys) > 0
    if len(answer) != len(keys) and not counted:
        raise ValueError("an answer needs one entry for each key")
    match shape:
        case Shape.WINDOWS | Shape.RANKS:
            raise ValueError("pass the keys of the series to read its windows or ranks")
        case Shape.SCALAR:
            (value,) = answer.tolist()
            return {"value": value}
        case Shape.HISTOGRAM:
            return {"values": dict(zip(keys, answer.tolist(), strict=True))}
        case Shape.FLAGS:
            places = np.flatnonzero(answer[: len(keys)]).tolist()
            fired = tuple([keys[at] for at in places])
            if not counted:
                return {"fired": fired}
            counts = answer[len(keys) :][places].tolist()
            return {"fired": fired, "counts": dict(zip(fired, counts, strict=True))}


_NO_DIGIT = b"\0"  # in no JSON text


class Numbers:
    """Writes an answer of many entries, in units, as an object by key or as an array in the order of `keys`.

    The bytes are those of the encoder, without an object for each number: each has a place for as many digits as any
    has had, and what it leaves free is cut out at the end.

    >>> numbers = Numbers(("AA", "UA"), array=False)
    >>> bytes(numbers.text(np.array([7, -120]))), bytes(numbers.text(np.array([0, 10])))
    (b'{"AA":7,"UA":-120}', b'{"AA":0,"UA":10}')
    >>> in_order = Numbers(("AA", "UA"), array=True, unit=Fraction(1, 10))
    >>> bytes(in_order.text(np.array([7, -120]))), bytes(in_order.nothing)
    (b'[0.7,-12.0]', b'[null,null]')
    """

    def __init__(self, keys: Sequence[str], *, array: bool, unit: Fraction = _ONE) -> None:
        self._keys, self._array, self.unit = keys, array, unit
        self._digits = 0
        self._places = self._ends = np.zeros(0, dtype=np.uint8)

    @property
    def nothing(self) -> msgspec.Raw:
        """Null for each entry."""
        return self._encoded([None] * len(self._keys))

    def text(self, answer: IntArray) -> msgspec.Raw:
        if len(answer) != len(self._keys):
            raise ValueError("an answer needs one entry for each key")
        sizes = np.abs(answer).view(np.uint64)
        factor, most = self.unit.numerator, int(sizes.max(initial=0))
        if len(answer) < _FEW or self.unit.denominator > 1 or factor * most >= 1 << 63:
            return self._encoded([told_number(units, self.unit) for units in answer.tolist()])
        left, digits = sizes * np.uint64(factor), len(str(factor * most))
        if factor * most < 1 << 32:
            left = left.astype(np.uint32)  # whose quotients take half the time
        if digits > self._digits:
            self._make_places(digits)
        text, ten = self._places.copy(), left.dtype.type(10)
        for place in range(digits):
            rest = left // ten
            digit = (left - rest * ten).astype(np.uint8) + np.uint8(ord("0"))
            if place:
                digit *= left != 0
            text[self._ends - place] = digit
            left = rest
        text[self._ends[answer < 0] - self._digits] = ord("-")
        return msgspec.Raw(text.tobytes().translate(None, _NO_DIGIT))

    def _encoded(self, numbers: Sequence[Any]) -> msgspec.Raw:
        named = numbers if self._array else dict(zip(self._keys, numbers, strict=True))
        return msgspec.Raw(_ENCODER.encode(named))

    def _make_places(self, digits: int) -> None:
        """Make the text in which each entry has room for a sign and so many digits, and note where the rooms end."""
        names = [b"" if self._array else _ENCODER.encode(key) + b":" for key in self._keys]
        entries = [name + _NO_DIGIT * (digits + 1) for name in names]
        opened, closed = (b"[", b"]") if self._array else (b"{", b"}")
        text = opened + b",".join(entries) + closed
        self._places, self._digits = np.frombuffer(text, dtype=np.uint8), digits
        self._ends = np.cumsum([len(entry) + 1 for entry in entries]) - 1


def part(keys: Sequence[str], answer: IntArray, band: int, unit: Fraction = _ONE) -> WindowPart:
    """Return the part of a release for one window, from its answer of shape (len(keys),) and its band, in units.

    >>> write_part = msgspec.json.encode
    >>> write_part(part(("",), np.array([7]), 2)), write_part(part(("AA",), np.array([7]), 2))
    (b'{"value":7,"band":2}', b'{"values":{"AA":7},"band":2}')
    """
    shape = Shape.HISTOGRAM if any(keys) else Shape.SCALAR
    width: Any = told_number(band, unit)
    return WindowPart(**in_units(content(shape, keys, answer), unit), band=width)


def without_values(shown: WindowPart) -> WindowPart:
    """Return the part of a window of which none has ended yet: each value, and each end, is null; nobody has a rank.

    >>> msgspec.json.encode(without_values(part(("AA",), np.array([7]), 2)))
    b'{"values":{"AA":null},"band":2}'
    """
    nothing = {
        "value": None,
        "low": None,
        "high": None,
        "values": dict.fromkeys(shown.values or ()),
        "lows": (None,) * len(shown.lows or ()),
        "highs": (None,) * len(shown.highs or ()),
        "ranks": (),
    }
    told = {key: empty for key, empty in nothing.items() if getattr(shown, key) is not UNSET}
    return msgspec.structs.replace(shown, **told)


def told_number(units: int, unit: Fraction) -> int | Decimal:
    """Return `units` times `unit`, an integer or the exact decimal with its places (at most 6, else `ValueError`).

    >>> told_number(1250, Fraction(1, 100)), told_number(-3, Fraction(5))
    (Decimal('12.50'), -15)
    """
    if unit.denominator == 1:
        return units * unit.numerator
    for places in range(1, 7):
        if (fine := unit * 10**places).denominator == 1:
            return Decimal(units * fine.numerator).scaleb(-places, _WIDE)
    raise ValueError("a unit must be a decimal of at most 6 places")


def in_units(fields: dict[str, Any], unit: Fraction) -> dict[str, Any]:
    """Return the fields that `content` gives, with numbers in place of units."""
    if unit == 1:
        return fields
    scaled = dict(fields)
    if "value" in fields:
        scaled["value"] = told_number(fields["value"], unit)
    for many in fields.keys() & {"values", "counts"}:
        scaled[many] = {key: told_number(units, unit) for key, units in fields[many].items()}
    return scaled


def name_text(name: str) -> bytes:
    """Return a name as it stands in a release."""
    return _ENCODER.encode(name)


def name_bytes(name: str) -> int:
    """Return how many bytes a name has in a release, without its quotes.

    >>> name_bytes("Wien"), name_bytes("Köln"), name_bytes("東京")
    (4, 5, 6)
    """
    return len(name_text(name)) - 2


def write(released: Released) -> bytes:
    return _ENCODER.encode(released)


def write_scalars(
    one: Released, names: Sequence[bytes], told: Iterable[tuple[int, int]]
) -> list[bytes]:
    """Return the releases of several series in one tick, which differ from `one` in name, number and value alone.

    `names` are as they stand in JSON, `told` has the number and the value of each.

    >>> end = "1970-01-01T00:00:05Z"
    >>> one = Released(v=1, sequence=0, series="", tick=4, end=end, value=0, band=2, confidence=0.95)
    >>> [body] = write_scalars(one, [b'"a"'], [(7, 12)])
    >>> body == write(msgspec.structs.replace(one, sequence=7, series="a", value=12))
    True
    """
    start, _, rest = write(msgspec.structs.replace(one, sequence=0, series="", value=0)).partition(
        b'0,"series":""'
    )
    middle, _, end = rest.partition(b'"value":0')
    each = zip(told, names, strict=True)
    return [
        b'%b%d,"series":%b%b"value":%d%b' % (start, number, name, middle, value, end)
        for (number, value), name in each
    ]


def former(body: bytes) -> bytes:
    """Return the bytes that former versions wrote for this release: a bucket as `low` and `high`.

    >>> former(b'{"value":{"value":3,"bucket":[2,4]},"confidence":0.95}')
    b'{"value":{"value":3,"low":2,"high":4},"confidence":0.95}'
    """
    return _BUCKET.sub(rb'"low":\1,"high":\2', body)


def is_recorded(recorded: bytes, written: bytes) -> bool:
    """Return whether a journal's body is `written`, in the form of this version or of a former one.

    Ends beside a band are a public function of what is compared, and versions may know better ones.

    >>> written = b'{"value":7,"band":9,"low":5,"high":12,"ends":"proven","confidence":0.95}'
    >>> is_recorded(b'{"value":7,"band":9,"confidence":0.95}', written)
    True
    """
    if recorded == written or recorded == former(written):
        return True
    return _BESIDE.sub(b"", recorded) == _BESIDE.sub(b"", written)


def read(body: bytes, what: str = "what should be a release") -> Released:
    """Return a release from its bytes; raises `FailClosed` (no release, called `what`) or `UnknownFormat`."""
    return decoded_body(body, Released, VERSION, "release", what)


class KeysUnknown(FailClosed):
    """A release of `series` has values in the order of keys that only its first release names, which was not read."""

    def __init__(self, series: str) -> None:
        super().__init__(f"the first release of {series}, which names its keys, was not read")
        self.series = series


def by_key(part: WindowPart | Released) -> dict[str, _End]:
    """Return the values by key of a release that `named` returned; none where it has others."""
    if isinstance(part.values, tuple):
        raise TypeError("the values of a release have no keys yet")
    return part.values or {}


def named(released: Released, keys: Sequence[str] = ()) -> Released:
    """Return a release with its values by key; where it has them in order, `keys` are those of its series.

    A first release names them itself. Raises `KeysUnknown`, or `FailClosed` where there is not one value for each key.
    """
    if not released.in_order:
        return released
    keys = released.keys or keys
    if not keys:
        raise KeysUnknown(released.series)

    def changed(part: _P, **fields: Any) -> _P:
        if isinstance(part.values, tuple):
            if len(part.values) != len(keys):
                what = f"{released.series} has {len(part.values)} values for {len(keys)} keys"
                raise FailClosed(f"a release of {what}; read it with the keys of its first release")
            fields["values"] = dict(zip(keys, part.values, strict=True))
        return msgspec.structs.replace(part, **fields)

    windows = {name: changed(part) for name, part in (released.windows or {}).items()}
    return changed(released, keys=UNSET, windows=windows or UNSET)


def read_by_key(body: bytes, keys: Sequence[str] = ()) -> Released:
    """Return a release from its bytes, with its values by key; errors as of `read` and `named`."""
    return named(read(body), keys)


class ReleaseReader:
    """Reads the releases of a pipeline, in whatever form they were written, with values by key.

    It knows the keys of the first series of each name in `keys`, and of those whose first release it has read.
    """

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        self._keys = {(name, 1): of for name, of in keys.items()}

    def learn(self, keys: Mapping[tuple[str, int], Sequence[str]]) -> None:
        """Know the keys of further series, by name and version."""
        self._keys.update(keys)

    def read(self, body: bytes) -> Released:
        """Return a release; errors as of `read_by_key`."""
        released = read(body)
        if released.keys is not UNSET:
            self._keys[released.series, released.version] = released.keys
        return named(released, self._keys.get((released.series, released.version), ()))


def read_exactly(body: bytes, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields of a release that was just written; numbers are integers or exact decimals, never floats.

    Values are by key, where they stand in the order of `keys`, too.

    >>> read_exactly(b'{"value":0.10}'), read_exactly(b'{"values":[1,2]}', ("AA", "UA"))
    ({'value': Decimal('0.10')}, {'values': {'AA': 1, 'UA': 2}})
    """
    fields: dict[str, Any] = _EXACT.decode(body.decode())
    for told in (fields, *fields.get("windows", {}).values()):
        if isinstance(told.get("values"), list):
            told["values"] = dict(zip(keys, told["values"], strict=True))
    return fields


def read_head(body: bytes, what: str = "what should be a release") -> Head:
    """Return the first fields of a release; its values are not checked. Errors as of `read`."""
    return decoded_body(body, Head, VERSION, "release", what)


def release_of(body: bytes) -> Release:
    """Return a published body with its number, series and tick; raises `FailClosed` if it is no release of one line."""
    if b"\n" in body or b"\r" in body:
        what = "a published release is more than one line"
        raise FailClosed(f"{what}; bring the releases back as they were")
    head = read_head(body, "a published release")
    return Release(head.sequence, head.series, head.tick, body)
