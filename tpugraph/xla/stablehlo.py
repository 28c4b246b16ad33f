"""Lowers the cluster of a TPU graph to StableHLO: one module for one core, with collectives over all of them.

TensorFlow's own bridge makes the module from a function; it runs nothing. What the bridge has no kernel for is put
differently first: sums over the cores become all-reduces, stateful random ops become stateless ones with a stream of each
core, TF1 loops and conditionals become functional ones.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.trip_counts import bound_stacks
from tpugraph.control_flow import scopes
from tpugraph.control_flow.functionalize_while import raise_control_flow
from tpugraph.control_flow.stacks import begin_stacks
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library
from tpugraph.ir.reach import reaching
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ConversionError, RunError
from tpugraph.support.garbage import without_garbage_collection
from tpugraph.xla import step_function as clusters
from tpugraph.xla.data_sized import DataSized
from tpugraph.xla.dense_updates import make_dense
from tpugraph.xla.legalize import make_quick, reduce_over_all
from tpugraph.xla.module import Module, Value
from tpugraph.xla.stateless_random import own_streams
from tpugraph.xla.step_function import Cluster

REDUCED = frozenset({"float16", "bfloat16", "float32", "int32", "uint32"})
"""What XLA's all-reduce of the bridge takes; of these, halves as float32."""

_HALVES = frozenset({"float16", "bfloat16"})
_FLOAT32 = attrs.dtype("float32")


class Refused(RunError):
    """TensorFlow's bridge to XLA does not take the step.

    Attributes:
        cause: ``kernel``, ``constant``, ``shape`` or ``compiler``: what its complaint is about.
    """

    def __init__(self, fault: str, cause: str, **where: Any) -> None:
        super().__init__(fault, **where)
        self.cause = cause


def lower(graph: Graph, *, iterations: int | None = None) -> Module:
    """Lower the cluster of a TPU graph that has its entry points. The graph is used up.

    Args:
        graph: the TPU graph.
        iterations: the most steps of one call; the graph's own iterations_per_loop if not given.

    Raises:
        ConversionError: control flow that cannot be raised; the node is named.
        RunError: no TPU graph.
        Refused: TensorFlow's bridge to XLA refuses a node, which is named.
    """
    with without_garbage_collection():
        return _lower(graph, iterations)


def _lower(graph: Graph, iterations: int | None) -> Module:
    started = time.perf_counter()
    graph.stage = "stablehlo"
    _refuse_reaching(graph)
    shapes_of = _variable_shapes(graph)
    begin_stacks(graph)
    found = clusters.cut(graph, iterations=iterations)
    reduces = _all_reduces(found)
    sized = DataSized(graph)
    make_dense(found, shapes_of)
    make_quick(graph)
    seed = own_streams(found)
    bound_stacks(graph)
    raised = raise_control_flow(graph)
    plain = [("count", "", found.count), ("seed", "", seed)]
    plain += [("infeed", str(i), t) for i, t in enumerate(found.infeed)]
    plain += [("host", name, t) for name, t in found.host.items()]
    results = [("outfeed", str(i), t) for i, t in enumerate(found.outfeed)]
    results += [("output", name, t) for name, t in found.outputs.items()]
    arguments = [*(t for *_, t in plain), *found.variables.values()]
    given = {t.node for t in arguments}
    function = scopes.make_function(
        graph,
        "tpugraph_cluster",
        [node for node in graph if node not in given],
        [[t] for t in arguments],
        [t for *_, t in results],
    )
    raised_at = time.perf_counter()
    variables = {name: shapes_of[name] for name in found.variables}
    code = _export(graph, function, [t for *_, t in plain], list(variables.values()), sized)
    takes = [*(_value(*held) for held in plain), *(Value("variable", name, *held) for name, held in variables.items())]
    gives = [_value(*held) for held in results]
    gives += [Value("variable", name, *variables[name]) for name in found.variables if name in found.written]
    seconds = {"rewrite": raised_at - started, "export": time.perf_counter() - raised_at}
    facts = {"all_reduces": reduces, "loops": raised.loops, "conditionals": raised.branches}
    return Module(code, found.num_replicas, found.iterations, tuple(takes), tuple(gives), seconds, facts)


def _refuse_reaching(graph: Graph) -> None:
    """Refuse a step that reaches outside: TensorFlow's bridge folds constants, for which it runs ops, and files are no constants."""
    for found in reaching(graph, graph.with_attr(CLUSTER_ATTR)):
        raise ConversionError(f"the step {found.words} on the device: {found.op}", node=found.node, origin=graph.source,
                              fix="do that in the input function: a device reaches no host")  # fmt: skip


