"""Where the code asks what op a node is: facts about op types belong into the records of tpugraph/ops.

    python tools/op_tests.py            prints the modules outside of tpugraph/ops that test ``node.op``, with names first
    python tools/op_tests.py --check    exit code 1 where there are more of them than there were

A test against a set of ``tpugraph.ops`` asks a record. A test against a name, or a set of names that the module keeps, states a
fact beside the records: there are none. Tables of names that a module keeps for something else (a rule for each op, what an
op is rewritten to) are counted, too, and are to become fewer.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpugraph.ops import records

MOST_TESTING = 178
"""How many modules test ``node.op`` at most, whatever against; lower it when there are fewer."""

MOST_NAMING = 0
"""How many of them name op types in such a test."""

MOST_TABLES = 37
"""How many lines there are on which a module keeps op types in a set, a list or as the keys of a table."""

_FOLDERS = ("tpugraph", "passes")


@dataclass(frozen=True)
class Tested:
    """The tests of ``node.op`` in one module: the lines of all, and of those that name op types."""

    path: str
    lines: tuple[int, ...]
    naming: tuple[int, ...]


def tested(root: Path) -> list[Tested]:
    """The modules that test ``node.op``, those with most names first."""
    found = []
    for place, module in _modules(root):
        named = _sets_of_names(module)
        tests = [test for test in ast.walk(module) if isinstance(test, ast.Compare | ast.Match) and _asks_op(test)]
        naming = [test for test in tests if _names(test, named)]
        if tests:
            found.append(Tested(place, _lines(tests), _lines(naming)))
    return sorted(found, key=lambda one: (-len(one.naming), one.path))


def tables(root: Path) -> list[tuple[str, int]]:
    """The lines, each with its module, on which op types that have a record stand in a set, a list or as keys."""
    return sorted({
        (place, item.lineno)
        for place, module in _modules(root)
        for table in ast.walk(module)
        for item in _items(table)
        if isinstance(item, ast.Constant) and item.value in records()
    })  # fmt: skip


def _items(table: ast.AST) -> Sequence[ast.expr | None]:
    if isinstance(table, ast.Dict):
        return table.keys
    return table.elts if isinstance(table, ast.Set | ast.Tuple | ast.List) else ()


def _modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """The modules that are to ask the records, each with its path."""
    for path in sorted(path for folder in _FOLDERS for path in (root / folder).rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[:2] not in (("tpugraph", "ops"), ("tpugraph", "passes"), ("tpugraph", "compat")):
            yield str(place), ast.parse(path.read_text(encoding="utf-8"), str(path))


def _lines(tests: list[ast.Compare | ast.Match]) -> tuple[int, ...]:
    return tuple(sorted(test.lineno for test in tests))


def _operands(test: ast.Compare | ast.Match) -> list[ast.AST]:
    if isinstance(test, ast.Match):
        return [test.subject, *test.cases]
    return [test.left, *test.comparators]


def _asks_op(test: ast.Compare | ast.Match) -> bool:
    return any(isinstance(operand, ast.Attribute) and operand.attr == "op" for operand in _operands(test))


def _sets_of_names(module: ast.Module) -> set[str]:
    """The constants of a module that hold names."""
    found = set()
    for statement in module.body:
        if (
            isinstance(statement, ast.Assign | ast.AnnAssign)
            and statement.value is not None
            and _holds_text(statement.value)
        ):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _holds_text(expression: ast.AST) -> bool:
    """Whether an expression has an op type, or a part of one, written out: these begin with a capital letter."""
    texts = (part.value for part in ast.walk(expression) if isinstance(part, ast.Constant))
    return any(isinstance(text, str) and text[:1].isupper() for text in texts)


def _names(test: ast.Compare | ast.Match, named: set[str]) -> bool:
    return any(
        _holds_text(operand) or any(isinstance(part, ast.Name) and part.id in named for part in ast.walk(operand))
        for operand in _operands(test)
    )


def faults(found: list[Tested], kept: Sequence[tuple[str, int]] = ()) -> list[str]:
    """What there is more of than there was."""
    naming = [one for one in found if one.naming]
    counts = (
        (len(found), MOST_TESTING, "modules test node.op"),
        (len(naming), MOST_NAMING, "modules name op types in a test"),
        (len(kept), MOST_TABLES, "lines keep op types in tables"),
    )
    return [f"{count} {what}, and {most} at most did: ask a record" for count, most, what in counts if count > most]


def main(arguments: list[str]) -> int:
    """Print or check the modules; returns the exit code."""
    root = Path(__file__).parents[1]
    found, kept = tested(root), tables(root)
    if arguments == ["--check"]:
        print("\n".join(faults(found, kept)), end="")
        return bool(faults(found, kept))
    for one in found:
        print(f"{len(one.naming):4} of {len(one.lines):3}  {one.path}")
    print(*(f"names kept at  {place}:{line}" for place, line in kept), sep="\n")
    naming = [one for one in found if one.naming]
    print(
        f"{len(found)} modules test node.op, {len(naming)} of them name op types, in {sum(len(o.naming) for o in naming)} tests"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
