"""Fields that suggest a person by their names alone: only a hint.

Rules: no record is read. A field that is not found may still identify a person, and a field that is found may not.
"""

import re
from collections.abc import Iterable

_PARTS = (
    "user", "person", "people", "customer", "patient", "member", "email", "account", "client", "employee", "student",
    "passenger", "driver", "subscriber", "visitor", "guest", "citizen", "household", "device", "phone", "msisdn",
    "cookie", "fingerprint", "passport",
)  # fmt: skip
_WORDS = {
    "ip",
    "mac",
    "ssn",
    "imei",
    "imsi",
    "uid",
    "iban",
    "card",
    "login",
    "owner",
    "buyer",
    "rider",
    "voter",
}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def looks_like_people(names: Iterable[str]) -> list[str]:
    """Return the field names that suggest a person, or something that belongs to one person.

    >>> looks_like_people(["customerId", "client_ip", "zip", "trip", "userName", "IP"])
    ['customerId', 'client_ip', 'userName', 'IP']
    """
    return [name for name in names if _looks(name)]


def _looks(name: str) -> bool:
    words = {word.lower() for word in _WORD.findall(name)}
    return bool(words & _WORDS) or any(part in name.lower() for part in _PARTS)