def _value(kind: str, name: str, tensor: Tensor) -> Value:
    return Value(kind, name, tensor.dtype.name, tuple(d or 0 for d in tensor.shape or ()))


def _variable_shapes(graph: Graph) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape of each variable."""
    found = {}
    for node in graph.of_type(*ops.RESOURCE_VARIABLES):
        found[node.name] = node.attr("dtype").name, tuple(node.attr("shape") or ())
    return found


def _all_reduces(found: Cluster) -> int:
    """Turn CrossReplicaSum into XLA's all-reduce; returns how many there are."""
    nodes = found.graph.of_type("CrossReplicaSum")
    for index, node in enumerate(nodes):
        kind = node.attr("T")
        if found.num_replicas == 1:
            found.graph.retype(node, "Identity", inputs=node.inputs[:1], attrs={"T": kind})
            continue
        if kind.name not in REDUCED:
            raise RunError(
                f"XLA has no all-reduce of {kind}", node=node, fix=f"cast it to one of {', '.join(sorted(REDUCED))}"
            )
        total = _widened(found.graph, node) if kind.name in _HALVES else node
        if not reduce_over_all(found.graph, total, found.num_replicas, index):
            attributes = {"T": total.attr("T"), "reduce_op": "Add", "mode": "CrossReplica"}
            found.graph.retype(total, "XlaAllReduce", attrs=attributes)
    return len(nodes) if found.num_replicas > 1 else 0


def _widened(graph: Graph, node: Node) -> Node:
    """A sum of halves over the cores as one of float32, which is returned: the node becomes the Cast of it to halves.

    The bridge adds halves up as float32 in any case, and then writes an all-reduce of two dtypes, which no compiler takes.
    """
    value, groups = node.inputs
    half, output = node.attr("T"), (_FLOAT32, value.shape)
    wide = graph.add("Cast", f"{node.name}/wide", [value], outputs=[output], source=node,
                     attrs={"SrcT": half, "DstT": _FLOAT32, "Truncate": False, CLUSTER_ATTR: CLUSTER})  # fmt: skip
    total = graph.add("CrossReplicaSum", f"{node.name}/sum", [wide.out(), groups], outputs=[output], source=node,
                      attrs={"T": _FLOAT32, CLUSTER_ATTR: CLUSTER})  # fmt: skip
    graph.retype(node, "Cast", inputs=[total.out()], attrs={"SrcT": _FLOAT32, "DstT": half, "Truncate": False})
    return total


# --------------------------------------------------------------------------- TensorFlow's bridge


def _export(
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
    """
    from tensorflow.python.eager import context

    specs = [tf.TensorSpec(t.shape, tf.as_dtype(t.dtype.name)) for t in arguments]
    with context.eager_mode(), tf.device("/device:CPU:0"), _registered(graph, function) as name:
        zeros = {like: tf.zeros(like[1], tf.as_dtype(like[0])) for like in set(variables)}
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
        raise Refused(
            "the size of a tensor depends on its values in a way that has no form in StableHLO", "shape",
            node=sized.behind(node) if node else None, origin=graph.source,
            fix="make its size of constants, or use a mask of fixed shape instead of the rows themselves: "
                "tf.where(condition, x, y), multiply by a mask",
        )  # fmt: skip
    return code


_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


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
    called = sorted(_called(library, function))  # attributes come in an order of their own in each process
    digest = hashlib.sha256(b"".join(library[name].SerializeToString(deterministic=True) for name in called))
    names = {name: f"{name}_{digest.hexdigest()[:16]}" for name in called}
    for name in called:
        context.context().add_function_def(_renamed(library[name], names))
    try:
        yield names[function]
    finally:
        for name in called:
            context.context().remove_function(names[name])


def _renamed(function: Any, names: dict[str, str]) -> Any:
    copy = type(function)()
    copy.CopyFrom(function)
    copy.signature.name = names[copy.signature.name]
    for node in copy.node_def:
        node.op = names.get(node.op, node.op)
        for value in node.attr.values():
            for named in [value.func] if value.WhichOneof("value") == "func" else value.list.func:
                named.name = names.get(named.name, named.name)
    return copy


def _called(library: dict[str, Any], function: str) -> set[str]:
    """The function and those that it calls, directly or not."""

    def called(name: str) -> Iterator[str]:
        for node in library[name].node_def:
            for value in node.attr.values():
                named = [value.func] if value.WhichOneof("value") == "func" else value.list.func
                yield from (f.name for f in named if f.name in library)
            if node.op in library:
                yield node.op

    return set(reached((function,), called))


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
