"""The pass batch-norm: fused batch norms become arithmetic whose means and sums the cores combine."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from models import assert_same_on_cores, batches, check, finish, tf1, trace, variable
from tpugraph import testing
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, shapes
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.passes.batch_norm import BatchNorm
from tpugraph.support.errors import ConversionError, UsageError


def taken_apart(graph: Graph) -> list[str]:
    return [note.node for note in graph.notes if note.text.startswith("decomposed")]


def test_golden_step() -> None:
    graph = check(BatchNorm(num_replicas=2), "step", num_replicas=2)
    assert taken_apart(graph) == ["norm", "norm_grad"]


# ------------------------------------------------------------------ against TensorFlow's kernels


def one_op(version: str, form: str, dtype: str, *, training: bool = True, factor: float = 1.0) -> Graph:
    """A fused op and its gradient, on the device, with an Identity behind each output."""
    with tf.Graph().as_default() as made:
        shape = {"NHWC": (4, 3, 2, 5), "NCHW": (4, 5, 3, 2), "NDHWC": (4, 2, 3, 2, 5), "NCDHW": (4, 5, 2, 3, 2)}[form]
        x, dy = (tf1.placeholder(dtype, shape, name) for name in ("x", "dy"))
        scale, offset, mean, variance = (
            tf1.placeholder("float32", [5], n) for n in ("scale", "offset", "mean", "variance")
        )
        same = {"epsilon": 0.03, "data_format": form, "is_training": training}
        if factor != 1.0:
            same["exponential_avg_factor"] = factor
        used = (mean, variance) if factor != 1.0 or not training else (tf.zeros([0]), tf.zeros([0]))
        out = getattr(tf.raw_ops, f"FusedBatchNorm{version}")(
            x=x, scale=scale, offset=offset, mean=used[0], variance=used[1], **same
        )
        same.pop("exponential_avg_factor", None)
        if version == "V3":
            same["reserve_space_3"] = out.reserve_space_3
        grad = getattr(tf.raw_ops, f"FusedBatchNormGrad{version}")(
            y_backprop=dy,
            x=x,
            scale=scale,
            reserve_space_1=out.reserve_space_1,
            reserve_space_2=out.reserve_space_2,
            **same,
        )
        for i, value in enumerate([*out[:3], *grad[:3]]):
            tf.identity(value, f"out{i}")
    graph = graphdef.from_graph_def(made.as_graph_def(add_shapes=True), source="made.pb")
    shapes.infer(graph)
    for node in graph:
        if "BatchNorm" in node.op:
            graph.set_attr(node, CLUSTER_ATTR, CLUSTER)
    return graph


def results(graph: Graph, last: bool, *, rounded: str = "float32") -> list[np.ndarray]:
    """The outputs, of operands whose channels are the last dimension, with the channels last.

    Images are rounded to a dtype first, of which there may be no kernel: some CPUs have none of half precision.
    """
    definition = graphdef.to_graph_def(graph)
    random = np.random.default_rng(2)
    with tf.Graph().as_default() as made:
        tf.import_graph_def(definition, name="")
        feeds = {}
        for name in ("x", "dy", "scale", "offset", "mean", "variance"):
            tensor = made.get_tensor_by_name(f"{name}:0")
            shape = tensor.shape.as_list()
            wanted = shape if last or len(shape) == 1 else [shape[0], *shape[2:], shape[1]]
            value = random.normal(0.5, 1.0, wanted).astype(np.float32)
            value = np.abs(value) if name == "variance" else value
            value = value if last or len(shape) == 1 else np.moveaxis(value, -1, 1)
            value = value.astype(tf.as_dtype(rounded).as_numpy_dtype) if len(shape) > 1 else value
            feeds[tensor] = value.astype(tensor.dtype.as_numpy_dtype)
        with tf1.Session(graph=made) as session:
            found = session.run([f"out{i}:0" for i in range(6)], feeds)
    return [v.astype(np.float32) if last or v.ndim == 1 else np.moveaxis(v, 1, -1).astype(np.float32) for v in found]


FLAT, DEEP = ("NHWC", "NCHW"), ("NDHWC", "NCDHW")
KINDS = {
    "": (FLAT, ("float32",), (1.0,)),
    "V2": (FLAT, ("float32", "float16", "bfloat16"), (1.0,)),
    "V3": ((*FLAT, *DEEP), ("float32", "float16", "bfloat16"), (1.0, 0.25)),
}
"""Of each version of the op: formats, dtypes, and factors of the moving average."""


@pytest.mark.parametrize(
    ("version", "form", "dtype", "factor"),
    [(version, *kind) for version, kinds in KINDS.items() for kind in itertools.product(*kinds)],
)
def test_the_arithmetic_is_that_of_the_kernels(version: str, form: str, dtype: str, factor: float) -> None:
    last = form.endswith("C")
    channels_last = form if last else {4: "NHWC", 5: "NDHWC"}[len(form)]
    expected = results(one_op(version, channels_last, "float32", factor=factor), True, rounded=dtype)
    graph = one_op(version, form, dtype, factor=factor)
    BatchNorm(num_replicas=2).run(graph)
    assert not [node for node in graph if "BatchNorm" in node.op]
    close = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
    for found, value in zip(results(graph, last), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=close, atol=close * np.abs(value).max())


@pytest.mark.parametrize("step", [BatchNorm(num_replicas=1), BatchNorm(num_replicas=2, batch_norm="per_core")])
def test_one_core_and_a_policy_leave_it_fused(step: BatchNorm) -> None:
    graph = one_op("V3", "NHWC", "float32")
    before = graph.edits
    step.run(graph)
    assert graph.edits == before


def test_what_stays_fused() -> None:
    graph = one_op("V3", "NHWC", "float32", training=False)
    BatchNorm(num_replicas=2).run(graph)
    assert len([node for node in graph if "BatchNorm" in node.op]) == 2
    graph = one_op("V3", "NHWC", "float32")
    for node in graph:
        graph.set_attr(node, CLUSTER_ATTR, None)
    BatchNorm(num_replicas=2).run(graph)
    assert taken_apart(graph) == []
    graph = one_op("V3", "NHWC", "float32")
    (fused,) = graph.of_type("FusedBatchNormV3")
    graph.set_input(graph["out0"], 0, fused.out(5))
    BatchNorm(num_replicas=2).run(graph)
    assert taken_apart(graph) == ["FusedBatchNormGradV3"]


# ------------------------------------------------------------------ on cores


def images(
    rows: int, groups: int = 1, *, shape: tuple[int, ...] = (2, 2, 3), half: bool = False, first: bool = False
) -> None:
    """A fused batch norm of weighted images; with ``groups`` each group of rows by itself, the averages by all or the first."""
    data = np.random.default_rng(3).normal(0.3, 1.0, (96, *shape)).astype(np.float32)
    x, y = batches((data, data.sum(axis=tuple(range(1, data.ndim)))), rows)
    gamma, beta = variable("gamma", shape[-1:]), variable("beta", shape[-1:])
    h = tf.tanh(x * variable("w", shape[-1:]))
    form = "NHWC" if len(shape) == 3 else "NDHWC"
    parts = []
    for part in tf.split(tf.cast(h, tf.float16) if half else h, groups):
        parts.append(tf.raw_ops.FusedBatchNormV3(x=part, scale=gamma, offset=beta, mean=[], variance=[], epsilon=1e-2,
                                                 data_format=form))  # fmt: skip
    made = tf.cast(tf.concat([p.y for p in parts], 0), tf.float32)
    counted = parts[:1] if first else parts
    updates = []
    for name, values in (("mean", [p.batch_mean for p in counted]), ("variance", [p.batch_variance for p in counted])):
        average = variable(f"moving_{name}", shape[-1:], trainable=False)
        updates.append(tf1.assign_sub(average, (tf.convert_to_tensor(average) - tf.add_n(values) / len(values)) * 0.1))
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(tf.reduce_mean(made, list(range(1, data.ndim - 1))), 1) - y))
    with tf.control_dependencies(updates):
        loss = tf.identity(loss)
    finish(loss, tf1.train.GradientDescentOptimizer(0.1))


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize(
    ("cores", "rows", "shape"), [(2, 8, (2, 2, 3)), (4, 16, (2, 1, 2, 4)), (4, 8, (4, 4, 4)), (8, 8, (1, 1, 3))]
)
def test_cores_normalise_by_the_whole_batch(cores: int, rows: int, shape: tuple[int, ...], resource: bool) -> None:
    assert_same_on_cores(lambda rows: images(rows, shape=shape), cores=cores, rows=rows // cores, resource=resource)


def test_half_precision_has_statistics_in_float32() -> None:
    assert_same_on_cores(lambda rows: images(rows, half=True), relative=2e-2, absolute=2e-3)


def test_a_batch_norm_costs_two_small_collectives_each_way() -> None:
    program = convert(trace(lambda: images(16)), num_replicas=4)
    graph = graphdef.from_graph_def(program.graph_def, source="made.pb")
    shapes.infer(graph)
    sums = [node for node in graph.of_type("CrossReplicaSum") if "FusedBatchNorm" in node.inputs[0].node.name]
    assert len(sums) == 4  # mean, variance; the sums of the gradient of the offset and of that of the scale
    assert {node.out().shape for node in sums} == {(3,)}
    assert len(graph.of_type("CrossReplicaSum")) == 4 + 1 + 1  # the gradient of w, and the loss behind the loop
    assert "gathered" not in str(program.report["notes"])


@pytest.mark.parametrize("varying", ["mean", "replica0"])
def test_per_core_is_a_batch_norm_of_each_cores_rows(varying: str) -> None:
    program = convert(trace(lambda: images(16)), num_replicas=4, batch_norm="per_core")
    assert [node.op for node in program.graph_def.node].count("FusedBatchNormV3") == 1
    assert "--batch_norm=per_core" in " ".join(program.report["notes"])
    expected = testing.run_plain(trace(lambda: images(16, 4, first=varying == "replica0")), steps=5)
    found = testing.run_on_cores(trace(lambda: images(16)), steps=5, num_replicas=4, iterations_per_loop=2,
                                 batch_norm="per_core", varying_updates=varying)  # fmt: skip
    testing.assert_same_training(found, expected, relative=2e-5, absolute=2e-6)


def test_policies_that_are_refused() -> None:
    with pytest.raises(ConversionError, match="each core would write another value to 'moving_mean'"):
        convert(trace(lambda: images(16)), num_replicas=4, batch_norm="per_core", varying_updates="error")
    with pytest.raises(UsageError, match="'median' is no varying_updates") as caught:
        convert(trace(lambda: images(16)), varying_updates="median")
    assert "mean, replica0 or error" in str(caught.value)
    with pytest.raises(UsageError, match="'local' is no batch_norm"):
        convert(trace(lambda: images(16)), batch_norm="local")
