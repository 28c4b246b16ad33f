"""The copies of N cores as one computation on stacked values.

``tf.vectorized_map`` knows for some hundred ops how they work on values with a leading dimension of cores: a MatMul with
a variable becomes one MatMul on the rows of all cores. What it has no rule for, or rules that XLA does not compile, stays
copied core by core.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import NodeSet
from tpugraph.analysis.values import known_value
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import reached
from tpugraph.runtime.emulator.copies import Copies


def stack(graph: Graph, copies: Copies, chosen: NodeSet, compiled: Collection[str]) -> NodeSet:
    """Replace the copies among the chosen nodes by stacked ones; returns what is chosen then."""
    part = _part(graph, copies, chosen) if copies.count > 1 else None
    if part is None:
        return chosen
    made = _vectorize(part, copies.count)
    if made is None or any(op.type not in compiled and op.type != "Placeholder" for op in made.operations):
        return chosen
    return _replace(graph, copies, chosen, part, made)


@dataclass
class _Part:
    """What is copied, by its node of core 0, and what it reads and gives."""

    nodes: list[Node]
    same: list[Tensor]  # read by all cores alike
    per_core: dict[Tensor, list[Tensor]]  # of what core 0 reads: what each core reads
    results: list[Tensor]


@dataclass
class _Made:
    operations: list[Any]
    same: list[Any]
    per_core: list[Any]
    results: list[Any]


def _part(graph: Graph, copies: Copies, chosen: NodeSet) -> _Part | None:
    """The copied nodes that lie before anything the cores share again; None where there are none, or no simple ones."""
    inside: NodeSet = {}
    behind: NodeSet = {}  # what follows the copied nodes without being one
    for node in graph.topological_order(chosen):
        group = copies.nodes(node) if copies.varies(node) else [node]
        if len(group) > 1 and group[0] is not node:
            if group[0] not in inside:
                behind[node] = None
            continue
        producers = [t.node for t in node.inputs]
        copied = len(group) > 1 and all(n in chosen for n in group) and node.op not in ops.WRITES and bool(producers)
        if copied and not any(p in behind for p in producers):
            inside[node] = None
        elif any(p in behind or copies.nodes(p)[0] in inside for p in producers if copies.varies(p) or p in behind):
            behind[node] = None
    same: dict[Tensor, None] = {}
    per_core: dict[Tensor, list[Tensor]] = {}
    for node in inside:
        for index, tensor in enumerate(node.inputs):
            each = [copy.inputs[index] for copy in copies.nodes(node)]
            if tensor.node in inside:
                if each != [copies.tensor(tensor, core) for core in range(copies.count)]:
                    return None
            elif all(t == tensor for t in each):
                same[tensor] = None
            elif per_core.setdefault(tensor, each) != each:
                return None
    if not per_core or any(t.dtype.name == "resource" for t in (*same, *per_core)):
        return None
    group_of = {copy: node for node in inside for copy in copies.nodes(node)}
    results = [node.out(port) for node in inside
               for port in sorted({p for copy in copies.nodes(node) for p in copy.used_ports()})
               if any(use.node not in group_of for copy in copies.nodes(node) for use in copy.uses(port))]  # fmt: skip
    return _Part(list(inside), list(same), per_core, results) if results else None


def _vectorize(part: _Part, count: int) -> _Made | None:
    """The part on stacked values, as TensorFlow ops; None where there is no rule for an op."""
    names = {t: f"same{i}:0" for i, t in enumerate(part.same)} | {t: f"core{i}:0" for i, t in enumerate(part.per_core)}
    own = {node: f"n{i}" for i, node in enumerate(part.nodes)}
    definition = function_library.sub_graph_def(own, names)
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        same = [_given(t) for t in part.same]
        per_core = [v1.placeholder(t.dtype.name, (count, *(t.shape or ()))) for t in part.per_core]

        def one_core(values: list[Any]) -> list[Any]:
            given = [*zip(part.same, same, strict=True), *zip(part.per_core, values, strict=True)]
            wanted = [f"{own[t.node]}:{t.port}" for t in part.results]
            read = {names[t]: value for t, value in given}
            found: list[Any] = v1.import_graph_def(definition, input_map=read, return_elements=wanted, name="core")
            return found

        logger, level = tf.get_logger(), tf.get_logger().level
        logger.setLevel("CRITICAL")  # an op that it does not vectorize is an error to it; such a part runs core by core
        try:
            results = tf.vectorized_map(one_core, per_core, fallback_to_while_loop=False)
        except (ValueError, TypeError, NotImplementedError, tf.errors.OpError):
            return None
        finally:
            logger.setLevel(level)
        needed = reached((t.op for t in results), lambda operation: (t.op for t in operation.inputs))
        fits = all(t.shape[0] == count for t in results)
        return _Made([op for op in graph.get_operations() if op in needed], same, per_core, results) if fits else None


def _given(tensor: Tensor) -> Any:
    """What all cores read alike: a constant, so that shapes are known (of a sum over computed axes too), or a placeholder."""
    value = known_value(tensor)
    if value is not None:
        return tf.constant(value, tensor.dtype.name)
    return tf.compat.v1.placeholder(tensor.dtype.name, tensor.shape)


def _replace(graph: Graph, copies: Copies, chosen: NodeSet, part: _Part, made: _Made) -> NodeSet:
    anchor = next(iter(part.per_core)).node  # runs in each step
    before, make = set(graph), Builder(graph, "tpugraph/stacked")
    same = zip(made.same, part.same, strict=True)
    held = {value.ref(): tensor for value, tensor in same if value.op.type == "Placeholder"}
    for value, each in zip(made.per_core, part.per_core.values(), strict=True):
        held[value.ref()] = _stacked_input(each, make)
    for operation in made.operations:
        if operation.type == "Placeholder":
            continue
        inputs = [held[t.ref()] for t in operation.inputs]
        node = graph.add(operation.type, f"{make.scope}/{operation.name}", inputs, attrs=dict(operation.node_def.attr),
                         outputs=[_known(t) for t in operation.outputs], controls=() if inputs else [anchor])  # fmt: skip
        held.update((t.ref(), node.out(port)) for port, t in enumerate(operation.outputs))
    gone = {copy: None for node in part.nodes for copy in copies.nodes(node)}
    for tensor, value in zip(part.results, made.results, strict=True):
        _deliver(copies, tensor, held[value.ref()], gone, make, anchor)
    new = [node for node in graph if node not in before]
    graph.remove_all([node for node in new if node.op in ops.MATMULS_EACH and not node.consumers()])
    for waiting in dict.fromkeys(w for node in gone for w in node.control_uses() if w not in gone):
        kept = [c for c in waiting.controls if c not in gone]
        graph.set_controls(waiting, kept if kept or waiting.inputs else [anchor])
    graph.remove_all(gone)
    for node in [node for node in chosen if node.op in ops.GROUPS and copies.varies(node)]:
        _wait_once(graph, copies.nodes(node))
    return {node: None for node in (*chosen, *new) if node not in gone and node in graph}


def _wait_once(graph: Graph, group: list[Node]) -> None:
    """Let one node wait for what each core's copy of it waited for."""
    first, *others = group
    for node in others:
        graph.add_controls(first, node.controls)
        graph.replace_control_uses(node, [first])
    graph.remove_all(others)


