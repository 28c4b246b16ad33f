"""The pass join-tables: when a table in pieces is looked up as one, and why it stays in pieces elsewhere."""

import pytest

from models import GOLDEN, passes_before
from tpugraph import roles, testing
from tpugraph.analysis.step import JoinedTables
from tpugraph.ir import Graph
from tpugraph.passes.join_tables import JoinTables

TABLE = (GOLDEN / "join-tables" / "two_pieces.txt").read_text(encoding="utf-8").partition("===")[0]
"""A table of four rows in two pieces, six ids, and the update of each piece."""


def joined(*changes: tuple[str, str], more: str = "") -> tuple[Graph, str]:
    """The step with some of its text replaced, behind the pass, and the edits of the pass."""
    text = TABLE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    graph = testing.parse(text + more)
    return graph, str(testing.run_pass(JoinTables(), graph, roles=roles.find, after=passes_before(JoinTables)))


def said(graph: Graph, name: str) -> list[str]:
    return [note.text for note in graph.notes if (note.stage, note.node) == ("join-tables", name)]


COUNTED = """many = Size(numbers) {T: int32, out_type: int32}
    weight = Cast(many) {SrcT: int32, DstT: float32}
    slope = Mul(looked_up, weight) {T: float32}"""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("output_shapes: ([6])", "output_shapes: ([?])")], "the number of ids is not known"),
        ([("update = ScatterSub(", "update = ScatterMul(")], "'update' ResourceScatterMul does not process entries independently"),
        ([("slope = Mul(looked_up, two) {T: float32}", COUNTED)], "'weight' computes with the number of entries"),
    ],
)  # fmt: skip
def test_why_a_table_stays_in_pieces(changes: list[tuple[str, str]], why: str) -> None:
    graph, edits = joined(*changes)
    assert said(graph, "looked_up") == [f"its table stays in pieces: {why}"]
    assert edits == "+0 -0 ~0"
    assert graph.kept(JoinedTables) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "Stitch(order, order:1",
            "Stitch(order:1, order",
        ),  # the rows of one piece would stand at the places of the other
        ("numbers:1, zero) {Taxis", "order:1, zero) {Taxis"),  # looked up by place
        ("DynamicPartition(range, piece)", "DynamicPartition(range, number)"),  # parted in two ways
        ("DynamicPartition(range, piece)", "DynamicPartition(batch, piece)"),  # no places
    ],
)
def test_what_only_looks_like_a_table_in_pieces_stays_as_it_is(old: str, new: str) -> None:
    graph, edits = joined((old, new))
    assert (said(graph, "looked_up"), edits) == ([], "+0 -0 ~0")
