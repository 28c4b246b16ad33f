"""What a flag may say a constant is of the rows: ``--batch_constants=NODE=rows*rows``, where one number can be made in several ways.

A formula has the name ``rows``, numbers, ``+ - * / //`` and parentheses. The constant is computed of the number of rows by it,
and follows them then. A quotient of whole numbers is a whole one: what is left over goes.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.evidence.readings import number_in
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.support.errors import UsageError

_CLOSE = 1e-5
_LONGEST = 64
_ROWS = "rows"
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
"""What operators make of numbers."""

_OPS: dict[type[ast.operator], str] = {
    ast.Add: "AddV2",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "RealDiv",
    ast.FloorDiv: "FloorDiv",
}
"""The ops that compute it."""

_PAIRS: dict[str, Callable[[int], int]] = {
    "rows*(rows-1)": lambda rows: rows * (rows - 1),
    "rows*(rows-1)/2": lambda rows: rows * (rows - 1) // 2,
    "(rows-1)*(rows-1)": lambda rows: (rows - 1) ** 2,
}
"""As many as pairs of different rows are, which grow with the square of the rows."""


def formulas_of(number: float, rows: int) -> list[str]:
    """The ways in which a whole number, or one over one, is made of the rows: of several their square first, then so many times them.

    What is as many as the rows is that; of one row, one is anything.
    """
    if rows == 1 and number == 1:
        return ["rows", "1/rows", "rows*rows"]
    if rows < 2 or not number:
        return []
    if number < 0:
        return [f"-({formula})" for formula in formulas_of(-number, rows)]
    if number < 1:
        over = round(1 / number)
        whole = abs(number * over - 1) < _CLOSE
        return [f"1/({formula})" for formula in formulas_of(over, rows)] if whole else []
    if number == rows:
        return ["rows"]
    if number == 1:
        return ["rows-1", *(formula for formula, made in _PAIRS.items() if made(2) == 1)] if rows == 2 else []
    if number != int(number):
        return []
    found = ["rows*rows"] if number == rows * rows else []
    found += [] if number % rows else [f"{int(number) // rows}*rows"]
    found += ["rows-1"] if number == rows - 1 else []
    return found + [formula for formula, made in _PAIRS.items() if made(rows) == number]


def parted(names: Iterable[str]) -> dict[str, str]:
    """The constants that ``--batch_constants`` names, each with its formula; an empty one where none is given."""
    return {name: formula for name, _, formula in (named.partition("=") for named in names)}


def compute_by_formulas(graph: Graph, rows: int, formulas: dict[str, str]) -> list[str]:
    """Compute constants of the number of rows by their formulas; returns the names of what holds that number.

    Raises:
        UsageError: what is written is no formula, or makes another number of the rows than the constant holds.
    """
    made: list[str] = []
    for name, formula in formulas.items():
        tree, node = _parsed(name, formula), graph[name]
        number, of = number_in(node), _value(tree, rows)
        if not node.out().dtype.floating and _has_fractions(tree):
            raise UsageError(f"'{formula}' has fractions, and '{name}' holds whole numbers",
                             origin=graph.source, fix="write whole numbers and // in the formula")  # fmt: skip
        if number is None or of is None or abs(number - of) > _CLOSE * abs(number):
            wrong = "divides by zero" if of is None else f"is {of:g}"
            held = "several numbers" if number is None else f"{number:g}"
            raise UsageError(
                f"'{name}' is not {formula}: that {wrong} of the {rows} rows of a core's batch, and it holds {held}",
                origin=graph.source, fix="leave the formula out, or correct it",
            )  # fmt: skip
        made.append(_replace(graph, node, tree, rows))
        graph.note(node, f"is {formula} of the rows, as --batch_constants says")
    return made


def _parsed(name: str, formula: str) -> ast.expr:
    try:
        tree = ast.parse(formula, mode="eval").body if len(formula) <= _LONGEST else None
    except SyntaxError:
        tree = None
    if tree is None or not all(map(_is_known, ast.walk(tree))):
        raise UsageError(
            f"'{formula}' is no formula for '{name}'", fix=f"write {_ROWS}, numbers, + - * / // and parentheses"
        )
    return tree


def _is_known(part: ast.AST) -> bool:
    """Whether a formula may have such a part."""
    if isinstance(part, ast.Name):
        return part.id == _ROWS
    if isinstance(part, ast.Constant):
        return type(part.value) in (int, float)
    kinds = (ast.BinOp, ast.UnaryOp, ast.USub, ast.Load, *_OPERATORS)
    return isinstance(part, kinds)


def _has_fractions(tree: ast.expr) -> bool:
    numbers = (part.value for part in ast.walk(tree) if isinstance(part, ast.Constant))
    return not all(float(number).is_integer() for number in numbers)  # type: ignore[arg-type]


def _computed(
    tree: ast.expr, leaf: Callable[[float | None], Any], node: Callable[[type[ast.operator], Any, Any], Any]
) -> Any:
    """What a formula makes: of its leaves, which are numbers or None for the rows, and of two parts by an operator."""
    if isinstance(tree, ast.BinOp):
        return node(type(tree.op), _computed(tree.left, leaf, node), _computed(tree.right, leaf, node))
    if isinstance(tree, ast.UnaryOp):
        return node(ast.Sub, leaf(0), _computed(tree.operand, leaf, node))
    return leaf(float(tree.value) if isinstance(tree, ast.Constant) else None)  # type: ignore[arg-type]


def _value(tree: ast.expr, rows: int) -> float | None:
    try:
        return float(
            _computed(
                tree, lambda number: rows if number is None else number, lambda kind, a, b: _OPERATORS[kind](a, b)
            )
        )
    except ZeroDivisionError:
        return None


def _replace(graph: Graph, node: Node, tree: ast.expr, rows: int) -> str:
    """Let the readers of a constant read what its formula makes; returns the name of the constant that holds the rows."""
    make = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
    kind, shape = node.out().dtype, shape_of_one(node)

    ops_of_kind = _OPS if kind.floating else {**_OPS, ast.Div: _OPS[ast.FloorDiv]}

    def number(value: float, name: str) -> Tensor:
        return make.constant(np.full(shape, value, kind.name), kind, name=name, controls=node.controls)

    of_rows = number(rows, _ROWS)
    made = _computed(
        tree,
        lambda value: of_rows if value is None else number(value, "number"),
        lambda op, a, b: make.add(ops_of_kind[op], [a, b], shape),
    )
    fill(graph, node, made)
    return of_rows.node.name


def shape_of_one(node: Node) -> tuple[int, ...]:
    """The shape of the number that a constant holds: its own, or that of a scalar where it holds the number several times."""
    return constant(node).shape if constant(node).size == 1 else ()


def fill(graph: Graph, node: Node, number: Tensor) -> None:
    """Let the readers of a constant of one number, in as many places as it has, read another number there."""
    shape = constant(node).shape
    uses = list(node.uses())
    if shape != shape_of_one(node):
        make = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
        dims = make.constant(np.asarray(shape, "int32"), name="shape", controls=node.controls)
        number = make.add("Fill", [dims, number], shape, name="filled")
    for use in uses:
        graph.set_input(use.node, use.index, number)
