"""What the adapters want to be told, as a specification says it."""

from typing import TypeVar

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.records import FieldType
from stream_dp.errors import UsageError
from stream_dp.pipeline import endpoints
from stream_dp.pipeline.spec import PipelineSpec

_T = TypeVar("_T")


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


def settings_for(source: endpoints.KafkaSourceSpec) -> KafkaSettings:
    """How to reach the source's brokers."""
    security = source.security
    if security is None:
        return KafkaSettings(source.bootstrap)
    return KafkaSettings(
        source.bootstrap,
        security_protocol=security.protocol,
        sasl_mechanism=security.mechanism or "PLAIN",
        sasl_username=security.username,
        sasl_password_file=security.password_file,
        ssl_cafile=security.ca_file,
    )


def fields_of(spec: PipelineSpec) -> dict[str, FieldType]:
    """The declared fields and their types, as the file readers want them."""
    return {name: FieldType(field.type) for name, field in spec.fields.items()}
