"""The pass evaluation-loop."""

from __future__ import annotations

from evaluating import check

from tpugraph import analysis
from tpugraph.passes.evaluation_loop import EvaluationLoop


def test_golden_step() -> None:
    graph = check(EvaluationLoop(iterations_per_loop=3), "step", num_replicas=2)
    frames = analysis.frames(graph)
    assert frames[graph["add"]] == "tpugraph/outfeed/while"
    assert frames[graph["score"]] == "tpugraph/device/while"
    assert frames[graph["mean/value"]] == ""


def test_golden_predict() -> None:
    graph = check(EvaluationLoop(iterations_per_loop=3), "predict", mode="predict", num_replicas=2)
    assert len(graph.of_type("TensorArrayConcatV3")) == 1
