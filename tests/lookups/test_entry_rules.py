"""What writes of rows may be given when a list names a row several times."""

import pytest

from tpugraph import testing
from tpugraph.analysis import shapes
from tpugraph.ir import Tensor
from tpugraph.lookups.entries import Entries, Refused, follow

CLIPPED = """
table = VariableV2() {container: "", dtype: float32, shape: [4,2], shared_name: ""}
ids = Placeholder() {dtype: int32, shape: [?]}
other = Placeholder() {dtype: int32, shape: [?]}
weights = Placeholder() {dtype: float32, shape: [?,2]}
axis = Const() {dtype: int32, value: int32[]0}
most = Const() {dtype: float32, value: float32[]0.5}
rows = GatherV2(table, ids, axis) {Taxis: int32, Tindices: int32, Tparams: float32, batch_dims: 0}
clipped = Minimum(rows, most) {T: float32}
written = ScatterUpdate(table, ids, clipped) {T: float32, Tindices: int32, use_locking: true}
"""


def followed(*changes: tuple[str, str], role: str = "values") -> list[str | None]:
    text = CLIPPED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    graph = testing.parse(text)
    shapes.infer(graph)
    ids: Tensor = graph["ids"].out()
    return list(follow(graph["written"], {1: Entries("values", (ids.node,)), 2: Entries(role, (ids.node,))}))  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["ScatterUpdate", "ScatterMin"])
def test_rows_that_follow_from_their_numbers_are_written_as_often_as_these_are_named(op: str) -> None:
    assert followed(("ScatterUpdate", op)) == []


@pytest.mark.parametrize(
    "change",
    [
        ("ScatterUpdate", "ScatterMul"),  # a row named twice would be multiplied twice
        ("Minimum(rows, most)", "Mul(rows, weights)"),  # of two entries with one number, which weight?
        ("GatherV2(table, ids", "GatherV2(table, other"),
        ("clipped = Minimum(rows", "turned = Transpose(rows, ids) {T: float32, Tperm: int32}\nclipped = Minimum(turned"),
    ],
)  # fmt: skip
def test_other_writes_of_listed_rows_are_refused(change: tuple[str, str]) -> None:
    with pytest.raises(Refused, match=r"Scatter\w+ does not process entries independently"):
        followed(change)


def test_gradients_are_not_assigned() -> None:
    with pytest.raises(Refused):
        followed(role="gradients")
