"""TensorFlow's bridge to XLA: StableHLO bytecode of a library function, or what the bridge has against it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.ir import Graph, Tensor, function_library
from tpugraph.support.errors import RunError
from tpugraph.xla.data_sized import DataSized


class Refused(RunError):
    """TensorFlow's bridge to XLA does not take the step.

    Attributes:
        cause: ``kernel``, ``constant``, ``shape``, ``dtype`` or ``compiler``: what its complaint is about.
    """

    def __init__(self, fault: str, cause: str, **where: Any) -> None:
        super().__init__(fault, **where)
        self.cause = cause


def export(
    graph: Graph,
    function: str,
    arguments: list[Tensor],
    variables: list[tuple[str, tuple[int, ...]]],
    sized: DataSized,
) -> bytes:
    """The StableHLO bytecode of a library function.

    Args:
        graph: the graph with the library.
        function: the function's name.
        arguments: its arguments that are no variables.
        variables: dtype and shape of each variable, which follow.
        sized: what has a size that the data decide, for errors.

    Raises:
        Refused: the bridge does not take the function; the node is named.
    """
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
    """Zeros that take memory where they are read, which lowering does nowhere; ``tf.zeros`` would write large ones out."""
    kind = tf.as_dtype(dtype)
    if math.prod(shape) < _LARGE or not (kind.is_floating or kind.is_integer) or kind.size not in _ALIKE:
        return tf.zeros(shape, kind)
    found = tf.experimental.dlpack.from_dlpack(np.zeros(shape, _ALIKE[kind.size]).__dlpack__())
    return tf.bitcast(found, kind)


_LARGE = 2**20
_ALIKE = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
"""A dtype of NumPy's by the bytes of an element."""


def _variable(value: tf.Tensor) -> tf.Tensor:
    """The handle of a variable that lives as long as the handle; ``tf.Variable`` takes ten times as long to make."""
    from tensorflow.python.eager import context

    name = context.anonymous_name()
    handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=name)
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle


@contextmanager
def _registered(graph: Graph, function: str) -> Iterator[str]:
    """The function and all that it calls, known to the eager runtime for as long as the block lasts; gives its name.

    TensorFlow remembers the body of a function by its name even when the function is gone, so the names that it is
    given hold a digest of all the bodies.
    """
    from tensorflow.python.eager import context

    library = function_library.functions_named(graph)
    called = _called(library, function)
    digest = hashlib.sha256()  # attributes come in an order of their own in each process
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
    """The function and those that it calls, directly or not; of each, which of its nodes call others."""
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
    """Whether an op calls functions: its definition says so, or it has none, as a function that is called by its name."""
    definition = ops.op_def(op)
    return definition is None or any("func" in attribute.type for attribute in definition.attr)


def _named_in(node: Any) -> list[Any]:
    """The functions that the attributes of a node name."""
    values = node.attr.values()
    return [f for value in values for f in ([value.func] if value.WhichOneof("value") == "func" else value.list.func)]


_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_NO_KERNEL = re.compile(r"No registered '(\w+)' OpKernel")
_NOT_CONSTANT = re.compile(r"must be a compile-time constant")
_NOT_STABLE = b"\0unknown\0"
"""The name of the op that the bridge writes where StableHLO has none, as the strings of MLIR's bytecode hold it."""

_NAMELESS = re.compile(r'"mhlo\.unknown"\(.* loc\((#loc\d+)\)$', re.MULTILINE)
_LOCATION = re.compile(r'^(#loc\d+) = loc\((?:fused\[(#loc\d+)|"([^"]+)")', re.MULTILINE)
"""A place in the text of a module: the number of another one, or the name of a node."""


def _not_stable(text: str) -> str | None:
    """The node of the first op of a module that StableHLO does not have."""
    found = _NAMELESS.search(text)
    places = {number: (inner, name) for number, inner, name in _LOCATION.findall(text)}
    number, name = found.group(1) if found else "", ""
    while number in places:
        number, name = places[number]
    return name or None


def _refused(graph: Graph, message: str) -> Refused:
    """The bridge's complaint with the node of the user's graph that it is about."""
    lines = [line.strip() for line in message.removeprefix("Failed getting HLO text: '").splitlines() if line.strip()]
    missing = dict.fromkeys(_NO_KERNEL.findall(message))
    fault = f"XLA has no kernel for {', '.join(missing)}" if missing else f"XLA refuses the step: {lines[0][:300]}"
    nodes = [name for name in _NODE.findall(message) if name not in function_library.functions_named(graph)]
    fix = ops.instead_of(next(iter(missing))) if missing else None
    cause = "kernel" if missing else "constant" if _NOT_CONSTANT.search(message) else "compiler"
    return Refused(fault, cause, node=nodes[-1] if nodes else None, origin=graph.source, fix=fix)
