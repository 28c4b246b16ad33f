"""TensorFlow's bridge to XLA: lowers a library function to StableHLO bytecode, or names the node that the bridge refuses."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import zip_longest
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node, Tensor, function_library
from tpugraph.support.errors import RunError


class Refused(RunError):
    """TensorFlow's bridge to XLA refuses the step.

    Attributes:
        cause: ``kernel``, ``constant``, ``shape``, ``dtype`` or ``compiler``.
        operand: for the cause ``constant``, the index of the operand that is unknown at compile time.
    """

    def __init__(self, fault: str, cause: str, *, operand: int | None = None, **where: Any) -> None:
        super().__init__(fault, **where)
        self.cause = cause
        self.operand = operand


def export(
    graph: Graph,
    function: str,
    arguments: list[Tensor],
    variables: list[tuple[str, tuple[int, ...]]],
    sized: DataSized,
) -> bytes:
    """The StableHLO bytecode of a library function of ``arguments`` and then ``variables`` (dtype and shape)."""
    from tensorflow.python.eager import context

    if sized.fatal is not None:
        raise _without_form(graph, sized.behind(sized.fatal))
    specs = [tf.TensorSpec(t.shape, tf.as_dtype(t.dtype.name)) for t in arguments]
    with context.eager_mode(), tf.device("/device:CPU:0"), _registered(graph, function) as name:
        zeros = {like: _zeros(*like) for like in set(variables)}
        held = [_variable(zeros[like]) for like in variables]
        lowered = partial(context.context().get_compiler_ir, device_name=_HOST, platform_name=None, function_name=name,
                          flat_args=specs, captured_inputs=held)  # fmt: skip
        try:
            code = bytes(lowered(stage="stablehlo_serialized"))
            text = bytes(lowered(stage="stablehlo")).decode() if _NOT_STABLE in code else ""
        except (tf.errors.OpError, ValueError) as error:
            raise _refused(graph, str(error)) from error
    if text:
        node = _not_stable(text)
        raise _without_form(graph, sized.behind(node) if node else None)
    return code


def _without_form(graph: Graph, node: str | None) -> Refused:
    return Refused(
        "the size of a tensor depends on its values in a way that has no form in StableHLO", "shape",
        node=node, origin=graph.source,
        fix="make its size of constants, or use a mask of fixed shape instead of the rows themselves: "
            "tf.where(condition, x, y), multiply by a mask",
    )  # fmt: skip


_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


def _zeros(dtype: str, shape: tuple[int, ...]) -> tf.Tensor:
    """Zeros in untouched pages, since lowering does not read them; ``tf.zeros`` would write them."""
    kind = tf.as_dtype(dtype)
    if math.prod(shape) < _LARGE or not (kind.is_floating or kind.is_integer) or kind.size not in _ALIKE:
        return tf.zeros(shape, kind)
    found = tf.experimental.dlpack.from_dlpack(np.zeros(shape, _ALIKE[kind.size]).__dlpack__())
    return tf.bitcast(found, kind)


_LARGE = 2**20
_ALIKE = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
"""A NumPy dtype for each element size in bytes."""


def _variable(value: tf.Tensor) -> tf.Tensor:
    """The handle of an anonymous variable; ``tf.Variable`` takes ten times as long to make."""
    from tensorflow.python.eager import context

    name = context.anonymous_name()
    handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=name)
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle


@contextmanager
def _registered(graph: Graph, function: str) -> Iterator[str]:
    """Register the function and its callees with the eager runtime for the block; yields its name there.

    TensorFlow remembers the body of a removed function by name, so the registered names hold a digest of the bodies.
    """
    from tensorflow.python.eager import context

    library = function_library.functions_named(graph)
    called = _called(library, function)
    digest = hashlib.sha256()  # the order of attributes differs between processes
    for name in sorted(called):
        digest.update(library[name].SerializeToString(deterministic=True))
    names = {name: f"{name}_{digest.hexdigest()[:16]}" for name in called}
    for name, calls in called.items():
        context.context().add_function_def(_renamed(library[name], calls, names))
    try:
        yield names[function]
    finally:
        for name in called:
            context.context().remove_function(names[name])


def _renamed(function: Any, calls: list[int], names: dict[str, str]) -> Any:
    copy = type(function)()
    copy.CopyFrom(function)
    copy.signature.name = names[copy.signature.name]
    for node in (copy.node_def[index] for index in calls):
        node.op = names.get(node.op, node.op)
        for named in _named_in(node):
            named.name = names.get(named.name, named.name)
    return copy


def _called(library: dict[str, Any], function: str) -> dict[str, list[int]]:
    """The function and its transitive callees; for each, the indices of its nodes that call functions."""
    found: dict[str, list[int]] = {}
    stack = [function]
    while stack:
        name = stack.pop()
        if name in found:
            continue
        nodes = library[name].node_def
        calls = found[name] = [index for index, node in enumerate(nodes) if _takes_functions(node.op)]
        for node in (nodes[index] for index in calls):
            stack += [called for called in (node.op, *(f.name for f in _named_in(node))) if called in library]
    return found


@cache
def _takes_functions(op: str) -> bool:
    """Whether an op calls functions: by an attribute, or as a function called by its name, which has no OpDef."""
    definition = ops.op_def(op)
    return definition is None or any("func" in attribute.type for attribute in definition.attr)


def _named_in(node: Any) -> list[Any]:
    values = node.attr.values()
    return [f for value in values for f in ([value.func] if value.WhichOneof("value") == "func" else value.list.func)]


_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_NO_KERNEL = re.compile(r"No registered '(\w+)' OpKernel")
_NOT_CONSTANT = re.compile(r"Input (\d+) to node `([^`]+)` with op \w+ must be a compile-time constant")
_NOT_STABLE = b"\0unknown\0"
"""In MLIR bytecode, the op that the bridge writes where StableHLO has none."""

_NAMELESS = re.compile(r'"mhlo\.unknown"\(.* loc\((#loc\d+)\)$', re.MULTILINE)
_LOCATION = re.compile(r'^(#loc\d+) = loc\((?:fused\[(#loc\d+)|"([^"]+)")', re.MULTILINE)


def _not_stable(text: str) -> str | None:
    """The node of the first ``mhlo.unknown`` of a module."""
    found = _NAMELESS.search(text)
    places = {number: (inner, name) for number, inner, name in _LOCATION.findall(text)}
    number, name = found.group(1) if found else "", ""
    while number in places:
        number, name = places[number]
    return name or None


def _refused(graph: Graph, message: str) -> Refused:
    lines = [line.strip() for line in message.removeprefix("Failed getting HLO text: '").splitlines() if line.strip()]
    missing = dict.fromkeys(_NO_KERNEL.findall(message))
    fault = f"XLA has no kernel for {', '.join(missing)}" if missing else f"XLA refuses the step: {lines[0][:300]}"
    nodes = [name for name in _NODE.findall(message) if name not in function_library.functions_named(graph)]
    fix = ops.instead_of(next(iter(missing))) if missing else None
    if unknown := _NOT_CONSTANT.search(message):
        return Refused(fault, "constant", operand=int(unknown[1]), node=unknown[2], origin=graph.source, fix=fix)
    cause = "kernel" if missing else "compiler"
    return Refused(fault, cause, node=nodes[-1] if nodes else None, origin=graph.source, fix=fix)


# --------------------------------------------------------------------------- data-dependent shapes


class DataSized:
    """Data-dependent shapes of a cluster: nodes that make an open shape from static ones, and their descendants.

    Attributes:
        fatal: the name of a node that must not reach the bridge, or None: it aborts on a concatenation of a static and a
            data-dependent size, and miscompiles an elementwise op that may broadcast a data-dependent dimension.
    """

    def __init__(self, graph: Graph) -> None:
        self._followers = {
            node.name: {follower.name for follower in graph.descendants([node], data_only=True)}
            for node in graph
            if node.op not in ops.CONTAINERS | ops.CONTROL_FLOW and _opens(node)
        }
        joined = (n for n in graph.of_type(*ops.CONCATS) if _begins_static(n))
        picked = {name for node in graph.of_type(*PICKING) for name in self._followers.get(node.name, ())}
        repeated = (n for n in graph.of_type(*ops.ELEMENTWISE) if n.name in picked and _may_repeat(n))
        self.fatal = next((n.name for n in (*filter(self._is_behind, joined), *repeated)), None)

    def _is_behind(self, node: Node) -> bool:
        return self.behind(node.name) != node.name

    def behind(self, name: str) -> str:
        """The first node that introduces the data-dependent size of a node's operands; the node itself if none is known."""
        return next((source for source, reached in self._followers.items() if name in reached), name)


PICKING = ops.WHERES | ops.SLICES | ops.UNIQUE
"""Ops that select a data-dependent number of elements."""


def _opens(node: Node) -> bool:
    given = (tensor.shape for tensor in node.inputs)
    made = (shape for _, shape in node.outputs or ())
    return not _all_static(made) and _all_static(given)


def _begins_static(node: Node) -> bool:
    first, *others = (node.inputs[i].shape for i in ops.record(node.op).data_operands(len(node.inputs)))
    return shapes.is_static(first) and not _all_static(others)


def _may_repeat(node: Node) -> bool:
    """Whether an unknown dimension is combined with one of size above 1: XLA assumes equal sizes."""
    given = [tensor.shape[::-1] for tensor in node.inputs if tensor.shape]
    return any(None in sizes and max(size or 1 for size in sizes) > 1 for sizes in zip_longest(*given, fillvalue=1))


def _all_static(found: Iterable[tuple[int | None, ...] | None]) -> bool:
    return all(shapes.is_static(shape) for shape in found)
