"""Planted faults: passes that do wrong, and large training graphs for them."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import tpugraph
from models import batches, finish, rows_of, tf1, trace, variable
from tpugraph.ir import Graph, Node

NODES_A_LAYER = 65.5
"""How many nodes a layer of :func:`tower` has, with its gradients and its part of the optimizer."""


def tower(
    layers: int, *, middle: Any = None, width: int = 6, rows: int = 8, optimizer: Any = None, seed: int = 0
) -> Graph:
    """A training graph of dense layers in scopes, with Adam.

    Args:
        layers: how many.
        middle: what stands amid the layers: halfway where ``seed`` is 0.
        width: of a layer.
        rows: of a batch.
        optimizer: another one than Adam.
        seed: of the data, of the layers' activations and of the place of ``middle``.
    """
    random = np.random.default_rng(seed)
    odd = random.integers(0, 2, layers) if seed else np.arange(layers) % 2
    place = int(random.integers(layers)) if seed else layers // 2

    def build() -> None:
        features, targets = batches(rows_of(64, width, seed=3 + seed), rows)
        value = features
        for number in range(layers):
            with tf1.variable_scope(f"block_{number // 10}/layer_{number}"):
                kernel = variable("kernel", (width, width), scale=0.4)
                bias = variable("bias", (width,), scale=0.1)
                product = tf.nn.bias_add(tf.matmul(value, kernel), bias)
                value = value + (tf.nn.relu(product) if odd[number] else tf.tanh(product)) / np.float32(layers)
            if middle is not None and number == place:
                with tf1.variable_scope("middle"):
                    value = middle(value)
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(value, 1) - targets))
        finish(loss, tf1.train.AdamOptimizer(0.01) if optimizer is None else optimizer)

    return trace(build)


def loop(value: Any) -> Any:
    inner = variable("inner", (value.shape[1], value.shape[1]), scale=0.3)
    found = tf1.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, tf.sigmoid(x @ inner)), (0, value), maximum_iterations=3
    )
    return found[1]


def branch(value: Any) -> Any:
    """A conditional whose branches are both differentiated, behind an op that is nowhere else."""
    step, soft = tf1.train.get_or_create_global_step(), tf.nn.softsign(value)
    return tf1.cond(tf.less(step, 5), lambda: soft * 2, lambda: tf.nn.elu(soft))


def without_kernel(value: Any) -> Any:
    return value + tf.stop_gradient(tf1.random_gamma([], tf.abs(value) + 1, seed=3))


def wide_transform(value: Any) -> Any:
    """A Fourier transform of numbers that are wider than the TPU compiler takes for one; a kernel for XLA there is."""
    found = tf.signal.fft(tf.cast(value, tf.complex128))
    return value + tf.stop_gradient(tf.cast(tf.math.real(found), tf.float32))


def _chosen(graph: Graph, op: str) -> Node | None:
    """The node in the middle of those of an op type on the device; the only one where there is one."""
    nodes = [node for node in graph.of_type(op) if node.has_attr("_tpu_replicate")]
    return next(
        (node for node in nodes if "layer_7/" in node.name or "middle" in node.name), nodes[0] if nodes else None
    )


def _at(name: str, op: str, edit: Callable[[Graph, Node], object]) -> type[tpugraph.Pass]:
    """A pass that edits the graph at the node that is chosen of an op type."""

    def run(self: tpugraph.Pass, graph: Graph) -> None:
        if (node := _chosen(graph, op)) is not None:
            edit(graph, node)

    return type(name, (tpugraph.Pass,), {"run": run})


PassGradient = _at("PassGradient", "ReluGrad", lambda graph, node: graph.replace_uses(node.out(), node.inputs[0]))
SwapOperands = _at("SwapOperands", "TanhGrad", lambda graph, node: graph.set_inputs(node, node.inputs[::-1]))
LoseStep = _at(
    "LoseStep", "ResourceApplyAdam", lambda graph, node: graph.set_input(node, 6, node.inputs[7])
)  # a decay for both


@dataclass(frozen=True)
class ScaleGradient(tpugraph.Pass):
    """The gradient of a bias is a hundredth too large."""

    op: str = "BiasAddGrad"
    factor: float = 1.01

    def run(self, graph: Graph) -> None:
        node = _chosen(graph, self.op)
        if node is None:
            return
        kind, uses = node.out().dtype, node.uses(0)
        mark = {"_tpu_replicate": node.attr("_tpu_replicate")}
        factor = graph.add("Const", f"{node.name}/factor", controls=[node], outputs=[(kind, ())],
                           attrs={"dtype": kind, "value": np.float32(self.factor), **mark})  # fmt: skip
        scaled = graph.add("Mul", f"{node.name}/scaled", [node.out(), factor.out()], attrs={"T": kind, **mark},
                           outputs=[node.output(0)], source=node)  # fmt: skip
        for use in uses:
            graph.set_input(use.node, use.index, scaled.out())


@dataclass(frozen=True)
class LoseSum(tpugraph.Pass):
    """A sum over the cores is left out, behind every check of the pipeline."""

    summed: str = "gradients/dense_1/BiasAdd_grad/BiasAddGrad"

    def run(self, graph: Graph) -> None:
        for node in graph.of_type("CrossReplicaSum"):
            if node.inputs[0].node.name == self.summed:
                graph.replace_uses(node.out(), node.inputs[0])


@dataclass(frozen=True)
class Stumble(tpugraph.Pass):
    """Dies of an op: by an exception, by the end of the process, or by never ending."""

    op: str = "SoftsignGrad"
    how: str = "raise"

    def run(self, graph: Graph) -> None:
        for node in graph.of_type(self.op):
            if self.how == "abort":
                os.abort()
            while self.how == "hang":
                time.sleep(0.1)
            raise KeyError(node.name)


BEHIND = "prune,...,partition,planted:{},..."
"""A pipeline with a pass of this module where the step is placed and its gradients are reduced."""


@dataclass(frozen=True)
class Fault:
    """A fault that is planted in a graph.

    Attributes:
        what: what goes wrong.
        when: what `reduce` is asked for.
        layers: how large the graph is.
        middle: what stands amid the layers.
        passes: the pass that does wrong; "" where the graph itself is at fault.
        cores: the number of cores.
    """

    what: str
    when: str
    layers: int
    middle: Any = None
    passes: str = ""
    cores: int = 8

    @property
    def options(self) -> dict[str, Any]:
        """The options of the conversion that shows it."""
        return {"num_replicas": self.cores, "passes": BEHIND.format(self.passes) if self.passes else None}


FAULTS = (
    Fault("a gradient of relu lets everything through", "differs", 72, None, "PassGradient"),
    Fault("a gradient of a bias is a hundredth too large", "differs", 145, None, "ScaleGradient"),
    Fault("a gradient of tanh takes its operands the other way round", "differs", 43, None, "SwapOperands"),
    Fault("an optimizer takes one of its decays for both", "differs", 29, None, "LoseStep"),
    Fault("a gradient of relu lets everything through, beside a loop", "differs", 14, loop, "PassGradient"),
    Fault("an op that no TPU has", "refused:kernel", 100, without_kernel),
    Fault("an op that no TPU has, as the TPU compiler says it", "xla:RandomGamma", 72, without_kernel),
    Fault("a transform that the TPU compiler itself refuses", "xla:operand type for FFT", 145, wide_transform),
    Fault("a pass dies of a gradient beside a conditional", "crashes", 100, branch, "Stumble"),
    Fault("a pass ends the process", "crashes", 14, branch, "Stumble{how=abort}"),
)
"""Ten faults in graphs of 1,000 to 10,000 nodes."""
