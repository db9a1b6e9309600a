"""Records that nobody can use, each with the reason code that its dead letter must carry."""

import json
from itertools import cycle, islice
from typing import NamedTuple

GOOD = {"time": "2013-01-01T12:00:00Z", "airline": "UA", "destination": "ATL", "delay": 3}


class Junk(NamedTuple):
    """A payload (None: no value at all), the reason, and the field that is to blame."""

    payload: bytes | None
    reason: str
    field: str | None = None


def _with(**fields: object) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def _without(field: str) -> bytes:
    return json.dumps({name: value for name, value in GOOD.items() if name != field}).encode()


KINDS = (
    Junk(b"{", "not_json"),
    Junk(b"hello", "not_json"),
    Junk(b"\xff\xfe{}", "not_json"),
    Junk(_with().replace(b'"UA"', b'"U\xff"'), "not_json"),
    Junk(b"[" * 100_000, "not_json"),
    Junk(b'{"x":' + b"[" * 100_000, "not_json"),
    Junk(b'{"time":"' + b"9" * 300_000, "not_json"),
    Junk(_with() + b"}", "not_json"),
    Junk(b"null", "wrong_type"),
    Junk(b"[]", "wrong_type"),
    Junk(b"17", "wrong_type"),
    Junk(_without("time"), "missing_field", "time"),
    Junk(_without("airline"), "missing_field", "airline"),
    Junk(_without("destination"), "missing_field", "destination"),
    Junk(_with(time=17), "wrong_type", "time"),
    Junk(_with(time=None), "wrong_type", "time"),
    Junk(_with(time="yesterday"), "wrong_type", "time"),
    Junk(_with(time="2013-01-01T12:00:00"), "wrong_type", "time"),
    Junk(_with(airline=17), "wrong_type", "airline"),
    Junk(_with(destination=["ATL"]), "wrong_type", "destination"),
    Junk(_with(delay="60"), "wrong_type", "delay"),
    Junk(_with(delay=60.5), "wrong_type", "delay"),
    Junk(_with(delay=10**30), "wrong_type", "delay"),
    Junk(_with(time="2012-12-31T23:59:59Z"), "time_out_of_range", "time"),
    Junk(_with(time="9999-01-01T00:00:00Z"), "time_out_of_range", "time"),
    Junk(_with(time="0001-01-01T00:00:00Z"), "time_out_of_range", "time"),
)


def thousand(*more: Junk) -> list[Junk]:
    return list(islice(cycle([*KINDS, *more]), 1000))
