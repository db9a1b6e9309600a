"""Messages as the engine takes them: opened, their signatures checked, and their requests read.

Rules: it implements `engine.messages.addressed.MessageReader`. A message is its sender's if it is signed with a
token of the analyst whom it names, or with the operator's, which may act for everyone. Whether a token has expired
is decided by the stamp of the message, never by when it is read. Nothing of a refused message is repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from stream_dp.engine.messages.addressed import Addressed, Wanted
from stream_dp.engine.messages.answer_words import not_accepted
from stream_dp.engine.messages.issued_tokens import IssuedToken
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.journal.answer_body import RefusalKind
from stream_dp.live.analyst_messages import (
    AskMessage,
    CreateMessage,
    HaltMessage,
    ListMessage,
    PreviewMessage,
    UnwatchMessage,
    WatchMessage,
    content_of,
    read_address,
    read_message,
)
from stream_dp.live.envelope import Envelope, is_signed, read_envelope

OPERATOR = ""
_NOT_VALID = (
    "token: has expired or was revoked; ask the operator for another one (`stream-dp token`)"
)
_NOT_READ = "token: the engine cannot read its list of tokens now; tell the operator"
_NOT_HERS = "analyst: the message names another than whose token was shown; name that one, or show the operator's token"


@dataclass(frozen=True, slots=True)
class SignedMessages:
    """The messages to `pipeline`; `token_of` gives the token of an analyst ("": the operator).

    `issued` gives a token that the operator has made, by its id.
    """

    pipeline: str
    token_of: Callable[[str], str]
    issued: Callable[[str], tuple[IssuedToken, str] | None] = lambda _id: None

    def opened(self, value: bytes, stamp: int) -> Addressed:
        """Return the message in the envelope of a record that came at `stamp` (ms since 1970).

        Raises:
            NotAccepted: it cannot be read, or is not signed for the analyst whom it names.
        """
        try:
            envelope = read_envelope(value)
        except UsageError:
            raise not_accepted(RefusalKind.UNREADABLE) from None
        message = self._addressed(envelope.message.encode(), operator=False)
        if envelope.token:
            self._require_issued(envelope, message.analyst, stamp)
            return message
        signers = [
            one
            for one in (OPERATOR, message.analyst)
            if is_signed(self.token_of(one), self.pipeline, envelope)
        ]
        if not signers:
            raise not_accepted(RefusalKind.SIGNATURE)
        return replace(message, operator=OPERATOR in signers)

    def _require_issued(self, envelope: Envelope, analyst: str, stamp: int) -> None:
        """Do nothing if a token of the analyst signed, and was valid when the message came.

        Raises:
            NotAccepted: no such token signed.
        """
        try:
            found = self.issued(envelope.token)
        except (FailClosed, WorldError):
            raise not_accepted(RefusalKind.SIGNATURE, _NOT_READ) from None
        if found is None or found[0].analyst != analyst:
            raise not_accepted(RefusalKind.SIGNATURE)
        if not is_signed(found[1], self.pipeline, envelope):
            raise not_accepted(RefusalKind.SIGNATURE)
        if found[0].state(stamp) != "valid":
            raise not_accepted(RefusalKind.SIGNATURE, _NOT_VALID)

    def said(self, text: bytes, signer: str) -> Addressed:
        """Return the message in `text`; the token of `signer` has been checked.

        Raises:
            NotAccepted: it cannot be read, or names another analyst.
        """
        message = self._addressed(text, operator=signer == OPERATOR)
        if not message.operator and message.analyst != signer:
            raise not_accepted(RefusalKind.SIGNATURE, _NOT_HERS)
        return message

    def wanted(self, message: Addressed) -> Wanted:
        """Return the request of a message.

        Raises:
            UsageError: there is no such request; every problem is named with its key, never with a value.
        """
        match read_message(message.text.decode()):
            case CreateMessage(do=do, series=definition, accept_noise=accept):
                return Wanted(do, definition=definition, accept_noise=accept)
            case PreviewMessage(do=do, series=definition):
                return Wanted(do, definition=definition)
            case HaltMessage(do=do, series=series):
                return Wanted(do, series)
            case ListMessage(do=do):
                return Wanted(do)
            case AskMessage(do=do, series=series, parameters=parameters):
                return Wanted(do, series, parameters=parameters)
            case WatchMessage(do=do, series=series, watch=definition, accept_noise=accept):
                return Wanted(do, series, definition, accept_noise=accept)
            case UnwatchMessage(do=do, series=series, watch=watch):
                return Wanted(do, series, parameters={"watch": watch})

    @staticmethod
    def _addressed(text: bytes, *, operator: bool) -> Addressed:
        try:
            said = read_address(text.decode())
        except (UsageError, UnicodeDecodeError):
            raise not_accepted(RefusalKind.UNREADABLE) from None
        return Addressed(
            said.id, said.analyst, operator, said.until, said.do, text,
            content=content_of(text.decode()),
        )  # fmt: skip
