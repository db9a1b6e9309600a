"""`stream-dp schema`: the JSON Schema of a pipeline file, for editors. Reads nothing."""

import json

import typer

from stream_dp.pipeline.json_schema import pipeline_schema


def schema() -> None:
    """Print the JSON Schema of a pipeline file, with which an editor completes its keys and marks mistakes.

    Keep it beside the file, and name it in the file's first line: # yaml-language-server: $schema=pipeline.schema.json
    """
    typer.echo(json.dumps(pipeline_schema(), indent=1))
