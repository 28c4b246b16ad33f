"""Which ops of the device XLA has no kernel for, by the kernel table of the installed TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tpugraph import ops
from tpugraph.analysis import trip_counts
from tpugraph.ir import Graph, Node, attrs, function_library
from tpugraph.ir.attrs import DType, Func
from tpugraph.xla.stablehlo import REDUCED

LOWERED = (
    ops.CONTROL_FLOW
    | ops.TPU_SYSTEM
    | ops.VARIABLES
    | ops.GROUPS
    | ops.CONSTANTS
    | ops.STATELESS.keys()
    | ops.DENSE_STEPS.keys()
    | ops.READS_OF_PLACES
) - ops.REPLACEMENTS.keys()
"""Ops that XLA never sees: the lowering puts them differently."""


@dataclass(frozen=True)
class Missing:
    """What XLA lacks for one node.

    Attributes:
        node: the node's name; ``caller/inner`` for a node of a library function.
        op: its op type.
        cause: ``kernel``, ``text``, ``host``, ``dtype``, ``attribute``, ``loop``, or ``device``: XLA has a kernel, a TPU has not.
        fault: one sentence.
        fix: what to write instead, where that is known.
    """

    node: str
    op: str
    cause: str
    fault: str
    fix: str | None


@cache
def kernels() -> Mapping[str, tuple[Mapping[str, frozenset[Any]], ...]]:
    """The op types with XLA kernels; for each kernel, the values that it takes of the attributes it restricts."""
    from tensorflow.python.framework import kernels as registry
    from tensorflow.python.util import pywrap_xla_ops

    pywrap_xla_ops.get_cpu_kernel_names()  # registers them
    found: dict[str, list[dict[str, frozenset[Any]]]] = {}
    for kernel in registry.get_all_registered_kernels().kernel:
        if kernel.device_type == "XLA_CPU_JIT":
            taken = {c.name: frozenset(attrs.decode(c.allowed_values) or ()) for c in kernel.constraint}
            found.setdefault(kernel.op, []).append(taken)
    return {op: tuple(taken) for op, taken in found.items()}


def missing(graph: Graph, device: Iterable[Node]) -> Iterator[Missing]:
    """What XLA lacks for the nodes of the device and for those of the functions that they call.

    Args:
        graph: the graph with its library.
        device: the nodes.
    """
    library = function_library.functions_named(graph)
    for node in device:
        if node.op in ops.ALL_REDUCES and node.attr("T").name not in REDUCED:
            yield Missing(node.name, node.op, "dtype", f"XLA has no all-reduce of {node.attr('T')}",
                          f"train the variable in one of {', '.join(sorted(REDUCED))}")  # fmt: skip
        if node.op not in LOWERED:
            yield from _of(node.name, ops.TO_RESOURCE.get(node.op, node.op), _decoded(node.raw_attrs), library, ())


def _decoded(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attrs.decode(value) for name, value in raw.items() if name[0] != "_"}


def _of(
    name: str, op: str, decoded: dict[str, Any], library: Mapping[str, Any], inside: tuple[str, ...]
) -> Iterator[Missing]:
    called = [value.name for value in decoded.values() if isinstance(value, Func)]
    called += [f.name for value in decoded.values() if isinstance(value, list) for f in value if isinstance(f, Func)]
    for function in [*called, op]:
        if function in library and function not in inside:
            yield from _in_function(name, library[function], library, (*inside, function))
    found = None if op in library else _judge(name, op, decoded)
    if found is not None:
        yield found


def _in_function(name: str, function: Any, library: Mapping[str, Any], inside: tuple[str, ...]) -> Iterator[Missing]:
    for node in function.node_def:
        if node.op not in LOWERED:
            yield from _of(f"{name}/{node.name}", node.op, _decoded(node.attr), library, inside)


def _judge(name: str, op: str, decoded: Mapping[str, Any]) -> Missing | None:
    kinds = {key: value for key, value in decoded.items() if isinstance(value, DType)}
    if op in ops.STACKS and any(kind.name == "resource" for kind in kinds.values()):
        return Missing(name, op, "loop", *trip_counts.NESTED)
    if op not in kernels():
        return _without_kernel(name, op, _works_on_text(op, kinds.values()))
    lacks = ops.TPU_LACKS.get(op, frozenset())
    lacked = next((kind for kind in kinds.values() if kind.name in lacks), None)
    if lacked is not None:
        return Missing(name, op, "device", f"a TPU has no {op} of {lacked}", "cast to a dtype of half the size")
    attribute, value, instead = ops.XLA_REFUSES.get(op, ("", None, ""))
    if attribute and decoded.get(attribute) == value:
        return Missing(name, op, "attribute", f"XLA does not take {op} with {attribute}={value}", instead)
    refused = [_refused(taken, decoded) for taken in kernels()[op]]
    if None in refused:
        return None
    key, values = next(found for found in refused if found is not None)
    listed = ", ".join(sorted(map(str, values)))
    cause = "dtype" if key in kinds else "attribute"
    fix = f"cast to one of {listed}" if key in kinds else f"set it to one of {listed}"
    return Missing(name, op, cause, f"XLA's kernel for {op} does not take {key}={decoded[key]}", fix)


def _works_on_text(op: str, kinds: Iterable[DType]) -> bool:
    definition = ops.op_def(op)
    arguments = () if definition is None else (*definition.input_arg, *definition.output_arg)
    fixed = {attrs.dtype(argument.type) for argument in arguments if argument.type}
    return any(kind.name == "string" for kind in (*kinds, *fixed))


def _without_kernel(name: str, op: str, text: bool) -> Missing:
    if ops.is_host_only(op):
        return Missing(name, op, "host", f"{op} runs on a host only", "compute it in the input function")
    if text:
        return Missing(name, op, "text", f"{op} works on text, which no TPU does",
                       "turn text into numbers in the input function")  # fmt: skip
    return Missing(name, op, "kernel", f"XLA has no kernel for {op}", ops.instead_of(op))


def _refused(taken: Mapping[str, frozenset[Any]], decoded: Mapping[str, Any]) -> tuple[str, frozenset[Any]] | None:
    """The first attribute whose value a kernel does not take, with those it takes."""
    for key, values in taken.items():
        value = decoded.get(key)
        given = value if isinstance(value, list) else [] if value is None else [value]
        if any(item not in values for item in given):
            return key, values
    return None
