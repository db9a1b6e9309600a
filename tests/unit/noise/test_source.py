"""The source of the noise package: no float, no rounding division, no other randomness."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import stream_dp.noise

FILES = sorted(Path(str(stream_dp.noise.__file__)).parent.glob("*.py"))
NAMES = {"float", "complex", "float64", "float32", "true_divide", "round", "as_integer_ratio"}
IMPORTS = {
    "array", "bisect", "collections", "cryptography", "dataclasses", "fractions", "functools",
    "numpy", "os", "struct", "typing",
}  # fmt: skip
OWN = ("stream_dp.errors", "stream_dp.noise")


def offences(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=float() | complex()):
                yield f"float literal, line {node.lineno}"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield f"true division, line {node.lineno}"
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in NAMES | {"random"}:
                yield f"{name}, line {node.lineno}"
            case ast.Import(names=names):
                yield from (alias.name for alias in names if not allowed(alias.name))
            case ast.ImportFrom(module=str(module)) if not allowed(module):
                yield module


def allowed(module: str) -> bool:
    return module.startswith(OWN) or module.split(".")[0] in IMPORTS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_exact_arithmetic(path: Path) -> None:
    assert list(offences(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    ["x = 0.5", "y = a / b", "y /= b", "float(x)", "np.random", "import random", "import asyncio",
     "from stream_dp.mechanisms import x", "x.astype(np.float64)", "from math import exp"],
)  # fmt: skip
def test_the_check_can_fail(code: str) -> None:
    assert list(offences(ast.parse(code)))


def test_all_files_were_looked_at() -> None:
    assert len(FILES) >= 3
