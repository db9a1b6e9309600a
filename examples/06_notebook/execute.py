"""Run the cells of both notebooks from top to bottom, and keep what they show: no Jupyter is needed.

    .venv/bin/python examples/06_notebook/execute.py

starts the demo, runs analyst.ipynb beside it and researcher.ipynb by itself, and writes the outputs into the notebooks.
"""

import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib import pyplot

import stream_dp as sdp

ANALYST = Path(__file__).with_name("analyst.ipynb")
RESEARCHER = ANALYST.with_name("researcher.ipynb")
URL = "http://127.0.0.1:8765"


def executed(notebook: dict[str, Any], url: str = URL) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, which run here; `url` stands for the demo's usual address."""
    pyplot.switch_backend("agg")
    pyplot.close("all")
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            source = "".join(cell["source"]).replace(URL, url)
            outputs = json.loads(json.dumps(_outputs(source, names, count)).replace(url, URL))
            cells.append({**cell, "execution_count": count, "outputs": outputs})
        else:
            cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell; return what it prints, the value of its last expression, and the figures that it draws."""
    tree, shown, printed = ast.parse(source), None, io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - our own notebook
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - as above
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
        )
    if shown is not None:
        result = {"output_type": "execute_result", "execution_count": count, "metadata": {}}
        outputs.append({**result, "data": _data(shown)})
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=80, bbox_inches="tight")
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    pyplot.close("all")
    return outputs


def _data(shown: Any) -> dict[str, Any]:
    data = {"text/plain": [repr(shown)[:300]]}
    if (html := getattr(shown, "_repr_html_", None)) is not None:
        data["text/html"] = html().splitlines(keepends=True)
    return data


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """Run the demo with a state of its own; yield its address, with its guest's token in `guest.token`."""
    ours = [sys.executable, "-m", "stream_dp"]
    start = [*ours, "demo", "--embedded", "--port", "0"]
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        env = {**os.environ, "STREAM_DP_HOME": home}
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": env}
        with subprocess.Popen(start, **piped) as run:  # type: ignore[call-overload]  # noqa: S603 - ours
            line = next(line for line in run.stdout if "#token=" in line)  # others may come before
            link, _, token = line.split()[-1].partition("#token=")
            url = link.rstrip("/")
            try:
                Path("guest.token").write_text(token)
                next(sdp.connect(url).stream())
                yield url
            finally:
                run.terminate()


def keep(path: Path, notebook: dict[str, Any]) -> None:
    """Write a notebook as Jupyter writes it."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    with demo() as url:
        keep(ANALYST, executed(json.loads(ANALYST.read_text(encoding="utf-8")), url))
    keep(RESEARCHER, executed(json.loads(RESEARCHER.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
