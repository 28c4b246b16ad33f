"""Random training graphs train on N cores as on the whole batch; random edits keep a graph well formed."""

from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from models import assert_same_on_cores, batches, rows_of, tf1, trace, variable
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.ir import Graph, attrs, graphdef
from tpugraph.ir.graphdef import serialize
from tpugraph.support.errors import GraphError
from tpugraph.tpu.invariants import INVARIANTS

ACTIVATIONS = {
    "none": tf.identity,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
}
OPTIMIZERS = {
    "sgd": lambda rate: tf1.train.GradientDescentOptimizer(rate),
    "momentum": lambda rate: tf1.train.MomentumOptimizer(rate, 0.8, use_nesterov=True),
    "adam": lambda rate: tf1.train.AdamOptimizer(rate, epsilon=1e-3),
    "adagrad": lambda rate: tf1.train.AdagradOptimizer(rate),
    "rmsprop": lambda rate: tf1.train.RMSPropOptimizer(rate, epsilon=1e-3),
    "ftrl": lambda rate: tf1.train.FtrlOptimizer(rate),
}
REDUCTIONS = {
    "mean": lambda error, rows: tf.reduce_mean(error),
    "sum": lambda error, rows: tf.reduce_sum(error) * 0.05,
    "mean of sums": lambda error, rows: tf.reduce_mean(tf.reduce_sum(error, 1)),
    "sum over the batch size": lambda error, rows: tf.reduce_sum(error) / rows,
}
CLIPS = ("none", "global norm", "norm", "value")

models = st.fixed_dictionaries(
    {
        "widths": st.lists(st.integers(1, 6), max_size=3),
        "activation": st.sampled_from(sorted(ACTIVATIONS)),
        "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
        "reduction": st.sampled_from(sorted(REDUCTIONS)),
        "clip": st.sampled_from(CLIPS),
        "outputs": st.integers(1, 3),
        "l2": st.booleans(),
        "bias": st.booleans(),
        "decay": st.booleans(),
    }
)


def network(rows: int, options: dict[str, Any]) -> None:
    features, first = batches(rows_of(96, 4), rows)
    targets = tf.stack([first * (k + 1) for k in range(options["outputs"])], 1)
    value, width = features, 4
    for layer, following in enumerate([*options["widths"], options["outputs"]]):
        value = value @ variable(f"kernel_{layer}", (width, following), scale=0.4)
        if options["bias"]:
            value = value + variable(f"bias_{layer}", (following,), scale=0.1)
        if layer < len(options["widths"]):
            value = ACTIVATIONS[options["activation"]](value)
        width = following
    loss = REDUCTIONS[options["reduction"]](tf.square(value - targets), rows)
    if options["l2"]:
        loss += 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in tf1.trainable_variables()])
    step = tf1.train.get_or_create_global_step()
    rate = tf1.train.exponential_decay(0.02, step, 2, 0.7) if options["decay"] else 0.02
    optimizer = OPTIMIZERS[options["optimizer"]](rate)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    if options["clip"] == "global norm":
        gradients, _ = tf.clip_by_global_norm(gradients, 0.7)
    elif options["clip"] == "norm":
        gradients = [tf.clip_by_norm(g, 0.5) for g in gradients]
    elif options["clip"] == "value":
        gradients = [tf.clip_by_value(g, -0.3, 0.3) for g in gradients]
    tf1.summary.scalar("loss", loss)
    optimizer.apply_gradients(zip(gradients, variables, strict=True), global_step=step, name="train")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(options=models, cores=st.sampled_from([2, 3, 5]), rows=st.integers(1, 4), resource=st.booleans())
def test_random_networks_train_as_on_the_whole_batch(
    options: dict[str, Any], cores: int, rows: int, resource: bool
) -> None:
    """Float32 sums in another order; the optimizers divide by small second moments, which enlarges that."""
    assert_same_on_cores(lambda batch: network(batch, options), relative=2e-4, absolute=2e-5, cores=cores, rows=rows, steps=4,
                         resource=resource)  # fmt: skip


@settings(max_examples=10, deadline=None, derandomize=True)
@given(options=models, cores=st.sampled_from([1, 2, 4, 8]))
def test_random_networks_convert_to_the_same_bytes(options: dict[str, Any], cores: int) -> None:
    def made() -> bytes:
        return serialize(convert(trace(lambda: network(8, options)), num_replicas=cores).graph_def)

    first = made()
    assert first == made()
    loaded = graphdef.from_graph_def(tf1.GraphDef.FromString(first))
    assert serialize(graphdef.to_graph_def(loaded)) == first


EDITS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(0, 3)), max_size=60)


def apply(graph: Graph, edit: tuple[int, int, int, int]) -> None:
    kind, first, second, port = edit
    nodes = list(graph)
    a, b = nodes[first % len(nodes)], nodes[second % len(nodes)]
    if kind == 0:
        graph.add("Test", "new", [a.out(port), b.out()], controls=[b])
    elif kind == 1:
        graph.remove(a)
    elif kind == 2 and a.inputs:
        graph.set_input(a, port % len(a.inputs), b.out(port))
    elif kind == 3:
        graph.set_controls(a, [b])
    elif kind == 4:
        graph.replace_uses(a.out(port), b.out())
    elif kind == 5:
        graph.replace_uses(a.out(port), b.out(), where=lambda use: use.index > 0)
    elif kind == 6:
        graph.clone_subgraph([a, b], lambda name: f"{name}/copy", replace={a.out(): b.out(1)})
    elif kind == 7:
        graph.replace_control_uses(a, [b])
    elif kind == 8:
        inputs = [b.out(port)] if port else list(a.inputs)
        graph.retype(a, "IdentityN", inputs=inputs, attrs={"T": [attrs.dtype("float32")] * len(inputs)})
    else:
        graph.remove_dead([a, b])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(edits=EDITS)
def test_random_edits_keep_the_graph_whole(edits: list[tuple[int, int, int, int]]) -> None:
    graph = testing.parse("a = Test()\nb = Test(a)\nc = Test(a, b:1) ^b\nd = Test(c) ^a")
    for edit in edits:
        before, counted = testing.graph_text(graph), str(graph.edits)
        try:
            apply(graph, edit)
        except GraphError:
            assert (testing.graph_text(graph), str(graph.edits)) == (before, counted)
        INVARIANTS["well_formed"].verify(graph, "edit")
        data = {(t.node.name, t.port, n.name, i) for n in graph for i, t in enumerate(n.inputs)}
        assert data == {(n.name, p, u.node.name, u.index) for n in graph for p in n.used_ports() for u in n.uses(p)}
        waits = {(c.name, n.name) for n in graph for c in n.controls}
        assert waits == {(n.name, c.name) for n in graph for c in n.control_uses()}
        assert graph.edits.added - graph.edits.removed == len(graph) - 4
        if not np.all([t.node in graph for n in graph for t in n.inputs]):
            raise AssertionError("an input of a node that is gone")
    assert testing.graph_text(testing.parse(testing.graph_text(graph))) == testing.graph_text(graph)
