from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from host_values import value_of

from closeness import assert_close
from models import batches, by_hand, check, finish, rows_of, squared_error, tf1, trace, variable
from tpugraph import testing
from tpugraph.analysis.placements import REPLICATE, SUM, Entries, Partial, PerCore, Placement, Shard
from tpugraph.analysis.step import Cut, Outfed, Partitioned
from tpugraph.analysis.values import known_value
from tpugraph.compiler import convert
from tpugraph.ir import Graph
from tpugraph.passes.outfeed import Outfeed
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import ConversionError, ShapeError

CORES, ROWS = 4, 16
FEATURES, TARGETS = rows_of(96, 3)
SGD = tf1.train.GradientDescentOptimizer


def summaries(build: Callable[[], Any], **options: Any) -> dict[str, Any]:
    program = convert(trace(build), num_replicas=CORES, **options)
    seen: list[bytes] = []
    with TPUSession(program) as session:
        session.initialize()
        session.train(1, on_summary=lambda step, summary: seen.append(summary))
    found = tf1.Summary.FromString(seen[0])
    return {v.tag: v.simple_value if v.WhichOneof("value") == "simple_value" else v.histo for v in found.value}


def test_golden_step() -> None:
    graph = check(Outfeed(num_replicas=2), "step", num_replicas=2)
    assert graph.result(Outfed).tensors == {"loss/share": "the loss of the global batch"}


def test_summaries_and_metrics_see_the_batch_of_all_cores() -> None:
    """A TensorArray of the host says 16 rows; a mask that meets its result has 4 on each core until they leave the device."""

    def build() -> None:
        features, targets = batches((FEATURES, TARGETS), ROWS)
        weights = variable("w", (3, 1))
        error = squared_error(features, targets, weights)
        running = tf.scan(tf.add, tf.transpose(features * tf.transpose(weights)))
        tf1.summary.scalar("masked", tf.reduce_sum(running[-1] * tf.cast(targets > 0, tf.float32)))
        tf1.summary.histogram("errors", error)
        tf1.summary.scalar("mean_target", tf.reduce_mean(targets))
        tf1.summary.scalar("summed", tf.reduce_sum(targets) + 2.0 * weights[0, 0])
        tf1.summary.scalar("average", tf1.metrics.mean(error, name="metric_a")[1])
        tf1.summary.scalar(
            "share", tf1.metrics.accuracy(targets > 0, tf.reduce_sum(features, 1) > 0, name="metric_b")[1]
        )
        finish(tf.reduce_mean(error), SGD(0.0))
        tf1.summary.merge_all()

    seen, x, y = summaries(build), FEATURES[:ROWS], TARGETS[:ROWS]
    weights = 0.5 * np.cos(1.7 * np.arange(1, 4) + 1)
    errors = (x @ weights - y) ** 2
    histogram = seen.pop("errors")
    assert histogram.num == ROWS
    assert_close(histogram.sum, errors.sum(), 1e-5)
    expected = {"loss": errors.mean(), "average": errors.mean(), "masked": ((x @ weights) * (y > 0)).sum(), "mean_target": y.mean(),
                "summed": y.sum() + 2 * weights[0], "share": ((y > 0) == (x.sum(1) > 0)).mean()}  # fmt: skip
    assert seen == {tag: pytest.approx(value, rel=1e-5) for tag, value in expected.items()}


def test_what_cannot_leave_the_device() -> None:
    graph = testing.parse("x = Test()")
    testing.assert_raises_block(testing.run_pass, Outfeed(), graph, words=["no node is placed"], max_length=200)
    testing.assert_raises_block(
        outfeed, f"value = Test() {{{DEVICE} : float32[?,2]\nread = Test(value)", kind=ShapeError, max_length=400,
        words=["'value', which 'read' reads on the host, leaves the device with an open shape", "drop what reads it"],
    )  # fmt: skip
    testing.assert_raises_block(
        outfeed, "late = NoOp() ^loss", kind=ConversionError, max_length=400,
        words=["what runs on the host waits for 'loss', which is on the device", "let it wait for nothing of the step"],
    )  # fmt: skip


DEVICE = '_tpu_replicate: "cluster"} @/device:TPU_REPLICATED_CORE:0'
STEP = f"""
    loss = Test() {{{DEVICE} : float32[]
    share = Test() {{{DEVICE} : float32[]
    train = NoOp() ^loss {{{DEVICE}
    seen = VarHandleOp() {{dtype: float32, shape: [], container: "", shared_name: "seen"}} : resource[]
    """


