"""Tensors that an input function returns, as a Dataset: what makes them runs once for each element."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.util import deprecation

from tpugraph import ops
from tpugraph.support.errors import ArgumentTypeError

tf1 = tf.compat.v1
_FOR_EVER = 2**62


def as_tensors(returned: Any) -> Any:
    """The same structure, with the numbers and arrays in it as tensors.

    Raises:
        ArgumentTypeError: it names a value that is no tensor and cannot be one.
    """
    return tf.nest.map_structure(_as_tensor, returned)


def _as_tensor(value: Any) -> Any:
    if value is None or tf.is_tensor(value):
        return value
    if isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        return tf.convert_to_tensor(value)
    raise ArgumentTypeError(
        f"input_fn must return a tf.data.Dataset or tensors, but returned {value!r} ({type(value).__name__})",
        fix="tf.data.Dataset.from_tensor_slices(...).batch(params['batch_size'])",
    )


def dataset_of(tensors: Any) -> Any:
    """A Dataset whose elements are what the tensors are in one run after the other, in the graph of the tensors.

    It ends where a run finds the end of the data that the tensors read. Iterators and tables stay where they are, in the
    graph, and are initialised with its tables.

    Args:
        tensors: features, or (features, labels).

    Returns:
        None where the tensors come from queues or are fed, so that they cannot be made by a Dataset.
    """
    flat = [tensor for tensor in tf.nest.flatten(tensors, expand_composites=True) if tensor is not None]
    made = _made_by([tensor.op for tensor in flat])
    held = _held(made)
    if any(op.type in ops.QUEUES | ops.PLACEHOLDERS for op in (*made, *(tensor.op for tensor in held))):
        return None
    if any(tensor.dtype._is_ref_dtype for tensor in held):
        return None
    definition = _definition(made)

    def run(number: Any) -> Any:
        del number
        graph = tf1.get_default_graph()
        known = {tensor.name: graph.capture(tensor) for tensor in held}
        found = tf.graph_util.import_graph_def(definition, known, [tensor.name for tensor in flat], name="input")
        values = iter(found)
        filled = [None if t is None else next(values) for t in tf.nest.flatten(tensors, expand_composites=True)]
        return tf.nest.pack_sequence_as(tensors, filled, expand_composites=True)

    with deprecation.silence():  # only this kind of map ends with the data that its function reads
        return tf1.data.Dataset.range(_FOR_EVER).map_with_legacy_function(run)


def _made_by(ends: list[Any]) -> list[Any]:
    """The ops that run for each element: all before the ends, up to iterators, tables and variables."""
    seen, stack = dict.fromkeys(ends), list(ends)
    while stack:
        op = stack.pop()
        before = [tensor.op for tensor in op.inputs if not _is_handle(tensor)]
        for producer in (*before, *op.control_inputs):
            if producer not in seen:
                seen[producer] = None
                stack.append(producer)
    return list(seen)


def _held(made: list[Any]) -> list[Any]:
    """The handles of iterators, tables and variables that ops read."""
    return list({tensor.name: tensor for op in made for tensor in op.inputs if _is_handle(tensor)}.values())


def _is_handle(tensor: Any) -> bool:
    return tensor.dtype == tf.resource or bool(tensor.dtype._is_ref_dtype)


def _definition(made: list[Any]) -> Any:
    graph = made[0].graph
    whole = graph.as_graph_def(add_shapes=True)
    names = {op.name for op in made}
    kept = tf1.GraphDef(versions=whole.versions, library=whole.library)
    for node in whole.node:
        if node.name in names:
            kept.node.add().CopyFrom(node)
            kept.node[-1].attr.pop("_class", None)  # what it is placed beside may not be in this part
    return kept
