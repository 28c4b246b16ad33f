"""Facts about op types stand in their records: nowhere else does a comparison with ``node.op`` name op types."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
APART = {"ops", "passes", "compat"}  # the records; a link to passes/; what compares with the op types of a program


def named(text: str) -> list[int]:
    """The lines of a module that compare an op type with op types that the module names itself."""
    module = ast.parse(text)
    constants = {
        target.id
        for statement in module.body
        if isinstance(statement, ast.Assign) and _has_name(statement.value)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return [
        test.lineno
        for test in ast.walk(module)
        if isinstance(test, ast.Compare)
        and any(isinstance(part, ast.Attribute) and part.attr == "op" for part in [test.left, *test.comparators])
        and any(_has_name(part) or _reads(part, constants) for part in [test.left, *test.comparators])
    ]


def _has_name(expression: ast.expr) -> bool:
    texts = (part.value for part in ast.walk(expression) if isinstance(part, ast.Constant))
    return any(isinstance(text, str) and text[:1].isupper() for text in texts)


def _reads(expression: ast.expr, constants: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in constants for part in ast.walk(expression))


def test_no_comparison_names_op_types() -> None:
    files = [*(ROOT / "passes").rglob("*.py"), *(ROOT / "tpugraph").rglob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in files
        if path.relative_to(ROOT).parts[1] not in APART and (lines := named(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_names_are_told_from_questions_to_the_records() -> None:
    source = """
_SET = frozenset({"Add"}) | ops.SLICES
_ASKED = ops.SLICES
def f(node):
    asked = node.op in _SET or node.op in _ASKED or node.op not in ops.MERGE
    return node.op == "Mul" or node.name == "x" or asked
"""
    assert named(source) == [5, 6]
