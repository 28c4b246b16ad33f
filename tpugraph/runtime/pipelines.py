"""Disables tf.data's autotuning in input pipelines without AUTOTUNE.

tf.data measures each pipeline in a thread to tune ``AUTOTUNE`` parameters. Without any, that costs time, and more at the end: a
``CancellationManager`` wakes the thread before it counts as cancelled, so a thread that checks too early sleeps on for up to a
minute, while the session waits for it (``Model::OptimizeLoop`` in
``tensorflow/core/framework/model.cc``).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node, Tensor, attrs, graphdef
from tpugraph.ir.attrs import Shape
from tpugraph.ir.builder import Builder
from tpugraph.ir.session_config import guarded
from tpugraph.ir.walks import source_of

_VARIANT = attrs.dtype("variant")


def run_as_written(graph: Graph) -> int:
    """Disable autotuning in pipelines without AUTOTUNE; returns their number."""
    count = 0
    for maker in graph.of_type(*ops.MAKE_ITERATOR):
        iterator = source_of(maker.inputs[1]).node
        if iterator.op not in ops.ITERATORS or is_tuned(graph, maker.inputs[0]):
            continue
        for node in graph.ancestors([maker.inputs[0].node], data_only=True):
            if node.op in ops.MEASURES:
                graph.replace_uses(node.out(), node.inputs[0])
        element = iterator.attr("output_types"), iterator.attr("output_shapes")
        own = as_written(graph, maker, maker.inputs[0], *element, name=f"{iterator.name}/as_written")
        graph.set_input(maker, 0, own.out())
        count += 1
    return count


def as_written(graph: Graph, maker: Node, dataset: Tensor, types: list[attrs.DType], shapes: list[Shape], *,
               name: str, rewrite: bool = True) -> Node:  # fmt: skip
    """Append options that disable autotuning to a dataset."""
    options = {"output_types": types, "output_shapes": shapes,
               "serialized_options": _options(autotune=False, apply_default_optimizations=None if rewrite else False),
               "metadata": ""}  # fmt: skip
    return graph.add("OptionsDataset", name, [dataset], attrs=options, outputs=[(_VARIANT, ())], source=maker)


def ahead_of(graph: Graph, maker: Node, dataset: Tensor, types: list[attrs.DType], shapes: list[Shape]) -> Tensor:
    """A dataset after which tf.data prefetches nothing: the prefetch that its autotuning would append is inside.

    A later stage takes elements on demand, so that a checkpoint holds them in the form that they have here.
    """
    if not is_tuned(graph, dataset):
        return dataset
    element: dict[str, Any] = {"output_types": types, "output_shapes": shapes, "metadata": ""}
    if source_of(dataset, ops.SAME_ELEMENTS - ops.PREFETCH_DATASETS).node.op not in ops.PREFETCH_DATASETS:
        make = Builder(graph, "tpugraph/reads", source=maker)
        size = make.constant(np.int64(tf.data.AUTOTUNE), name="value")
        dataset = make.add("PrefetchDataset", [dataset, size], (), name="ahead", slack_period=0, legacy_autotune=True,
                           buffer_size_min=0, **element)  # fmt: skip
    own = {**element, "serialized_options": _options(inject_prefetch=False)}
    return graph.add("OptionsDataset", "tpugraph/reads/ahead_of", [dataset], attrs=own, outputs=[(_VARIANT, ())],
                     source=maker).out()  # fmt: skip


def is_tuned(graph: Graph, dataset: Tensor) -> bool:
    """Whether a stage of a pipeline has an AUTOTUNE parameter."""
    return any(
        operand.node.op in ops.CONSTANTS
        and operand.node.attr("value").shape == ()
        and operand.node.attr("value") == tf.data.AUTOTUNE
        for node in graph.ancestors([dataset.node], data_only=True)
        if ops.is_dataset(node.op) and node.op not in ops.CHOSEN_ELEMENTS
        for operand in node.inputs
    )


@cache
def _options(*, autotune: bool | None = None, **optimization: bool | None) -> bytes:
    """Serialized tf.data options; None leaves one to tf.data."""
    options = tf.data.Options()
    if autotune is not None:
        options.autotune.enabled = autotune
    for name, value in optimization.items():
        if value is not None:
            setattr(options.experimental_optimization, name, value)
    with tf.Graph().as_default() as graph:
        tf.data.Dataset.range(1).with_options(options)
        node = next(op for op in graph.get_operations() if op.type == "OptionsDataset")
        return bytes(node.get_attr("serialized_options"))


def is_endless(graph: Graph) -> bool:
    """Whether an input of a plain graph is infinite, as far as TensorFlow knows its cardinality."""
    datasets = [maker.inputs[0] for maker in graph.of_type(*ops.MAKE_ITERATOR)]
    if not datasets:
        return False
    nodes = graph.ancestors([tensor.node for tensor in datasets])
    shapes.check_functions(graph)
    with tf.Graph().as_default() as target:
        given = graphdef.definitions(graph, [node for node in graph if node in nodes])
        found = tf.import_graph_def(given, name="", return_elements=[f"{t.node.name}:{t.port}" for t in datasets])
        sizes = [tf.raw_ops.DatasetCardinality(input_dataset=dataset) for dataset in found]
    with tf.compat.v1.Session(graph=target, config=guarded()) as session:
        try:
            return any(size == tf.data.INFINITE_CARDINALITY for size in session.run(sizes))
        except tf.errors.OpError:  # it depends on uninitialized state, such as a lookup table: then it is unknown
            return False
