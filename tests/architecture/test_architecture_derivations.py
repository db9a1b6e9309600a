"""A derivation is for the class that states it: every one of a mechanism looks at the exact class."""

import ast
from collections.abc import Iterator

import pytest
from architecture.test_architecture_source import Syntax, findings, under


def inheritable(tree: ast.Module) -> Iterator[str]:
    """Find derivations that a subclass would inherit, unless they are those of another class, in no protocols."""
    for each in ast.walk(tree):
        if not isinstance(each, ast.ClassDef) or "Protocol" in map(ast.unparse, each.bases):
            continue
        for method in each.body:
            if not isinstance(method, ast.FunctionDef) or method.name != "derivation":
                continue
            decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
            said = ast.unparse(method.body[-1])
            if "of_the_exact_class" not in decorators and not said.endswith(".derivation(self)"):
                yield f"line {method.lineno}: {each.name}.derivation is inherited by subclasses"


def test_no_derivation_is_inherited(syntax: Syntax) -> None:
    assert findings(inheritable, syntax, lambda path: under(path, "mechanisms")) == []


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("class A:\n    def derivation(self):\n        return leaf()", 1),
        ("class A:\n    @cached\n    def derivation(self):\n        return self.b.derivation()", 1),
        ("class A:\n    @of_the_exact_class\n    def derivation(self):\n        return leaf()", 0),
        ("class A(B):\n    def derivation(self):\n        return B.derivation(self)", 0),
        ("class A(Protocol):\n    def derivation(self): ...", 0),
    ],
)
def test_the_rule_can_fail(code: str, number: int) -> None:
    assert len(list(inheritable(ast.parse(code)))) == number
