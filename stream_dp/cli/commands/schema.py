"""`stream-dp schema`: the JSON Schema of a pipeline file, for editors. Reads nothing."""

import typer

from stream_dp.operate.schema_text import schema_text


def schema() -> None:
    """Print the JSON Schema of a pipeline file. With it, an editor completes keys and marks mistakes.

    Keep it beside the file, and name it in the file's first line: # yaml-language-server: $schema=pipeline.schema.json
    """
    typer.echo(schema_text())
