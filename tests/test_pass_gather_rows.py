"""The pass gather-rows."""

from __future__ import annotations

from evaluating import check

from tpugraph.passes.gather_rows import GatherRows


def test_golden_step() -> None:
    graph = check(GatherRows(num_replicas=2), "step", num_replicas=2)
    assert not graph.of_type("PlaceholderWithDefault")
    assert len(graph.of_type("OutfeedDequeueTuple")) == 2
    assert graph["tpugraph/rows/pivot"] in graph["add"].controls
