"""How clients and brokers know each other: `source.security` of a pipeline file.

Rules: a secret is named by the file that holds it, never written here. Every problem names its own key. `token` names
code that is imported, so whoever writes the pipeline file is trusted with what the engine may do. This file opens
nothing.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator
from pydantic_core import InitErrorDetails

from stream_dp.records.scalars import HOOK, Frozen, LocalPath, problem, refuse

Protocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_PASSWORD, _TOKEN = ("username", "password_file"), ("token_file", "token")
_LOGIN = ("mechanism", *_PASSWORD, *_TOKEN)
_CERTIFICATE = ("key_file", "key_password_file")
_TLS = ("ca_file", "certificate_file", *_CERTIFICATE)


class Security(Frozen):
    """How to speak to the brokers: TLS, the client's certificate, its login; secrets stay in files of their own."""

    protocol: Protocol
    mechanism: Mechanism | None = None
    username: Annotated[str, Field(min_length=1)] | None = None
    password_file: LocalPath | None = None
    token_file: LocalPath | None = None
    token: Annotated[str, Field(pattern=HOOK)] | None = None
    ca_file: LocalPath | None = None
    certificate_file: LocalPath | None = None
    key_file: LocalPath | None = None
    key_password_file: LocalPath | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Security":
        problems = self._login() if self.protocol.startswith("SASL") else self._none(_LOGIN)
        problems += [] if self.protocol.endswith("SSL") else self._none(_TLS)
        if self.certificate_file is None:
            named = [key for key in _CERTIFICATE if getattr(self, key) is not None]
            problems += [problem((key,), "needs a certificate_file beside it") for key in named]
        refuse(problems)
        return self

    def _none(self, keys: tuple[str, ...]) -> list[InitErrorDetails]:
        """A problem for each of these keys that is there: this protocol has no use for it."""
        there = [key for key in keys if getattr(self, key) is not None]
        return [problem((key,), f"does not go with protocol {self.protocol}") for key in there]

    def _login(self) -> list[InitErrorDetails]:
        if self.mechanism is None:
            return [problem(("mechanism",), f"is missing: protocol {self.protocol} needs one")]
        by_token = self.mechanism == "OAUTHBEARER"
        wanted, other = (_TOKEN, _PASSWORD) if by_token else (_PASSWORD, _TOKEN)
        strange = [key for key in other if getattr(self, key) is not None]
        what = f"does not go with mechanism {self.mechanism}"
        problems = [problem((key,), what) for key in strange]
        missing = [key for key in wanted if getattr(self, key) is None]
        if not by_token:
            what = f"is missing: mechanism {self.mechanism} needs one"
            return problems + [problem((key,), what) for key in missing]
        if len(missing) != 1:
            what = "mechanism OAUTHBEARER needs either token_file or token"
            problems.append(problem(("token_file",), what))
        return problems
