"""Makes a graph comparable with its conversion: every random op has a seed, and a partial batch is dropped on both sides."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node
from tpugraph.tpu.program import Program

_SEED = 20_111


def fix_seeds(graph: Graph) -> list[str]:
    """Give every random op and every shuffle without a seed a fixed one, the same in each copy of the graph."""
    seeded = []
    for position, node in enumerate(graph):
        if node.op in ops.RANDOM and node.has_attr("seed2") and not (node.attr("seed") or node.attr("seed2")):
            graph.set_attr(node, "seed", _SEED)
            graph.set_attr(node, "seed2", position + 1)
            seeded.append(node.name)
        elif ops.is_dataset(node.op) and _seed_dataset(graph, node):
            seeded.append(node.name)
    return seeded


def _seed_dataset(graph: Graph, node: Node) -> bool:
    """Give a dataset op that takes seeds, both of them zero, others; returns whether it did."""
    names = [argument.name for argument in ops.op_def(node.op).input_arg]
    places = [names.index(name) for name in ("seed", "seed2") if name in names]
    if len(places) != 2 or len(names) != len(node.inputs):
        return False
    constants = [node.inputs[place].node for place in places]
    if any(constant.op not in ops.CONSTANTS or constant.attr("value").any() for constant in constants):
        return False
    for place, constant in zip(places, constants, strict=True):
        attributes = {"dtype": constant.attr("dtype"), "value": np.int64(_SEED + place)}
        own = graph.add("Const", f"{node.name}/seed", attrs=attributes, device=constant.device)
        graph.set_input(node, place, own.out())
    return True


def closed_batches(program: Program) -> list[str]:
    """The dataset ops that the conversion said something about: those whose partial batches it drops."""
    return [note["node"] for note in program.report["why"] if note["stage"] == "static-shapes"]


def drop_remainder(graph: Graph, node: Node) -> bool:
    """Let a batch op drop its last partial batch; returns whether it did not before."""
    names = [argument.name for argument in ops.op_def(node.op).input_arg]
    if not ops.is_dataset(node.op) or "drop_remainder" not in names:
        return False
    place = names.index("drop_remainder")
    kind = node.inputs[place].node.attr("dtype")
    own = graph.add("Const", f"{node.name}/drop_remainder", attrs={"dtype": kind, "value": np.asarray(True)})
    graph.set_input(node, place, own.out())
    return True
