"""Input pipelines that are not deterministic: sloppy ones, and random ones without a seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tpugraph import ops
from tpugraph.ir import Graph, Node, attrs, function_library, validate

_SLOPPY_REWRITE = b"make_sloppy"
"""How the rewrites of TensorFlow 1's tf.data name what ``experimental_deterministic = False`` asks for."""

_LOOKED_AT = ("deterministic", "sloppy", "seed", "seed2")


def why_not_repeatable(graph: Graph, datasets: Iterable[Node]) -> list[str]:
    """Why datasets of a plain graph give other elements when they are read again, a sentence for each reason that is found."""
    behind = graph.ancestors(datasets)
    nodes = [node for node in graph if node in behind and ops.is_dataset(node.op)]
    reasons = [f"'{node.name}' hands elements on as soon as they are there" for node in nodes if _is_sloppy(node)]
    reasons += [f"'{node.name}' is read on from where it stands" for node in behind if node.op in ops.ITERATORS]
    for node in function_library.callers(graph, nodes):
        reasons += _reasons_in(graph, node)
    return list(dict.fromkeys(reasons))


def _is_sloppy(node: Node) -> bool:
    """Whether a dataset's elements come in the order in which they are done."""
    if node.attr("deterministic", "") == "false" or node.attr("sloppy", False):
        return True
    if node.has_attr("serialized_options"):
        return attrs.keeps_order(node.raw_attrs["serialized_options"]) is False
    return any(
        operand.node.op in ops.CONSTANTS and _says_sloppy(name, operand.node.attr("value"))
        for name, operand in named_operands(node)
    )


def _says_sloppy(name: str, value: Any) -> bool:
    return (name == "sloppy" and bool(value.any())) or (
        name == "optimizations" and _SLOPPY_REWRITE in value.ravel().tolist()
    )


def named_operands(node: Node) -> Iterator[tuple[str, Any]]:
    """The operands of a node by their names; those of a list share one."""
    definition = ops.op_def(node.op)
    names = (name for name, _ in validate.tensors(definition, definition.input_arg, node.raw_attrs))
    return zip(names, node.inputs, strict=False)


def _reasons_in(graph: Graph, node: Node) -> Iterator[str]:
    parallel = any(
        name.startswith("num_parallel") or name == "prefetch_input_elements" for name, _ in named_operands(node)
    )
    for name, function in function_library.used_by(graph, [node]).items():
        where = f"the function '{name}' of '{node.name}'"
        for definition in function.node_def:
            given = {key: definition.attr[key] for key in _LOOKED_AT if key in definition.attr}
            if definition.op in ops.RANDOM and {"seed", "seed2"} <= ops.attr_names(definition.op):
                if not any(given[key].i for key in ("seed", "seed2") if key in given):
                    yield f"{where} draws random numbers without a seed"
                elif parallel:
                    yield f"{where} draws random numbers for several elements at a time"
            elif any(value.b or value.s == b"false" for value in given.values()):
                yield f"'{definition.name}' in {where} hands elements on as soon as they are there"
