"""Static shapes: TensorFlow's own shape functions run over a Graph, and questions about the result."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

import tensorflow as tf

from tpugraph import attrs as attr_codec
from tpugraph import graphdef
from tpugraph.attrs import Shape
from tpugraph.errors import GraphError
from tpugraph.ir import Graph, Output, Tensor

_NODE_IN_MESSAGE = re.compile(r"\{\{node ([^}]+)\}\}|[Nn]ode '([^']+)'|node ([\w./-]+)")


def infer(graph: Graph) -> None:
    """Record dtype and shape of every output in the graph.

    Raises:
        GraphError: TensorFlow refuses the graph; its words and the node are given.
    """
    found = _infer_directly(graphdef.to_graph_def(graph))
    if found is None:
        operations = import_graph(graph).get_operations()
        found = {op.name: [_output(t.dtype.as_datatype_enum, *_dims(t.shape)) for t in op.outputs] for op in operations}
    for node in graph:
        graph.set_outputs(node, found[node.name])


def _infer_directly(graph_def: Any) -> dict[str, list[Output]] | None:
    """The outputs of every node, without a Python object per op; None where that fails, for whatever reason.

    This takes TensorFlow's import by its C interface, which is several times faster than ``import_graph_def`` and
    private: where it is missing, or refuses the graph, the public way gives the result or the error.
    """
    try:
        from tensorflow.python.client import pywrap_tf_session as native
        from tensorflow.python.framework import c_api_util, ops

        target = tf.Graph()
        scoped = c_api_util.ScopedTFImportGraphDefOptions()  # frees what it holds when it goes
        with target._c_graph.get() as held:
            results = native.TF_GraphImportGraphDefWithResultsNoSerialization(held, graph_def, scoped.options)
            c_api_util.ScopedTFImportGraphDefResults(results)
        found: dict[str, list[Output]] = {}
        for raw in target.new_operations():
            operation = native.PyOperation(raw, ops.SymbolicTensor)
            operation.graph = target
            operation._init_outputs()
            outputs = found[operation.name] = []
            for tensor in operation.outputs:
                dims, unknown_rank = tensor._shape
                outputs.append(_output(tensor._dtype.as_datatype_enum, tuple(dims), unknown_rank))
        return found if len(found) == len(graph_def.node) else None
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError, tf.errors.OpError):
        return None


def _dims(shape: tf.TensorShape) -> tuple[tuple[int | None, ...], bool]:
    return ((), True) if shape.rank is None else (tuple(shape.as_list()), False)


@cache
def _output(kind: int, dims: tuple[int | None, ...], unknown_rank: bool) -> Output:
    """One object for all outputs alike: a graph has few shapes and many tensors."""
    shape = None if unknown_rank else tuple(None if d is None or d < 0 else d for d in dims)
    return attr_codec.dtype(kind), shape


def import_graph(graph: Graph) -> tf.Graph:
    """The graph imported into a new ``tf.Graph``, under the same names.

    Raises:
        GraphError: TensorFlow refuses it.
    """
    return import_graph_def(graphdef.to_graph_def(graph), source=graph.source, graph=graph)


def import_graph_def(graph_def: Any, *, source: str = "", graph: Graph | None = None) -> tf.Graph:
    """A GraphDef imported into a new ``tf.Graph``; TensorFlow's refusal becomes a GraphError."""
    target = tf.Graph()
    try:
        with target.as_default(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tf.compat.v1.import_graph_def(graph_def, name="")
    except (ValueError, TypeError, tf.errors.OpError) as error:
        text = str(error).splitlines()[0]
        match = _NODE_IN_MESSAGE.search(text)
        name = next((group for group in match.groups() if group), None) if match else None
        node = None if name is None or graph is None else graph.get(name)
        raise GraphError(
            f"TensorFlow refuses the graph: {text[:300]}",
            node=node or name,
            origin=source,
            fix=f"`tpugraph inspect MODEL --why={name}` shows the node: correct it where the graph is written"
            if name
            else None,
        ) from error
    return target


def is_static(shape: Shape) -> bool:
    """Whether rank and every dimension are known."""
    return shape is not None and None not in shape


def element_count(shape: Shape) -> int | None:
    """The number of elements, or None where the shape is open."""
    if shape is None or None in shape:
        return None
    count = 1
    for dim in shape:
        count *= dim or 0
    return count


def byte_size(tensor: Tensor) -> int | None:
    """Bytes of a tensor, or None where shape or element size is open."""
    count, size = element_count(tensor.shape), tensor.dtype.size
    return None if count is None or size is None else count * size


def open_tensors(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Those whose shape is not fully known."""
    return [tensor for tensor in tensors if not is_static(tensor.shape)]


def tell_lookups(graph: Graph) -> int:
    """A table finds a value for each key; TensorFlow's shape function does not say so. Returns how many it was told."""
    count = 0
    for node in graph.of_type("LookupTableFindV2", "LookupTableFind"):
        keys = node.inputs[1]
        if node.out().shape is None and keys.shape is not None:
            graph.set_attr(node, "_output_shapes", [keys.shape])
            count += 1
    return count
