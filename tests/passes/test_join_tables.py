"""The pass join-tables: when a table in pieces is looked up as one, and why it stays in pieces elsewhere."""

import pytest

from models import GOLDEN, passes_before
from tpugraph import ops, roles, testing
from tpugraph.analysis.step import JoinedTables
from tpugraph.ir import Graph
from tpugraph.passes.join_tables import JoinTables
from tpugraph.support.errors import InvariantError

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


def test_every_piece_is_read_for_every_id() -> None:
    graph, _ = joined()
    assert not graph.of_type(*ops.PARTITIONS, *ops.DYNAMIC_STITCHES)
    assert {node.name: node.out().shape for node in graph.of_type("GatherV2") if node.name.startswith("rows")} == {
        "rows": (6, 2),
        "rows_1": (6, 2),
    }
    assert said(graph, "looked_up") == ["its table of 2 pieces is looked up as one"]
    assert graph.result(JoinedTables) == JoinedTables({"looked_up": 2}, ("update", "update_1"))


def test_the_rows_of_another_piece_are_numbered_as_such_in_an_update() -> None:
    graph, _ = joined()
    for update in ("update", "update_1"):
        numbers = graph[update].inputs[1].node
        assert numbers.op == "SelectV2"
        assert numbers.inputs[2].node.attr("value") == -1
    assert graph["update"].inputs[1] != graph["update_1"].inputs[1]


def test_a_step_without_pieces_stays_as_it_is() -> None:
    graph, edits = joined(
        ("ParallelDynamicStitch(order, order:1, rows, rows_1) {N: 2, T: float32}", "AddN(rows, rows_1) {N: 2, T: float32}"),
        ("GatherV2(slope, order, zero)", "GatherV2(slope, range, zero)"),
        ("GatherV2(slope, order:1, zero)", "GatherV2(slope, range, zero)"),
    )  # fmt: skip
    assert edits == "+0 -0 ~0"
    assert graph.kept(JoinedTables) is None


COUNTED = """many = Size(numbers) {T: int32, out_type: int32}
    weight = Cast(many) {SrcT: int32, DstT: float32}
    slope = Mul(looked_up, weight) {T: float32}"""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("output_shapes: ([6])", "output_shapes: ([?])")], "the number of ids is not known"),
        ([("update = ScatterSub(", "update = ScatterMul(")], "'update' ResourceScatterMul does not work entry by entry"),
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


def test_shapes_must_be_known() -> None:
    testing.assert_raises_block(testing.run_pass, JoinTables(), testing.parse(TABLE), kind=InvariantError,
                                words=["before join-tables"])  # fmt: skip
