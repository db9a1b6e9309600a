"""What the adapters want to be told, as a specification and the environment say it.

Rules: a flag counts before STREAM_DP_KAFKA_*, those before the pipeline file. STREAM_DP_KAFKA_BOOTSTRAP is
`source.bootstrap`, any other is the key of its name in `source.security`; paths there start at the working folder.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stream_dp.core.near_names import near_names
from stream_dp.errors import UsageError
from stream_dp.files.records import FieldType, Separated
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.security import KafkaSecurity
from stream_dp.pipeline.file.problems import Written, message, suggestion
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.file.yaml import load
from stream_dp.records import endpoints
from stream_dp.records.schema import ListField
from stream_dp.records.security import Security

_T = TypeVar("_T")
_VARIABLE = "STREAM_DP_KAFKA_"


def settled(part: object, kind: type[_T]) -> _T:
    """Return a part of a specification that the specification's own checks have settled to be of this kind.

    Raises:
        UsageError: it is not, so the specification was not checked.
    """
    if not isinstance(part, kind):
        raise UsageError(
            f"this pipeline needs a {kind.__name__} here, its file says {type(part).__name__}; check it with "
            "`stream-dp plan`"
        )
    return part


def settings_for(source: endpoints.KafkaSourceSpec, bootstrap: str = "") -> KafkaSettings:
    """How to reach the source's brokers; a flag's `bootstrap` counts before the environment's and the source's.

    Raises:
        UsageError: the environment says what cannot be; every problem names its variable.
    """
    said = {} if source.security is None else source.security.model_dump(exclude_none=True)
    return _settings(bootstrap, source.bootstrap, said)


def settings_at(bootstrap: str, pipeline: Path | None) -> KafkaSettings:
    """How to reach the brokers at a flag's `bootstrap`, or those of a pipeline file, or those of the environment.

    Raises:
        UsageError: nothing names them, or the file is broken or reads no topic.
    """
    if pipeline is None:
        return _settings(bootstrap, "", {})
    return settings_for(settled(load(pipeline).source, endpoints.KafkaSourceSpec), bootstrap)


def _settings(flag: str, declared: str, said: Mapping[str, Any]) -> KafkaSettings:
    found = _from_environment()
    named = found.pop("bootstrap", "")
    variable, address = f"{_VARIABLE}BOOTSTRAP", flag or named or declared
    if not address:
        raise UsageError(f"where is Kafka? Name it with --bootstrap, --pipeline or {variable}")
    try:
        endpoints.addresses(address)
    except ValueError as error:
        raise UsageError(f"{'--bootstrap' if flag else variable}: {error}") from None
    return KafkaSettings(address, KafkaSecurity(**_secured(said, found)))


def _from_environment() -> dict[str, str]:
    """What the environment says, by key.

    Raises:
        UsageError: a variable that names no key.
    """
    found = {
        name.removeprefix(_VARIABLE).lower(): value
        for name, value in os.environ.items()
        if name.startswith(_VARIABLE) and value
    }
    known = ("bootstrap", *Security.model_fields)
    if unknown := sorted(set(found) - set(known)):
        names = ", ".join(f"{_VARIABLE}{key.upper()}" for key in known)
        near = near_names(unknown[0], known)
        there = f"did you mean {_VARIABLE}{near[0].upper()}?" if near else f"known are {names}"
        raise UsageError(f"{_VARIABLE}{unknown[0].upper()} is not known; {there}")
    return found


def _secured(said: Mapping[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
    """The keys of `security`: those of the environment before those of the file."""
    both = {**said, **found}
    if not both:
        return {}
    try:
        return Security.model_validate({"protocol": "PLAINTEXT", **both}).model_dump()
    except ValidationError as error:
        lines = [
            f"{_named(str(one['loc'][0]), found)}: {message(one)}{_meant(one, both)}"
            for one in error.errors(include_url=False, include_input=False)
        ]
        raise UsageError("\n".join(lines)) from None


def _meant(error: ErrorDetails, said: Mapping[str, Any]) -> str:
    return suggestion(error, Written(str(said.get(str(error["loc"][0]), ""))))


def _named(key: str, found: Mapping[str, str]) -> str:
    return f"{_VARIABLE}{key.upper()}" if key in found else f"source.security.{key}"


def patience_of(spec: PipelineSpec) -> float:
    """For how many seconds a run rides out an outage; 0 where nothing can be out for a while."""
    source = spec.source
    return source.patience / 1000 if isinstance(source, endpoints.KafkaSourceSpec) else 0


def fields_of(spec: PipelineSpec) -> dict[str, FieldType | Separated]:
    """The declared fields and their types, as the file readers want them."""
    return {
        name: Separated(field.separator)
        if isinstance(field, ListField) and field.separator is not None
        else FieldType(field.type)
        for name, field in spec.fields.items()
    }
