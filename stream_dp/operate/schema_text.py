"""The JSON Schema of pipeline files, as `stream-dp schema` prints it."""

import json

from stream_dp.pipeline.json_schema import pipeline_schema


def schema_text() -> str:
    """Return the schema of a whole pipeline file as JSON; nothing is read for it."""
    return json.dumps(pipeline_schema(), indent=1)
