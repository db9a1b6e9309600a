"""The JSON Schema of a pipeline file, as editors of YAML want it: `stream-dp schema`.

It is made of the models, so no key or bound stands here. An editor reads scalars as YAML does, so a number may stand
where a text is meant and the other way round; durations, decimals and groupings say their forms beside their types.
Rules: what the models take, the schema takes, whatever else of the file is wrong. What several keys say together, and
what depends on names of the file, is for `stream-dp plan` alone.
"""

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from stream_dp.pipeline.file.spec import PipelineSpec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFAULTED: Final = "journal"  # follows from the source
_TEXT: Final = {"type": ["string", "number", "boolean"]}
_TRUTHS: Final = {"type": "string", "enum": ["true", "false"]}
_WHOLE: Final = {"type": "string", "pattern": r"^[+-]?\d+$"}


class _AsYaml(GenerateJsonSchema):
    """Models as YAML writes them: every scalar is a text to the reader, and what it looks like to an editor."""

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        """Name the dialect."""
        return {"$schema": DIALECT, **super().generate(schema, mode)}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """A title would repeat the key."""
        return False

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        """A text may look like a number."""
        return {**super().str_schema(schema), **_TEXT}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """A whole number may stand in quotes."""
        return {"anyOf": [super().int_schema(schema), _WHOLE]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        """So may true and false."""
        return {"anyOf": [super().bool_schema(schema), _TRUTHS]}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """What is not there is left out: a key without a value is refused."""
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, *args: Any, **named: Any) -> bool:
        """A model is told by its tag, which has a default for programs only."""
        inner = field["schema"]
        tag = inner["schema"] if inner["type"] == "default" else {"type": ""}
        is_tag = tag["type"] == "literal" and tag["expected"] == [inner.get("default")]
        return is_tag or super().field_is_required(field, *args, **named)


def pipeline_schema() -> dict[str, Any]:
    """Return the schema of a whole pipeline file, in JSON Schema 2020-12."""
    made = PipelineSpec.model_json_schema(schema_generator=_AsYaml)
    made["required"].remove(_DEFAULTED)
    return made
