"""Facts about op types stand in their records: elsewhere, tests of node.op that name op types become no more."""

from __future__ import annotations

from pathlib import Path

import op_tests

ROOT = Path(__file__).parents[1]


def test_no_more_modules_test_what_op_a_node_is() -> None:
    assert op_tests.faults(op_tests.tested(ROOT), op_tests.tables(ROOT)) == []


def test_tables_of_op_types_are_found(tmp_path: Path) -> None:
    source = '_RULES = {"Add": 1, "x": 2, **{"y": "Mul"}}\n_KEPT = (["Sub"], {"Mul", "Sub"})\n'
    (tmp_path / "passes").mkdir()
    (tmp_path / "passes" / "a.py").write_text(source, encoding="utf-8")
    found = op_tests.tables(tmp_path)
    assert found == [("passes/a.py", 1), ("passes/a.py", 2)]
    assert op_tests.faults([], [*found, *[("passes/b.py", line) for line in range(op_tests.MOST_TABLES)]]) == [
        f"{op_tests.MOST_TABLES + 2} lines keep op types in tables, and {op_tests.MOST_TABLES} at most did: ask a record"
    ]


def test_names_in_a_test_are_told_from_questions_to_the_records(tmp_path: Path) -> None:
    source = """
_SET = frozenset({"Add"}) | ops.SLICES
_ASKED = ops.SLICES
def f(node):
    asked = node.op in _SET or node.op in _ASKED or node.op not in ops.MERGE or kinds["x"].op in _ASKED
    return node.op == "Mul" or node.name == "x" or asked
"""
    for place in ("tpugraph/a.py", "tpugraph/ops/b.py"):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    assert op_tests.tested(tmp_path) == [op_tests.Tested("tpugraph/a.py", (5, 5, 5, 5, 6), (5, 6))]


def test_more_of_them_is_a_fault() -> None:
    many = [op_tests.Tested(f"{n}.py", (1,), (1,)) for n in range(op_tests.MOST_NAMING + 1)]
    assert op_tests.faults(many) == [
        f"{len(many)} modules name op types in a test, and {op_tests.MOST_NAMING} at most did: ask a record"
    ]
