"""Import by TensorFlow's C API: of whole graphs to run, and incrementally of a Graph for shape inference.

The incremental import repeats only edited nodes, creates no Python operations, and omits control edges and devices, which do
not affect dtypes and shapes. The API is private and only an optimization: where it is missing or refuses the graph, the public
API in :mod:`tpugraph.analysis.shapes` gives the result or the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session as native
from tensorflow.python.framework import c_api_util
from tensorflow.python.framework import function as function_lib

from tpugraph.ir import Graph, Node, Output, graphdef
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.walks import reached

REFUSALS = (AttributeError, TypeError, ValueError, RuntimeError, tf.errors.OpError)
"""The errors of a graph that TensorFlow refuses, or of another TensorFlow version."""

_VALUES = frozenset({"int32", "int64", "bool", "string", "resource", "variant"})
"""Dtypes of values that shapes depend on: a change of such a value or handle may change later shapes."""


def quick_import(graph_def: Any) -> tf.Graph:
    """A GraphDef in a new ``tf.Graph``, in half of the time of ``tf.import_graph_def``; raises REFUSALS where TensorFlow refuses it.

    The latter resolves colocation in Python, which the session repeats anyway.
    """
    target = tf.Graph()
    scoped = c_api_util.ScopedTFImportGraphDefOptions()
    with target._c_graph.get() as held:
        found = native.TF_GraphImportGraphDefWithResultsNoSerialization(held, graph_def, scoped.options)
        c_api_util.ScopedTFImportGraphDefResults(found)  # releases it
    target._add_new_tf_operations(compute_devices=False)
    for function in function_lib.from_library(graph_def.library) if graph_def.library.function else ():
        function.add_to_graph(target)
    return target


class Imported:
    """TensorFlow's operations for a Graph's nodes; :meth:`update` applies its edits."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._target = tf.Graph()
        self._rounds = 0
        self._operations: dict[Node, Any] = {}  # of the C API
        self._outputs: dict[Node, list[Output]] = {}

    def update(self) -> None:
        """Import the nodes added or changed since the last call, and those whose shapes change; after REFUSALS it is unusable."""
        edited = self._graph.take_stale()
        pending = list(self._graph) if not self._operations else _with_readers_of_values(edited)
        while pending:
            readers = self._readers(pending)
            before = {node: self.outputs(node) for node in readers}
            self._import(pending)
            changed = (node for node in readers if self.outputs(node) != before[node])
            pending = _with_readers_of_values(dict.fromkeys(reader for node in changed for reader in readers[node]))

    def outputs(self, node: Node) -> list[Output]:
        found = self._outputs.get(node)
        if found is None:
            operation = native.PyOperation(self._operations[node], _tensor)
            operation.graph = self._target
            operation._init_outputs()
            found = self._outputs[node] = []
            for tensor in operation.outputs:
                dims, unknown_rank = tensor._shape
                found.append(output(tensor._dtype, tuple(dims), unknown_rank))
        return found

    def _readers(self, nodes: list[Node]) -> dict[Node, list[Node]]:
        """The readers of re-imported nodes that are not imported with them."""
        inside = set(nodes)
        found: dict[Node, list[Node]] = {}
        for node in nodes:
            if node in self._operations:
                readers = [reader for reader, _ in node._uses if reader not in inside]
                if readers:
                    found[node] = readers
        return found

    def _import(self, nodes: list[Node]) -> None:
        scoped = c_api_util.ScopedTFImportGraphDefOptions()  # releases what it holds
        self._rounds += 1
        native.TF_ImportGraphDefOptionsSetPrefix(scoped.options, f"r{self._rounds}")
        for node in nodes:
            native.TF_ImportGraphDefOptionsAddReturnOperation(scoped.options, node.name)
        if self._operations:
            self._lead_to_held(scoped.options, nodes)
        definition = graphdef.definitions(self._graph, nodes)
        with self._target._c_graph.get() as held:
            found = native.TF_GraphImportGraphDefWithResultsNoSerialization(held, definition, scoped.options)
            results = c_api_util.ScopedTFImportGraphDefResults(found)
            made = native.TF_ImportGraphDefResultsReturnOperations(results.results)
        for node, operation in zip(nodes, made, strict=True):
            self._operations[node] = operation
            self._outputs.pop(node, None)

    def _lead_to_held(self, options: Any, nodes: list[Node]) -> None:
        """Map the nodes' other inputs to operations that were imported before."""
        inside = set(nodes)
        for producer, port in {tensor for node in nodes for tensor in node.inputs if tensor[0] not in inside}:
            held = native.TF_Output()
            held.oper = self._operations[producer]
            held.index = port
            native.TF_ImportGraphDefOptionsAddInputMapping(options, producer.name, port, held)


def _tensor(operation: Any, index: int, kind: int) -> Any:
    """An output of an operation, with its dtype number."""
    return native.PyTensor.__new__(native.PyTensor, operation, index, kind, 0)


def _with_readers_of_values(nodes: Iterable[Node]) -> list[Node]:
    return list(reached(nodes, _readers_of_values))


def _readers_of_values(node: Node) -> Iterator[Node]:
    outputs = node.outputs
    for (reader, _), port in node._uses.items():
        if outputs is None or port >= len(outputs) or outputs[port][0].name in _VALUES:
            yield reader


@cache
def output(kind: int, dims: tuple[int | None, ...], unknown_rank: bool) -> Output:
    """A shared object for equal outputs: a graph has few shapes and many tensors."""
    shape = None if unknown_rank else tuple(None if d is None or d < 0 else d for d in dims)
    return attr_codec.dtype(kind), shape
