"""Numbers made of a record's numbers, against exact fractions of the decimals that the record holds."""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from stream_dp.core.time import TickGrid
from stream_dp.pipeline.feature_counts import FeatureCounts
from stream_dp.pipeline.layout import Feature, Slot
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records import schema as schemas
from stream_dp.records.amount_units import Amount
from stream_dp.records.conditions import Condition
from stream_dp.records.conditions import tests_of as meaning_of
from stream_dp.records.decoder import ListDecoder
from stream_dp.records.schema import FieldSpec

LARGEST = Fraction(1.7976931348623157e308)
TEXTS = {
    "price * quantity": lambda p, q, r: p * q,
    "price * quantity * (1 - rebate)": lambda p, q, r: p * q * (1 - r),
    "-price + 2.50": lambda p, q, r: -p + Fraction("2.5"),
    "quantity - quantity": lambda p, q, r: q - q,
    "price - rebate - 0.1": lambda p, q, r: p - r - Fraction("0.1"),
    "price * price * price * rebate": lambda p, q, r: p * p * p * r,
    "(price)": lambda p, q, r: p,
}
PRICES = ["0", "-0.0", "0.1", "0.2", "0.3", "1.1", "19.99", "1234.5678", "-3.05", "1e-7", "5e-324", "0.1234567890123",
          "9007199254740993", "123456789012.34", "1e22", "1.7976931348623157e308", "-1e300", "null"]  # fmt: skip
QUANTITIES = ["0", "1", "3", "-7", "9007199254740993", str(2**63 - 1), str(-(2**63)), "null"]
REBATES = ["0", "0.15", "0.07", "1", "1e-300", "null"]


def schema(text: str) -> dict[str, Any]:
    told = {
        "price": {"type": "number", "nullable": "true"},
        "quantity": {"type": "integer", "nullable": "true"},
        "rebate": {"type": "number", "nullable": "true"},
        "made": {"type": "number", "nullable": "true", "from": text},
    }
    return {name: TypeAdapter[Any](FieldSpec).validate_python(each) for name, each in told.items()}


def payload(price: str, quantity: str, rebate: str) -> bytes:
    return (
        f'{{"price": {price}, "quantity": {quantity}, "rebate": {rebate}, "made": "no"}}'.encode()
    )


def decimal(text: str) -> Fraction:
    """The decimal that is nearest to what a record holds as a double, of those that are shortest."""
    return Fraction(repr(float(text)))


def exact(text: str, price: str, quantity: str, rebate: str) -> float | None:
    names = {"price": price, "quantity": quantity, "rebate": rebate}
    if any(names[name] == "null" for name in names if name in text):
        return None
    p, q, r = (Fraction(0) if each == "null" else of(each) for of, each in
               ((decimal, price), (Fraction, quantity), (decimal, rebate)))  # fmt: skip
    return float(max(-LARGEST, min(TEXTS[text](p, q, r), LARGEST)))


def made(text: str, records: Sequence[bytes]) -> list[float | None]:
    fields = schema(text)
    decoder = ListDecoder({"made": fields["made"]}, fields)
    decoded = decoder.decode(records)
    assert not decoded.refused
    return [getattr(record, decoder.attribute("made")) for record in decoded.records]


RECORDS = [(p, q, r) for p in PRICES for q in QUANTITIES for r in REBATES]


def misses(text: str, records: Sequence[tuple[str, str, str]] = RECORDS) -> int:
    wanted = [exact(text, *record) for record in records]
    return sum(
        a != b for a, b in zip(made(text, [payload(*r) for r in records]), wanted, strict=True)
    )


@pytest.mark.parametrize("text", TEXTS)
def test_a_number_is_the_double_nearest_to_the_exact_one(text: str) -> None:
    assert misses(text) == 0


def test_a_product_of_more_decimals_than_doubles_have_places_stops_no_record() -> None:
    """Sixty factors have 360 places together, beyond every power of ten that is a double."""
    many = schemas.formula("*".join("p" * 60) + "+1")
    prices = [0.123456, 1.5, None, 0.0]
    exact = [Fraction(repr(price)) ** 60 + 1 for price in prices if price is not None]
    wanted = [float(exact[0]), float(exact[1]), None, float(exact[2])]
    assert many.of({"p": prices}, len(prices)) == wanted


def of_shops(number: int) -> list[tuple[str, str, str]]:
    draw = Random(1)
    return [
        (f"{draw.randint(-10**7, 10**7) / 100}", str(draw.randint(0, 500)), f"{draw.randint(0, 100) / 100}")
        for _ in range(number)
    ]  # fmt: skip


def test_prices_and_quantities_of_shops() -> None:
    for text in TEXTS:
        assert misses(text, of_shops(2000)) == 0


def test_a_record_alone_makes_its_number() -> None:
    for text in TEXTS:
        together = made(text, [payload(*record) for record in RECORDS])
        assert together == [made(text, [payload(*record)])[0] for record in RECORDS]


# Together they have more places than a power of ten that is a double.
SMALL = [(f"0.0000{a}", "1", f"0.0000{b}") for a in range(11, 99) for b in range(11, 99)]


def test_products_of_small_numbers() -> None:
    assert misses("price * price * price * rebate", SMALL) == 0


