"""Makes a training graph repeatable: random ops and shuffles get seeds, and datasets hand their elements on in order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.ir import Graph, attrs, function_library, graphdef
from tpugraph.support.wording import first_of

_SEED = 20_111
_SEEDS = ("seed", "seed2")
_SLOPPY_REWRITE = b"make_sloppy"
"""The rewrite by which TensorFlow 1's tf.data implements ``experimental_deterministic = False``."""


def repeatable(graph: Graph, notes: list[str]) -> Graph:
    """A copy of a plain graph that computes the same in each run; ``notes`` get one on the datasets that did not.

    Random ops and shuffles without a seed get one, in functions too. A dataset that hands elements on as soon as they are there,
    or draws random numbers for several at a time, hands them on in order, one by one.
    """
    ordered: list[str] = []
    copied = graphdef.copy(graph, lambda graph_def: _edit(graph_def, ordered))
    if ordered:
        notes.append(
            f"the input gives other batches in each run; in this comparison {first_of(ordered)} hand elements on in order"
        )
    return copied


def _edit(graph_def: Any, ordered: list[str]) -> None:
    functions, numbers = graph_def.library.function, count(1)
    drawing = _drawing(functions)
    for body in (_Body(graph_def.node, ""), *(_Body(function.node_def, ":output:0") for function in functions)):
        for node in list(body.nodes):
            number = next(numbers)
            if node.op in ops.RANDOM and ops.attr_names(node.op).issuperset(_SEEDS):
                if not any(node.attr[key].i for key in _SEEDS if key in node.attr):
                    body.change(node, {"seed": _SEED, "seed2": number})
            elif ops.is_dataset(node.op):
                given = body.given(node)
                if all(key in given and not given[key].any() for key in _SEEDS):
                    body.change(node, {"seed": _SEED, "seed2": _SEED + 1})
                if loose := _loose(node, given, drawing):
                    ordered.append(node.name)
                    body.change(node, loose)


def _drawing(functions: Any) -> set[str]:
    """Random ops, reads of iterators, and the functions that call them."""
    calls = {function.signature.name: set(function_library.calls(function)) for function in functions}
    found = {*ops.RANDOM, *ops.GET_NEXT}
    while more := {name for name, called in calls.items() if name not in found and called & found}:
        found |= more
    return found


def _loose(node: Any, given: Mapping[str, Any], drawing: set[str]) -> dict[str, Any]:
    """The operands and attributes by which the elements of a dataset depend on timing, with values by which they do not."""
    found: dict[str, Any] = {}
    if given.get("deterministic") == "false":
        found["deterministic"] = "true"
    if given.get("sloppy", False):
        found["sloppy"] = False
    rewrites = list(given.get("optimizations", ()))
    if _SLOPPY_REWRITE in rewrites:
        found["optimizations"] = [name for name in rewrites if name != _SLOPPY_REWRITE]
    if "serialized_options" in given and (options := attrs.in_order(node.attr["serialized_options"])) is not None:
        found["serialized_options"] = options
    if any(node.attr[key].func.name in drawing for key in ops.function_attrs(node.op)):
        found |= {key: 1 for key in _operands(node) if key in ("num_parallel_calls", "prefetch_input_elements")}
    return found


class _Body:
    """The NodeDefs of a graph or of a function, whose inputs name the output of a constant with a suffix."""

    def __init__(self, nodes: Any, suffix: str) -> None:
        self.nodes, self._suffix = nodes, suffix
        self._constants = {node.name: node for node in nodes if node.op in ops.CONSTANTS}

    def given(self, node: Any) -> dict[str, Any]:
        """A node's plain attributes, and its operands that are constants."""
        plain = {
            key: attrs.decode(value) for key, value in node.attr.items() if value.WhichOneof("value") in ("b", "s")
        }
        operands = zip(_operands(node), node.input, strict=False)
        read = {key: self._constants.get(text.partition(":")[0]) for key, text in operands}
        return plain | {key: attrs.decode(one.attr["value"]) for key, one in read.items() if one is not None}

    def change(self, node: Any, values: Mapping[str, Any]) -> None:
        """Set attributes, and operands to new constants; a parallel interleave becomes one of a single thread instead."""
        if "cycle_length" in _operands(node):
            _interleave(node)
            return
        operands, kinds = _operands(node), {argument.name: argument.type for argument in ops.op_def(node.op).input_arg}
        for key, value in values.items():
            if key in operands:
                constant = self.nodes.add(name=f"{node.name}/{key}/repeatable", op="Const", device=node.device)
                constant.attr["dtype"].type = kinds[key]
                constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, kinds[key]))
                node.input[operands.index(key)] = constant.name + self._suffix
            else:
                node.attr[key].CopyFrom(attrs.encode(value))


def _operands(node: Any) -> list[str]:
    """The name of each operand in the op's definition; those of a list share one."""
    found = attrs.definition(node.op)
    return [name for name, _ in found.names(found.inputs, node.attr)]


def _interleave(node: Any) -> None:
    """Make a single thread read what several read: one call at a time would still prefetch."""
    single, names = "InterleaveDataset", _operands(node)
    known = {argument.name for argument in attrs.definition(single).inputs}
    controls = node.input[len(names) :]
    node.input[:] = [text for name, text in zip(names, node.input, strict=False) if name in known] + controls
    for key in [key for key in node.attr if key[0] != "_" and key not in ops.attr_names(single)]:
        del node.attr[key]
    node.op = single