def outfeed(
    text: str,
    *,
    cores: int = 2,
    leaving: Mapping[str, Placement] | None = None,
    tail: tuple[str, ...] = (),
    rows: int | None = 2,
    replica: bool = False,
) -> Graph:
    graph = testing.parse(STEP + text)
    graph.keep(Cut(tail=tail))
    graph.keep(Partitioned(cores=cores, rows=rows, loss_share="share", leaving=leaving or {}))
    testing.run_pass(Outfeed(num_replicas=cores), graph, roles=replace(by_hand(graph), replica=replica))
    return graph


ONE, TWO = np.float32([[1, 5], [3, 4]]), np.float32([[7, 2], [0, 9]])


@pytest.mark.parametrize(
    ("placement", "expected", "how"),
    [
        (Shard(0), np.concatenate([ONE, TWO]), "rows of all cores"),
        (Shard(1), np.concatenate([ONE, TWO], 1), "rows of all cores"),
        (Entries("values"), np.concatenate([ONE, TWO]), "rows of all cores"),
        (SUM, ONE + TWO, "sum over cores"),
        (Partial("max"), np.maximum(ONE, TWO), "largest over cores"),
        (Partial("min"), np.minimum(ONE, TWO), "smallest over cores"),
        (PerCore("a flag"), (ONE + TWO) / 2, "mean over cores"),
        (REPLICATE, ONE, "the same on every core"),
    ],
)
def test_the_host_joins_what_the_cores_hold_as_it_lives_there(
    placement: Placement, expected: np.ndarray, how: str
) -> None:
    graph = outfeed(f"value = Test() {{{DEVICE} : float32[2,2]\nread = Test(value)", leaving={"value": placement})
    losses = [np.zeros(1, "float32")] * 2
    np.testing.assert_array_equal(value_of(graph["read"].inputs[0], [losses, [ONE, TWO]]), expected)
    assert graph.result(Outfed).tensors == {"value": how}
    assert graph.result(Outfed).bytes == 2 * (4 + 16)  # a loss and the value, of both cores


@pytest.mark.parametrize(("reduce_op", "expected"), [("max", [True, True]), ("min", [False, True])])
def test_flags_are_joined_as_any_or_all(reduce_op: str, expected: list[bool]) -> None:
    graph = outfeed(f"flag = Test() {{{DEVICE} : bool[2]\nread = Test(flag)", leaving={"flag": Partial(reduce_op)})
    flags = [np.array([True, True]), np.array([False, True])]
    found = value_of(graph["read"].inputs[0], [[np.zeros(1)] * 2, flags])
    assert found.tolist() == expected


def test_numbers_losses_and_what_one_core_has() -> None:
    graph = outfeed(f"n = Test() {{{DEVICE} : int32[]\nread = Test(n)", leaving={"n": PerCore("a flag")})
    assert graph.result(Outfed).tensors == {"n": "core 0's"}
    found = value_of(graph["read"].inputs[0], [[np.zeros(1)] * 2, [np.int32([5]), np.int32([6])]])
    assert found.tolist() == 5
    graph = outfeed("read = Test(loss)")
    shares = [np.float32([0.25]), np.float32([0.5])]
    assert value_of(graph["read"].inputs[0], [shares, shares]).item() == 0.75
    graph = outfeed(f"v = Test() {{{DEVICE} : float32[2]\nread = Test(v)", cores=1, leaving={"v": Shard(0)})
    assert str(graph["read"].inputs[0]) == "tpugraph/outfeed/dequeue/0:1"


COUNTED = """
    four = Const() {dtype: float32, value: float32[]4.0} : float32[]
    add = AssignAddVariableOp(seen, four) {dtype: float32}
    """


@pytest.mark.parametrize(
    ("options", "cores"),
    [
        ({}, 3),
        ({"rows": 2}, 3),  # two elements of each row
        ({"rows": 3}, 1),  # no multiple of the rows
        ({"rows": 8}, 1),  # less than the rows
        ({"rows": None}, 1),
        ({"tail": ()}, 1),  # it is no part of the step
        ({"replica": False}, 1),  # the plain step counts the rows of all cores itself
    ],
)
def test_a_constant_that_counts_the_rows_of_a_replica_counts_those_of_all(options: dict[str, Any], cores: int) -> None:
    graph = outfeed(COUNTED, **{"cores": 3, "rows": 4, "tail": ("add",), "replica": True, **options})
    added = known_value(graph["add"].inputs[1])
    assert added is not None
    assert added.item() == 4 * cores