def test_the_check_catches_what_is_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:  # doubles are multiplied as they are
        patched.setattr(schemas, "_whole", lambda values: (values, 0, np.isfinite(values)))
        assert misses("price * quantity", of_shops(100)) > 5
    with monkeypatch.context() as patched:  # integers beyond 2^53 are taken for exact
        patched.setattr(schemas, "_MOST", 2.0**99)
        assert misses("price * price * price * rebate", of_shops(100)) > 5
    with monkeypatch.context() as patched:  # powers of ten that are no doubles are taken for exact
        patched.setattr(schemas, "_MOST_PLACES", 99)
        assert misses("price * price * price * rebate", SMALL) > 5


def test_what_reads_a_number_reads_one_that_is_made() -> None:
    """Conditions, sums and null, as if the record had held it."""
    fields = schema("price * quantity")
    plain = fields | {"made": fields["price"]}
    where = tuple(map(Condition.model_validate, [{"field": "made", "at_least": "0.3"}]))
    amount = Amount("made", Fraction(0), Fraction(50), Fraction(1, 100))
    features = [Feature(None, meaning_of(fields, where)), Feature(None, frozenset(), amount)]
    values = [("0.1", "3"), ("0.1", "2"), ("19.99", "2"), ("9", "99"), ("null", "1"), ("-1", "1")]
    records = [payload(price, quantity, "0") for price, quantity in values]
    direct = [
        json.dumps({"made": exact("price * quantity", p, q, "0")}).encode() for p, q in values
    ]

    def rows(schema: Mapping[str, Any], payloads: Sequence[bytes]) -> list[int]:
        decoder = ListDecoder({"made": schema["made"]}, schema)
        slots = [(feature, Slot(at, ("",))) for at, feature in enumerate(features)]
        counts = FeatureCounts(slots, schema, decoder.attribute, TickGrid(0, 1000, 1))
        written = np.zeros((1, 2), np.int64)
        counts.write(written, decoder.decode(payloads), np.array([len(payloads)]), [0])
        return [int(count) for count in written[0]]

    assert rows(fields, records) == rows(plain, direct) == [3, 30 + 20 + 3998 + 5000]


def test_a_record_without_a_source_is_dead_for_it_alone() -> None:
    fields = schema("price * quantity") | {
        "quantity": TypeAdapter[Any](FieldSpec).validate_python({"type": "integer"})
    }
    decoder = ListDecoder({"made": fields["made"]}, fields)
    decoded = decoder.decode([b'{"price": 2, "quantity": 3}', b'{"price": 2, "made": 6}'])
    assert [getattr(record, decoder.attribute("made")) for record in decoded.records] == [6.0]
    assert [(dead.position, dead.field) for dead in decoded.refused] == [(1, "quantity")]


def told(text: str, **schema: Any) -> str:
    number, text_field = {"type": "number"}, {"type": "text"}
    fields: dict[str, Any] = {"price": number, "unit price": number}
    fields |= {"note": number | {"nullable": "true"}, "country": text_field}
    fields["made"] = number | {"from": text} | schema
    data = {
        "version": "1", "name": "x", "schema": fields, "privacy": {"epsilon": "1"},
        "source": {"kind": "kafka", "topic": "x", "bootstrap": "x:1"}, "clock": {"kind": "wall", "step": "1h"},
        "series": [{"name": "a", "statistic": "count", "epsilon": "1"}],
    }  # fmt: skip
    try:
        spec = PipelineSpec.model_validate(data)
    except ValidationError as error:
        return error.errors()[0]["msg"].removeprefix("Value error, ")
    return str(getattr(spec.fields["made"], "from_", ""))


ALLOWED = "a formula has names of fields, decimals, + - * and parentheses, such as price * quantity"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" price*2 ", "price * 2"),
        ('"unit price"*( price-1.50)', '"unit price" * ( price - 1.50 )'),
        ("price / 2", f"'/' at character 7 cannot be read: {ALLOWED}"),
        ("price ** 2", f"'*' at character 8 cannot be read: {ALLOWED}"),
        ("price *", f"ends too early: {ALLOWED}"),
        ("(price", f"ends too early: {ALLOWED}"),
        ("price)", f"')' at character 6 cannot be read: {ALLOWED}"),
        ("price quantity", f"'quantity' at character 7 cannot be read: {ALLOWED}"),
        ("__import__('os')", f"'(' at character 11 cannot be read: {ALLOWED}"),
        ("2 * 3", f"names no field: {ALLOWED}"),
        ("1e400 * price", f"'e400' at character 2 cannot be read: {ALLOWED}"),
        ("", f"ends too early: {ALLOWED}"),
        ("prize * 2", "'prize' is not in the schema"),
        ("country * 2", "'country' is a text, not a number or an integer"),
        ("made * 2", "'made' is made of others itself: name what it is made of"),
        ("note + 1", "'note' may be null, and so may this: it needs `nullable: true`"),
    ],
)
def test_what_a_file_may_say(text: str, says: str) -> None:
    assert told(text) == says


def test_a_place_is_not_where_a_made_number_lies() -> None:
    assert (
        told("price", path="a.b")
        == "is of a number that lies in the record, and this one is made of others: leave it out"
    )
