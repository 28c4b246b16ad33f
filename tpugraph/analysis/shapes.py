"""Static shapes: inference by TensorFlow's own shape functions, and queries on the result."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.ir import Graph, Tensor, function_library, graphdef, validate
from tpugraph.ir.attrs import Shape
from tpugraph.ir.imported import REFUSALS, Imported, output, quick_import
from tpugraph.support.errors import GraphError

_NODE_IN_MESSAGE = re.compile(r"\{\{node ([^}]+)\}\}|[Nn]ode '([^' ]+)|node ([\w./-]+)")


def infer(graph: Graph) -> None:
    """Record dtype and shape of every output in the graph, incrementally for the nodes edited since the last call."""
    found = _imported(graph)
    if found is not None:
        for node in graph:
            graph.set_outputs(node, found.outputs(node))
        return
    whole = _import_unrun(graph)
    for node in graph:
        made = whole.get_operation_by_name(node.name).outputs
        graph.set_outputs(node, [output(t.dtype.as_datatype_enum, *_dims(t.shape)) for t in made])


def check(graph: Graph) -> None:
    """Check that TensorFlow accepts the graph: attributes, dtypes and shapes by its own inference, no cycle but loops."""
    try:
        graph.topological_order()
    except GraphError as error:
        error.origin = graph.source
        raise
    if _imported(graph) is None:
        _import_unrun(graph)


def _imported(graph: Graph) -> Imported | None:
    """The graph as TensorFlow's C interface imports it; None where that fails, for any reason."""
    held: Imported = graph.imported or Imported(graph)
    graph.imported = None
    try:
        held.update()
    except REFUSALS:
        return None
    graph.imported = held
    return held


def _dims(shape: tf.TensorShape) -> tuple[tuple[int | None, ...], bool]:
    return ((), True) if shape.rank is None else (tuple(shape.as_list()), False)


def _import_unrun(graph: Graph) -> tf.Graph:
    """The graph imported for its dtypes and shapes; nothing of it is run."""
    definition = graphdef.definitions(graph, graph)
    return import_graph_def(definition, source=graph.source, graph=graph)


def import_graph(graph: Graph) -> tf.Graph:
    """The graph imported into a new ``tf.Graph`` to be run, under the same names."""
    check_functions(graph)
    return import_graph_def(graphdef.to_graph_def(graph), source=graph.source, graph=graph)


def check_functions(graph: Graph) -> None:
    """Refuse functions for which TensorFlow's shape functions would abort the process in its graph optimizer."""
    for name, function in function_library.functions_named(graph).items():
        if any(node.op in ops.RANKS for node in function.node_def) and function_library.is_closed(function):
            body = function_library.function_body(graph, name, None)
            for argument, kind, shape in zip(body.arguments, body.types, body.shapes, strict=True):
                body.graph.set_attr(argument, "dtype", kind)
                body.graph.set_attr(argument, "shape", shape)
            try:
                infer(body.graph)
            except GraphError as error:
                raise GraphError(f"in the function '{name}': {error.fault}", node=error.node, origin=graph.source,
                                 fix="correct the function where the graph is written") from error  # fmt: skip


def import_graph_def(graph_def: Any, *, source: str = "", graph: Graph | None = None) -> tf.Graph:
    """A GraphDef imported into a new ``tf.Graph``; TensorFlow's refusal becomes a GraphError."""
    with contextlib.suppress(*REFUSALS):
        return quick_import(graph_def)
    target = tf.Graph()
    try:
        with target.as_default(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tf.compat.v1.import_graph_def(graph_def, name="")
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise _refused(str(error), source, graph) from error
    return target


def _refused(words: str, source: str, graph: Graph | None) -> GraphError:
    """TensorFlow's error as a GraphError, with the node that the message names."""
    names = [group for match in _NODE_IN_MESSAGE.finditer(words) for group in match.groups() if group]
    unknown = None if graph is None else next((node for node in graph if not graph.knows_op(node.op)), None)
    if unknown is not None:  # TensorFlow's message names only the op type
        names, words = [unknown.name], f"the op {unknown.op} is not known to it"
    for node_name, fault in filter(None, map(validate.guarded_input, names)):
        names, words = [node_name], fault
    name = next((name for name in names if graph is not None and name in graph), names[0] if names else None)
    node = None if name is None or graph is None else graph.get(name)
    origin, fix = source, None
    if node is not None and node.made_by is not None:
        origin = f"{source}, made by {node.made_by}" + (f" for '{node.origin}'" if node.origin else "")
        fix = f"the fault is that of the pass {node.made_by}: report it with the graph, or leave it out with --passes"
    elif name is not None:
        fix = f"`tpugraph inspect MODEL --why={name}` shows the node: correct it where the graph is written"
    text = " ".join(words.partition("; NodeDef:")[0].split())
    return GraphError(f"TensorFlow refuses the graph: {text[:300]}", node=node or name, origin=origin, fix=fix)


def is_static(shape: Shape) -> bool:
    """Whether rank and every dimension are known."""
    return shape is not None and None not in shape


def element_count(shape: Shape) -> int | None:
    """The number of elements; None where the shape is not static."""
    return None if shape is None or None in shape else math.prod(dim or 0 for dim in shape)


def byte_size(tensor: Tensor) -> int | None:
    """The bytes of a tensor; None where shape or element size is unknown."""
    count, size = element_count(tensor.shape), tensor.dtype.size
    return None if count is None or size is None else count * size


def shown(shape: Shape) -> str:
    """A shape as error messages show it, such as ``[?,6]``."""
    return "of unknown rank" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"
