"""The input pipeline: what an input function returns becomes batches of the global batch or of core after core."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.util import deprecation, nest

from tpugraph import ops
from tpugraph.estimator.context import Batches
from tpugraph.estimator.tpu_config import InputPipelineConfig
from tpugraph.ir.session_config import guarded
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


def is_dataset(value: Any) -> bool:
    return isinstance(value, (tf.data.Dataset, tf1.data.Dataset))


def check_returned(value: Any, input_mode: int) -> None:
    """Refuses None, tensors under PER_HOST_V2, and a Dataset under PER_SHARD_V1."""
    if value is None:
        raise ArgumentTypeError("input_fn returned None", fix="return the tf.data.Dataset")
    if input_mode == InputPipelineConfig.PER_HOST_V2 and not is_dataset(value):
        raise ArgumentTypeError(f"input_fn returned {type(value).__name__}, but PER_HOST_V2 needs a tf.data.Dataset",
                                fix="return the Dataset itself, not tensors of it")  # fmt: skip
    if input_mode == InputPipelineConfig.PER_SHARD_V1 and is_dataset(value):
        raise ArgumentTypeError(
            "input_fn returned a Dataset, but PER_SHARD_V1 (per_host_input_for_training=False) needs (features, labels)",
            fix="per_host_input_for_training=True",
        )


def split_labels(returned: Any) -> tuple[Any, Any]:
    """Features, and labels or None, of a structure of tensors."""
    if not isinstance(returned, (tuple, list)):
        return returned, None
    if len(returned) == 2:
        return returned[0], returned[1]
    raise ArgumentError(f"input_fn must return features or (features, labels), but returned {len(returned)} elements",
                        fix="put several features into a dict")  # fmt: skip


def batch_size_of(tensors: Any) -> int | None:
    """The batch size of the first tensor of known shape, or None."""
    shapes = [t.shape for t in tf.nest.flatten(tensors) if isinstance(t, tf.Tensor)]
    return next((rows for s in shapes if s.rank and (rows := s.as_list()[0]) is not None), None)


def rebatch(dataset: Any, rows: int | None, plan: Batches, batch_axis: Any = None) -> Any:
    """Rebatches a Dataset of host batches to ``rows``: those of core after core, or of all cores.

    ``batch_axis`` gives the batch dimension of each part; the first one when None.
    """
    if batch_axis is not None:
        return _split_along(dataset, rows, plan, batch_axis)
    specs = tf.nest.flatten(dataset.element_spec)
    if rows == plan.per_host and _is_transposed(specs, rows):
        return dataset
    _check_rows(dataset.element_spec, plan.per_host)
    if any(
        not isinstance(s, tf.TensorSpec) or s.shape.rank is None or s.shape.as_list()[0] != plan.per_host for s in specs
    ):
        dataset = dataset.filter(lambda *e: _is_full(e, plan.per_host))
    if rows == plan.per_host:
        return _with_batch_size(dataset, rows)
    if all(isinstance(s, tf.TensorSpec) for s in specs):
        return dataset.rebatch(rows, drop_remainder=True)
    return dataset.unbatch().batch(rows, drop_remainder=True)


def repeat_per_core(dataset: Any, plan: Batches) -> Any:
    _check_rows(dataset.element_spec, plan.per_core)
    whole = _with_batch_size(dataset.filter(lambda *e: _is_full(e, plan.per_core)), plan.per_core)
    return whole.flat_map(lambda *e: tf.data.Dataset.from_tensors(e if len(e) > 1 else e[0]).repeat(plan.cores))


def evaluation_batches(dataset: Any, plan: Batches, *, fixed: bool, drop: bool) -> Any:
    """Rebatches to global batches, of which the last one may be smaller.

    ``fixed`` puts the batch size into the shapes, also where the last batch is smaller; ``drop`` drops that one.
    """
    _check_rows(dataset.element_spec, plan.per_host, smaller=True)
    dense = all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(dataset.element_spec))
    apart = dataset.rebatch if dense else dataset.unbatch().batch
    batches = apart(plan.global_batch, drop_remainder=drop)
    return _with_batch_size(batches, plan.global_batch) if fixed else batches


def is_infinite(dataset: Any) -> bool:
    with tf1.Session(config=guarded()) as session:
        return bool(session.run(tf.data.experimental.cardinality(dataset)) == tf.data.INFINITE_CARDINALITY)


def first_values(tensors: Any, count: int, config: Any = None, seconds: float = math.inf) -> tuple[list[Any], bool]:
    """The values of tensors in the first runs of the input that they read, and whether its data ended there."""
    found: list[Any] = []
    until = time.monotonic() + seconds
    with tf1.Session(config=guarded(config)) as session:
        session.run(tf1.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS))
        while len(found) < count and time.monotonic() < until:
            try:
                found.append(session.run(tensors))
            except tf.errors.OutOfRangeError:
                return found, True
    return found, False


def check_static(dataset: Any) -> None:
    """Refuses open shapes in an input without an end, which cannot be evaluated without cores instead."""
    for name, part in zip(("features", "labels"), split_labels(dataset.element_spec), strict=True):
        for tensor in tf.nest.flatten(part):
            dense = isinstance(tensor, tf.TensorSpec)
            if dense and (tensor.shape.rank is None or None in tensor.shape.as_list()[1:]) and is_infinite(dataset):
                raise ArgumentError(
                    f"the {name} of an input without an end must have static shape, but one has {tensor.shape}",
                    fix="set_shape in the Dataset's map, or a Dataset that ends",
                )


def next_element(dataset: Any, *, open_rows: bool = False) -> Any:
    """The tensors of the next element; the iterator is initialised with the tables of the graph, after those it reads.

    ``open_rows`` leaves the batch size out of the shapes, so that no constant of the model can hold it, as ``tf.losses`` does
    where batches drop the remainder.
    """
    shapes = tf1.data.get_output_shapes(dataset)
    specs = tf.nest.flatten(dataset.element_spec)
    if open_rows and all(isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in specs):
        opened = [tf.TensorShape([None, *spec.shape.as_list()[1:]]) for spec in specs]
        shapes = tf.nest.pack_sequence_as(dataset.element_spec, opened)
    types, classes = tf1.data.get_output_types(dataset), tf1.data.get_output_classes(dataset)
    iterator = tf1.data.Iterator.from_structure(types, shapes, output_classes=classes)
    # The initializer waits, and it alone: who reads the iterator must not begin the inputs behind it anew.
    with deprecation.silence(), tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS)):
        initializer = iterator.make_initializer(dataset)
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, initializer)
    return iterator.get_next()


def _check_rows(element_spec: Any, rows: int | None, *, smaller: bool = False) -> None:
    specs = [s for s in tf.nest.flatten(element_spec) if isinstance(s, tf.TensorSpec) and s.shape.rank is not None]
    if any(spec.shape.rank == 0 for spec in specs):
        raise ArgumentError("input_fn returned a Dataset without batches: an element of it is a scalar",
                            fix="dataset.batch(params['batch_size'], drop_remainder=True)")  # fmt: skip
    for spec in specs:
        found = spec.shape.as_list()[0]
        if found not in (None, rows) and not (smaller and found < rows):
            raise ArgumentError(f"input_fn returned batches of {found} rows, but params['batch_size'] is {rows}",
                                fix="dataset.batch(params['batch_size'], drop_remainder=True)")  # fmt: skip


def _is_transposed(specs: list[Any], rows: int | None) -> bool:
    closed = all(isinstance(s, tf.TensorSpec) and s.shape.is_fully_defined() for s in specs)
    shapes = [spec.shape.as_list() for spec in specs] if closed else []
    return any(shape[:1] != [rows] for shape in shapes) and all(rows in shape for shape in shapes)


def _is_full(element: Any, rows: int | None) -> Any:
    first = next(t for t in tf.nest.flatten(element) if isinstance(t, (tf.Tensor, tf.SparseTensor)))
    shape = first.dense_shape if isinstance(first, tf.SparseTensor) else tf.shape(first, out_type=tf.int64)
    return tf.equal(shape[0], tf.constant(rows, tf.int64))


def _with_batch_size(dataset: Any, rows: int | None) -> Any:
    def close(*element: Any) -> Any:
        for tensor in tf.nest.flatten(element):
            if isinstance(tensor, tf.Tensor) and tensor.shape.rank:
                tensor.set_shape([rows, *tensor.shape.as_list()[1:]])
        return element if len(element) > 1 else element[0]

    return dataset.map(close)


def _split_along(dataset: Any, rows: int | None, plan: Batches, batch_axis: Any) -> Any:
    if (count := (plan.per_host or 0) // (rows or 1)) == 0:
        raise ArgumentError("batch_axis puts no batches of several hosts together", fix="leave it out, or use one host")

    def shards(*element: Any) -> Any:
        flat = tf.nest.flatten(element)
        pieces = []
        for tensor, axis in zip(flat, _axes(element, batch_axis), strict=True):
            size = tensor.shape.as_list()[axis]
            if size is not None and size != plan.per_host:
                raise ArgumentError(f"batch_axis: dimension {axis} of '{tensor.name}' has {size} rows, "
                                    f"but params['batch_size'] is {plan.per_host}")  # fmt: skip
            shape = [plan.per_host if i == axis else d for i, d in enumerate(tensor.shape.as_list())]
            whole = tf.ensure_shape(tensor, shape)
            pieces.append(tf.stack(tf.split(whole, count, axis=axis)))
        packed = tf.nest.pack_sequence_as(element, pieces)
        return tf.data.Dataset.from_tensor_slices(packed if len(element) > 1 else packed[0])

    return dataset.flat_map(shards)


def _axes(element: Any, batch_axis: Any) -> list[int]:
    """The batch dimension of each tensor: one number per part of (features, labels), or a structure like it."""
    axes: list[int] = []
    for part, axis in zip(element, batch_axis, strict=False):
        flat = tf.nest.flatten(part)
        given = tf.nest.flatten(axis)
        axes.extend(given * len(flat) if len(given) == 1 else given)
    if len(axes) != len(tf.nest.flatten(element)):
        raise ArgumentError(f"batch_axis {batch_axis!r} does not fit the {len(element)} parts that input_fn returns")
    return axes


_FOR_EVER = 2**62


def to_tensors(returned: Any) -> Any:
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


def to_dataset(tensors: Any) -> Any:
    """A Dataset with the values of the tensors in run after run, until the data that they read end.

    Iterators and tables stay in the graph of the tensors, and are initialised with its tables. None where the tensors come from
    queues or are fed.
    """
    flat = [tensor for tensor in tf.nest.flatten(tensors, expand_composites=True) if tensor is not None]
    ends = [tensor.op for tensor in flat]
    made = list(reached(ends, lambda op: [*(t.op for t in op.inputs if not _is_handle(t)), *op.control_inputs]))
    held = list({tensor.name: tensor for op in made for tensor in op.inputs if _is_handle(tensor)}.values())
    if any(op.type in ops.QUEUES | ops.PLACEHOLDERS for op in (*made, *(tensor.op for tensor in held))):
        return None
    if any(tensor.dtype._is_ref_dtype for tensor in held):
        return None
    read = definition(made)

    def run(number: Any) -> Any:
        del number
        graph = tf1.get_default_graph()
        known = {tensor.name: graph.capture(tensor) for tensor in held}
        found = tf.graph_util.import_graph_def(read, known, [tensor.name for tensor in flat], name="input")
        values = iter(found)
        return tf.nest.map_structure(lambda t: None if t is None else next(values), tensors, expand_composites=True)

    with deprecation.silence():  # only this kind of map ends with the data that its function reads
        return tf1.data.Dataset.range(_FOR_EVER).map_with_legacy_function(run)


def _is_handle(tensor: Any) -> bool:
    return tensor.dtype == tf.resource or bool(tensor.dtype._is_ref_dtype)


def definition(made: list[Any]) -> Any:
    """A GraphDef of some ops of a graph."""
    graph = made[0].graph
    whole = graph.as_graph_def(add_shapes=True)
    names = {op.name for op in made}
    kept = tf1.GraphDef(versions=whole.versions, library=whole.library)
    for node in whole.node:
        if node.name in names:
            kept.node.add().CopyFrom(node)
            kept.node[-1].attr.pop("_class", None)  # what it is placed beside may not be in this part
    return kept


def partitioned(
    dims: Sequence[Any], features: Any, labels: Any, cores_per_replica: int
) -> dict[tuple[int, ...], Sequence[int]]:
    """Checks ``input_partition_dims`` against the input; returns, by the shape of an example, the parts of each dimension."""
    found: dict[tuple[int, ...], Sequence[int]] = {}
    for index, (part, what) in enumerate(((features, "feature"), (labels, "label"))):
        if index >= len(dims) or part is None or dims[index] is None:
            continue
        try:
            each = nest.flatten_up_to(part, dims[index])
        except (TypeError, ValueError):
            each = [{}]  # of another structure
        if any(isinstance(parts, Mapping) for parts in each):
            same_keys = isinstance(part, Mapping) and isinstance(dims[index], Mapping) and set(part) == set(dims[index])
            differs = f"the structure of {what}s." if same_keys else f"{what} keys:"  # TensorFlow's words
            raise ArgumentError(
                f"TPUConfig.input_partition_dims[{index}] mismatched {differs} {dims[index]!r} for {part!r}"
            )
        for tensor, parts in zip(nest.flatten(part), each, strict=True):
            _check_parts(tensor, parts, cores_per_replica)
            if parts is not None and math.prod(parts) > 1:
                found[tuple(tf.TensorShape(tensor.shape).as_list()[1:])] = tuple(parts)
    return found


def _check_parts(tensor: Any, parts: Any, cores_per_replica: int) -> None:
    if parts is None:
        return
    if any(count < 1 for count in parts):
        raise ArgumentError(f"All input partition dims must be >= 1. They are {list(parts)}")
    if math.prod(parts) not in (1, cores_per_replica):
        raise ArgumentError("The product of each input partition dim should equal to num_cores_per_replica. "
                            f"{list(parts)} make {math.prod(parts)}, but num_cores_per_replica is {cores_per_replica}")  # fmt: skip
    rank = tf.TensorShape(tensor.shape).rank
    if rank is not None and rank != len(parts):
        raise ArgumentError(
            f"Input partition dims must have the same number of dimensions as the tensor: {list(parts)} for {tensor.shape}"
        )