def _known(tensor: Any) -> tuple[attrs.DType, attrs.Shape]:
    shape = tensor.shape
    return attrs.dtype(tensor.dtype.as_datatype_enum), None if shape.rank is None else tuple(shape.as_list())


def _stacked_input(each: list[Tensor], make: Builder) -> Tensor:
    source = each[0].node
    unpacks = source.op in ops.UNPACKS and source.attr("axis", 0) == 0
    if unpacks and each == [source.out(i) for i in range(source.attr("num"))]:
        return source.inputs[0]
    return make.add("Pack", each, (len(each), *(each[0].shape or ())), name="input", axis=0)


def _deliver(copies: Copies, tensor: Tensor, value: Tensor, gone: NodeSet, make: Builder, anchor: Node) -> None:
    """Let the readers of the copies read the stacked value: sums over the cores as a whole, others their core's part."""
    each = [copies.tensor(tensor, core) for core in range(copies.count)]
    for use in each[0].node.uses(tensor.port):
        if use.node.op in ops.ADD_N and list(use.node.inputs) == each:
            _sum(use.node, value, make, anchor)
    if not any(use.node not in gone for t in each for use in t.node.uses(t.port)):
        return
    shapes = [tensor.shape or ()] * copies.count
    pieces = make.node("Unpack", [value], name="core", shapes=shapes, num=copies.count, axis=0)
    for core, old in enumerate(each):
        make.graph.replace_uses(old, pieces.out(core), where=lambda use: use.node not in gone)


def _sum(total: Node, value: Tensor, make: Builder, anchor: Node) -> None:
    """Make the sum over the cores of a stacked value; of the gradients of a weight one product over the rows of all cores."""
    made = value.node
    if made.op in ops.MATMULS_EACH and made.attr("adj_x") and not made.attr("adj_y") and len(value.shape or ()) == 3:
        sides = [_all_rows(operand, make, anchor) for operand in made.inputs]
        attributes = {"T": value.dtype, "transpose_a": True, "transpose_b": False}
        make.graph.retype(total, "MatMul", inputs=sides, attrs=attributes)
        return
    axis = make.constant(np.zeros(1, "int32"), name="cores", controls=[anchor])
    attributes = {"T": value.dtype, "Tidx": axis.dtype, "keep_dims": False}
    make.graph.retype(total, "Sum", inputs=[value, axis], attrs=attributes)


def _all_rows(operand: Tensor, make: Builder, anchor: Node) -> Tensor:
    """[cores, rows, width] as [cores * rows, width]."""
    cores, rows, width = (size or 0 for size in operand.shape or ())  # what is compiled has a static shape
    shape = make.constant(np.asarray([cores * rows, width], "int32"), name="rows", controls=[anchor])
    return make.add("Reshape", [operand, shape], (cores * rows, width), name="rows")
