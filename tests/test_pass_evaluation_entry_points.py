"""The pass evaluation-entry-points."""

from __future__ import annotations

from evaluating import check

from tpugraph.passes.evaluation_entry_points import EvaluationEntryPoints
from tpugraph.tpu.invariants import ENTRY_POINTS_OF


def test_golden_step() -> None:
    graph = check(EvaluationEntryPoints(), "step", num_replicas=2, iterations_per_loop=3)
    assert all(name in graph for name in ENTRY_POINTS_OF["eval"])
    assert graph["tpugraph/metrics/mean"].attr("_tpugraph_name") == "mean"
    controls = graph["tpugraph/init_metrics"].controls
    assert [node.name for node in controls] == ["total/Assign", "seen/Assign"]
