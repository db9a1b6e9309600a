"""Notebooks of the examples as Markdown, with the outputs that they keep."""

import re
from typing import Any


def page(notebook: dict[str, Any]) -> str:
    """Return the cells in their order, one heading lower than in the notebook."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> list[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [re.sub(r"^#", "##", text, flags=re.MULTILINE)]
    return [f"```python\n{text}\n```", *map(_output, cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"![What the cell above draws](data:image/png;base64,{data['image/png']})"
    if "text/html" in data:
        return "```{raw} html\n" + "".join(data["text/html"]) + "\n```"
    return "```text\n" + "".join(output.get("text") or data["text/plain"]).rstrip() + "\n```"
