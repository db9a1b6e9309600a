"""The JSON Schema of a pipeline file for YAML editors: `stream-dp schema`.

The schema is made from the models, so this file contains no key or bound. An editor reads scalars as YAML does, so
a number may be written where a text is expected, and the other way round; durations, decimals and groupings state
their forms beside their types.

Rules: the schema accepts everything that the models accept. Only `stream-dp plan` checks conditions between several
keys and conditions on names in the file.
"""

import json
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from stream_dp.pipeline.spec import PipelineSpec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFAULTED: Final = "journal"  # follows from the source
_TEXT: Final = {"type": ["string", "number", "boolean"]}
_TRUTHS: Final = {"type": "string", "enum": ["true", "false"]}
_WHOLE: Final = {"type": "string", "pattern": r"^[+-]?\d+$"}


class _AsYaml(GenerateJsonSchema):
    """Models as YAML writes them: every scalar is a text to the reader, but has a type for an editor."""

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return {"$schema": DIALECT, **super().generate(schema, mode)}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """A title would repeat the key."""
        return False

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        return {**super().str_schema(schema), **_TEXT}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {"anyOf": [super().int_schema(schema), _WHOLE]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return {"anyOf": [super().bool_schema(schema), _TRUTHS]}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Drop null: an optional key is left out, because a key without a value is refused."""
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, *args: Any, **named: Any) -> bool:
        """Require a model's tag, whose default is only for programs."""
        inner = field["schema"]
        tag = inner["schema"] if inner["type"] == "default" else {"type": ""}
        is_tag = tag["type"] == "literal" and tag["expected"] == [inner.get("default")]
        return is_tag or super().field_is_required(field, *args, **named)


def pipeline_schema() -> dict[str, Any]:
    schema = PipelineSpec.model_json_schema(schema_generator=_AsYaml)
    schema["required"].remove(_DEFAULTED)
    return schema


def schema_text() -> str:
    """Return the schema of a whole pipeline file as JSON; nothing is read for it."""
    return json.dumps(pipeline_schema(), indent=1)
