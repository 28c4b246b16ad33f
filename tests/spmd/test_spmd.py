"""The rules of the partition: how the values of small graphs live on the cores, and what their readers want."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from models import tf1, trace
from tpugraph import ops, testing
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.batched_input import commonest
from tpugraph.analysis.placements import Entries, Held, Partial, Placement, Replicate, Shard, Share
from tpugraph.ir import Graph
from tpugraph.passes.static_shapes import StaticShapes
from tpugraph.spmd.analysis import analyse, refuse_uneven
from tpugraph.spmd.demands import Demands
from tpugraph.support.errors import ShapeError

CORES = 2
Build = Callable[..., Any]


def solved(build: Build, **policies: str) -> tuple[Graph, Demands]:
    """The solved placements of what is made of x [8, 6], of which each core has its own rows, and of w [6, 3] that all have."""

    def made() -> None:
        x, w = (tf1.placeholder(tf.float32, shape, name) for name, shape in (("x", [8, 6]), ("w", [6, 3])))
        for number, result in enumerate(tf.nest.flatten(build(x, w))):
            tf.identity(result, f"end{number or ''}")

    graph = trace(made)
    testing.run_pass(StaticShapes(), graph)
    for node in graph:
        if node.op != "Placeholder":
            graph.set_attr(node, CLUSTER_ATTR, CLUSTER)
    seeds = {graph["x"].out(): Shard(0), graph["w"].out(): Replicate()}
    return graph, analyse(graph, CORES, seeds=seeds, policies=policies)


def brief(placement: Placement | None) -> str:
    match placement:
        case Replicate():
            return "all"
        case Shard(axis, outer):
            return f"rows{axis}" if outer == 1 else f"{outer} x rows{axis}"
        case Partial(reduce_op):
            return reduce_op
        case Entries(role):
            return {"values": "ragged", "local": "places", "shape": "count"}[role]
        case Held():
            return "held"
        case Share():
            return "share"
    return str(placement)


def found(build: Build, **policies: str) -> str:
    """How the result lives, and in front of an arrow what nodes want of operands that live otherwise, in order."""
    graph, demands = solved(build, **policies)
    placing = demands.placing
    wants = [
        f"{node.op} {index}:{brief(want)}"
        for node, verdict in placing.verdicts.items()
        for index, want in sorted(verdict.wants.items())
        if node.op not in ops.IDENTITIES and not (node.inputs[index] in placing.reduced and want == Replicate())
    ]
    reduced = [f"reduce {tensor.node.op} {list(tensor.shape or ())}" for tensor in placing.reduced]
    return " > ".join([*reduced, *wants, brief(placing.made(graph["end"].inputs[0]))])


def counted(x: tf.Tensor) -> tf.Tensor:
    """As many features of each row as data say."""
    return x[:, : tf.cast(tf.reduce_max(x), tf.int32)]


def recurrent(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """The last state of a loop over the features of each row, whose gradient loop adds up that of w."""
    return tf.scan(lambda last, step: tf.tanh((last + step[:, None]) @ w[:3]), tf.transpose(x), tf.zeros([8, 3]))[-1]


LOOPS: dict[str, tuple[Build, str]] = {  # and branches
    "steps": (lambda x, w: tf.scan(lambda last, step: last * step, tf.transpose(x)), "rows1"),
    "gradient through steps": (
        lambda x, w: tf.gradients(recurrent(x, w), w)[0],
        "Merge 0:rows0 > Merge 0:rows0 > TensorArrayScatterV3 2:rows1 > sum",
    ),
    "sum in a loop": (
        lambda x, w: tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + tf.reduce_sum(x)), (0, 0.0))[1],
        "sum",
    ),
    "row after row": (lambda x, w: tf.map_fn(lambda row: row * 2.0, x), "TensorArrayScatterV3 2:all > all"),
    "a branch": (lambda x, w: tf1.cond(w[0, 0] > 0, lambda: x * 2.0, lambda: tf.zeros([8, 6])), "Merge 0:rows0 > rows0"),
}  # fmt: skip
CASES: dict[str, tuple[Build, str]] = {
    # reshapes
    "flat": (lambda x, w: tf.reshape(x, [-1]), "rows0"),
    "rows taken apart": (lambda x, w: tf.reshape(x, [4, 2, 6]), "rows0"),
    "flat behind a transpose": (lambda x, w: tf.reshape(tf.transpose(x), [48]), "6 x rows0"),
    "outer batches merged": (lambda x, w: tf.reshape(tf.transpose(x), [3, 16]), "2 x rows1"),
    "outer batches and back": (lambda x, w: tf.transpose(tf.reshape(tf.reshape(tf.transpose(x), [-1]), [6, 8])), "rows0"),
    "rows torn apart": (lambda x, w: tf.reshape(x, [3, 16]), "Reshape 0:all > all"),
    # whole batches one behind the other
    "concat": (lambda x, w: tf.concat([x, x, x], 0), "3 x rows0"),
    "concat along features": (lambda x, w: tf.concat([x, x], 1), "rows0"),
    "concat with zeros": (lambda x, w: tf.concat([x, tf.zeros([16, 6])], 0), "ConcatV2 1:2 x rows0 > 3 x rows0"),
    "concat with other rows": (lambda x, w: tf.concat([x, w[:, :1] * tf.ones([1, 6])], 0), "ConcatV2 0:all > all"),
    "split": (lambda x, w: tf.split(tf.concat([x, 2 * x], 0), 2), "rows0"),
    "split of rows": (lambda x, w: tf.split(x, 2), "Split 1:all > all"),
    "split along features": (lambda x, w: tf.split(x, [2, 4], 1), "rows0"),
    "tile": (lambda x, w: tf.tile(x, [3, 1]), "3 x rows0"),
    "tile along features": (lambda x, w: tf.tile(x, [1, 3]), "rows0"),
    "second batch": (lambda x, w: tf.concat([x, x, x], 0)[8:], "2 x rows0"),
    "batch by slice": (lambda x, w: tf.slice(tf.concat([x, x], 0), [8, 0], [8, 6]), "rows0"),
    "pad by a batch": (lambda x, w: tf.pad(x, [[8, 0], [0, 0]]), "2 x rows0"),
    "pad by a row": (lambda x, w: tf.pad(x, [[1, 0], [0, 0]]), "Pad 0:all > all"),
    "pad features": (lambda x, w: tf.pad(x, [[0, 0], [1, 1]]), "rows0"),
    # slices
    "features": (lambda x, w: x[:, 1:3], "rows0"),
    "first rows": (lambda x, w: x[:4], "StridedSlice 0:all > all"),
    "one row": (lambda x, w: x[0], "StridedSlice 0:all > all"),
    "every other row": (lambda x, w: x[::2], "StridedSlice 0:all > all"),
    "gradient of a slice": (lambda x, w: tf.gradients(x[:, 1:3], x)[0] * x, "Mul 0:rows0 > rows0"),
    "gradient of first rows": (lambda x, w: tf.gradients(tf.square(x[:4]), x)[0], "StridedSlice 0:all > all"),
    # dimensions
    "transpose": (lambda x, w: tf.transpose(x), "rows1"),
    "transpose of three": (lambda x, w: tf.transpose(x[:, :, None], [2, 1, 0]), "rows2"),
    "expand": (lambda x, w: tf.expand_dims(x, 0), "rows1"),
    "squeeze": (lambda x, w: tf.squeeze(x[None, :, None], [0, 2]), "rows0"),
    "squeeze of all ones": (lambda x, w: tf.squeeze(x[None, :, None]), "rows0"),
    "stack": (lambda x, w: tf.stack([x, x]), "rows1"),
    "unstack": (lambda x, w: tf.unstack(x, axis=1), "rows0"),
    "unstack of rows": (lambda x, w: tf.unstack(x), "Unpack 0:all > all"),
    "reverse features": (lambda x, w: tf.reverse(x, [1]), "rows0"),
    "reverse rows": (lambda x, w: tf.reverse(x, [0]), "ReverseV2 0:all > all"),
    "cumsum of features": (lambda x, w: tf.cumsum(x, 1), "rows0"),
    "cumsum of rows": (lambda x, w: tf.cumsum(x, 0), "Cumsum 0:all > all"),
    "one hot": (lambda x, w: tf.one_hot(tf.argmax(x, 1), 3), "rows0"),
    # reductions
    "sum over rows": (lambda x, w: tf.reduce_sum(x, 0), "sum"),
    "sum over features": (lambda x, w: tf.reduce_sum(x, 1), "rows0"),
    "mean": (lambda x, w: tf.reduce_mean(x), "sum"),
    "largest": (lambda x, w: tf.reduce_max(x, 0), "max"),
    "all": (lambda x, w: tf.reduce_all(x > 0), "min"),
    "product": (lambda x, w: tf.reduce_prod(x, 0), "Prod 0:all > all"),
    "place of the largest": (lambda x, w: tf.argmax(x, 0), "ArgMax 0:all > all"),
    # products and rows that meet
    "layer": (lambda x, w: x @ w, "rows0"),
    "gradient of a weight": (lambda x, w: tf.gradients(x @ w, w)[0], "MatMul 1:rows0 > sum"),
    "covariance": (lambda x, w: tf.matmul(x, x, transpose_a=True), "sum"),
    "pairs": (lambda x, w: tf.matmul(x, x, transpose_b=True), "MatMul 1:all > rows0"),
    "a weight for each row": (lambda x, w: x * tf.constant([[float(i)] for i in range(8)]), "Mul 1:rows0 > rows0"),
    "a weight for each feature": (lambda x, w: x * w[:, 0], "rows0"),
    "softmax over rows": (lambda x, w: tf.nn.softmax(tf.transpose(x)), "Softmax 0:all > all"),
    "top rows": (lambda x, w: tf.math.top_k(x[:, 0], 2).values, "TopKV2 0:all > all"),
    # lookups
    "embedding": (lambda x, w: tf.gather(w, tf.argmax(x, 1)), "rows0"),
    "gather of features": (lambda x, w: tf.gather(x, [2, 0], axis=1), "rows0"),
    "gather of rows": (lambda x, w: tf.gather(x, [2, 0]), "GatherV2 0:all > all"),
    "sums by distinct class": (
        lambda x, w: (lambda y, idx: tf.math.unsorted_segment_sum(x, idx, tf.size(y)))(*tf.unique(tf.argmax(x, 1))),
        "Unique 0:all > UnsortedSegmentSum 0:all > UnsortedSegmentSum 1:all > all",
    ),
    "sums by class": (lambda x, w: tf.math.unsorted_segment_sum(x, tf.argmax(x, 1), 6), "sum"),
    # sizes
    "number of rows": (lambda x, w: tf.shape(x)[0], "all"),
    "zeros like the rows": (lambda x, w: x + tf.zeros(tf.shape(x)), "AddV2 1:rows0 > rows0"),
    "numbers of rows": (lambda x, w: x[:, 0] + tf.cast(tf.range(tf.shape(x)[0]), tf.float32), "AddV2 1:rows0 > rows0"),
    "columns that data count": (lambda x, w: counted(x), "reduce Max [] > rows0"),
    "zeros for such columns": (lambda x, w: counted(x) + tf.zeros([8, 1]), "reduce Max [] > AddV2 1:rows0 > rows0"),
    "such columns flat": (lambda x, w: tf.reshape(counted(x), [-1]), "reduce Max [] > rows0"),
    "repeated such columns": (lambda x, w: tf.tile(counted(x), [1, 2]), "reduce Max [] > rows0"),
    # partial sums
    "scaled sum": (lambda x, w: tf.reduce_sum(x) / 8.0, "sum"),
    "sum and weight decay": (lambda x, w: tf.reduce_sum(x) + tf.nn.l2_loss(w), "AddV2 1:share > sum"),
    "sum of sums": (lambda x, w: tf.square(tf.reduce_sum(x) + tf.reduce_sum(x * x)), "reduce AddV2 [] > all"),
    "sum chosen": (lambda x, w: tf.where(w[0, 0] > 0, tf.reduce_sum(x), 0.0), "sum"),
    "largest of largest": (lambda x, w: tf.maximum(tf.reduce_max(x, 0), tf.reduce_max(x * x, 0)), "max"),
    "reduced where it is small": (lambda x, w: tf.square(tf.reduce_sum(2 * tf.reduce_sum(x, 0))), "reduce Sum [] > all"),
    "reduced before it is spread": (lambda x, w: tf.square(tf.tile(tf.reduce_sum(x, 0), [9])), "reduce Sum [6] > all"),
    "reduced once": (lambda x, w: (lambda total: tf.square(total) * tf.abs(total))(tf.reduce_sum(x, 0)), "reduce Sum [6] > all"),
    "reduced at the raw gradient": (
        lambda x, w: tf.clip_by_norm(tf.gradients(tf.square(x @ w), w)[0], 1.0),
        "reduce MatMul [6, 3] > Mul 0:rows0 > all",
    ),
    "centred": (lambda x, w: x - tf.reduce_mean(x, 0), "reduce Mean [6] > rows0"),
    # as many rows as data say
    "mask": (lambda x, w: tf.boolean_mask(x, x[:, 0] > 0), "ragged"),
    "places": (lambda x, w: tf.where(x[:, 0] > 0), "places"),
    "sum of masked rows": (lambda x, w: tf.reduce_sum(tf.boolean_mask(x, x[:, 0] > 0) @ w, 0), "sum"),
    "number of masked rows": (
        lambda x, w: 1.0 / tf.cast(tf.size(tf.boolean_mask(x, x[:, 0] > 0)), tf.float32),
        "Cast 0:all > all",
    ),
    "masked rows in order": (lambda x, w: tf.cumsum(tf.boolean_mask(x, x[:, 0] > 0)), "Cumsum 0:all > all"),
    "distinct": (lambda x, w: tf.unique(tf.argmax(x, 1)).y, "Unique 0:all > all"),
    "distinct of each row": (lambda x, w: tf.unique(tf.argmax(x, 1)).idx, "Unique 0:all > rows0"),
    # random numbers
    "noise": (lambda x, w: x + tf.random.normal([8, 6]), "rows0"),
    "dropout": (lambda x, w: x * tf.cast(tf.random.uniform([8, 6]) < 0.5, tf.float32), "rows0"),
    "noise for all": (lambda x, w: x + tf.random.normal([6]), "rows0"),
    "shuffled": (lambda x, w: tf.random.shuffle(x), "RandomShuffle 0:all > all"),
    # no rule
    "no rule": (lambda x, w: tf.raw_ops.ListDiff(x=x[:, 0], y=x[:, 1])[0], "ListDiff 0:all > ListDiff 1:all > all"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "expected"), (CASES | LOOPS).values(), ids=CASES | LOOPS)
def test_where_a_value_lives_and_what_its_readers_want(build: Build, expected: str) -> None:
    assert found(build) == expected


def test_random_numbers_of_the_plain_graph_are_cut_to_own_rows() -> None:
    assert found(CASES["noise"][0], random="plain") == "AddV2 1:rows0 > rows0"


def test_every_step_says_why() -> None:
    graph, demands = solved(CASES["no rule"][0])
    (node,) = graph.of_type("ListDiff")
    assert demands.placing.verdicts[node].why == "ListDiff has no partition rule"


@pytest.mark.parametrize(("rows", "fits"), [(50, "5, 2, 1"), (4, "4, 2, 1")])
def test_cores_that_do_not_divide_the_batch_are_refused(rows: int, fits: str) -> None:
    refuse_uneven(Graph(), 64, 8)
    with pytest.raises(ShapeError, match=f"a batch of {rows} rows cannot be split over 8 cores") as caught:
        refuse_uneven(Graph(), rows, 8)
    assert f"(cores that divide {rows}: {fits})" in str(caught.value.fix)


def test_the_batch_is_the_commonest_number_of_rows() -> None:
    assert commonest([8, 8, 32, None]) == 8
    assert commonest([8, 32]) == 32
    assert commonest([]) is None
