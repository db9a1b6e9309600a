"""What the bodies of releases and of answers share: one line of JSON that says the version of its form.

Rules: an unknown form is refused as unknown, whatever else the body holds; a body that no form explains is damaged.
The bytes are public once they are durable and may be private until then, so nothing of a body shows in a repr. This
file knows no field but the version; `release.py` and `answer_body.py` read through it, and nothing else does.
"""

from typing import Any, TypeVar

import msgspec

from stream_dp.errors import FailClosed, UnknownFormat


class Concealed(msgspec.Struct, frozen=True):
    """Shows nothing of its content, wherever it is printed."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class PublicBody(Concealed, frozen=True, kw_only=True):
    """The first field of every body, in every form."""

    v: int


_B = TypeVar("_B", bound=PublicBody)


def decoded_body(body: bytes, form: type[_B], version: int, kind: str, what: str) -> _B:
    """Return a body of this `form`, the `version` of bodies of this `kind`; `what` names it in errors.

    Raises `FailClosed` if it is no such body, `UnknownFormat` if its form is not the one that this version reads.
    """
    try:
        read = msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError):
        _refuse_other_forms(body, version, kind, what)
        raise FailClosed(f"{what} is no {kind}; bring it back as it was") from None
    if read.v != version:
        _refuse_other_forms(body, version, kind, what)
    return read


def _refuse_other_forms(body: bytes, version: int, kind: str, what: str) -> None:
    try:
        form = msgspec.json.decode(body, type=PublicBody).v
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if form != version:
        raise UnknownFormat(what, f"form {form} of {kind}s", f"form {version}")
