"""What reads of rows by their numbers have in common: the read of the numbers, and the rows gathered from constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, attrs

INT64 = attrs.dtype("int64")
_INT32 = attrs.dtype("int32")


@dataclass(frozen=True)
class HeldRows:
    """The batches of a step, of rows that the graph holds.

    Attributes:
        read: the node that reads what tells the numbers of the rows.
        rows: of each component the rows of all cores, [cores, rows of a core, ...].
    """

    read: Node
    rows: list[Tensor]


def scalar(node: Node) -> int | None:
    """The number that a constant is; None of any other node."""
    return int(node.attr("value").item()) if node.op in ops.CONSTANTS and node.attr("value").size == 1 else None


def constants_of(slices: Node) -> list[Node] | None:
    """The constants whose rows a dataset of slices gives; None where it gives others."""
    found = [tensor.node for tensor in slices.inputs]
    held = all(node.op in ops.CONSTANTS and node.attr("value").shape for node in found)
    return found if held and not slices.attr("is_files", False) else None


def read_numbers(graph: Graph, take: Node, shape: attrs.Shape, *, endless: bool) -> Node:
    """The read of numbers of this shape, int64, where a core read its batch.

    Where they never end nobody has to ask, and the executor reads them itself: they are not worth another thread.
    """
    op = "IteratorGetNextSync" if endless else "IteratorGetNext"
    return graph.add(op, f"{take.name}/numbers", [take.inputs[0]], controls=take.controls,
                     attrs={"output_types": [INT64], "output_shapes": [shape]}, outputs=[(INT64, shape)],
                     source=take)  # fmt: skip


def gathered(graph: Graph, take: Node, numbers: Tensor, constants: list[Node]) -> list[Tensor]:
    """The rows of each component that the numbers of a step choose of its constant."""
    return [_gather(graph, take, numbers, port, held.attr("value")) for port, held in enumerate(constants)]


def _gather(graph: Graph, take: Node, numbers: Tensor, port: int, value: np.ndarray) -> Tensor:
    kind = take.output(port)[0]
    held = [within(graph, take, value, kind), within(graph, take, np.zeros((), "int32"), _INT32)]
    return graph.add("GatherV2", f"{take.name}/rows", [held[0], numbers, held[1]],
                     attrs={"Tparams": kind, "Tindices": INT64, "Taxis": _INT32, "batch_dims": 0},
                     outputs=[(kind, (*(numbers.shape or ()), *value.shape[1:]))], source=take).out()  # fmt: skip


def outside(graph: Graph, maker: Node, value: np.ndarray | np.generic) -> Tensor:
    """A constant outside of the loop, for a dataset."""
    kind = attrs.dtype(value.dtype.name)
    return graph.add("Const", "tpugraph/rows/value", attrs={"dtype": kind, "value": np.asarray(value)},
                     outputs=[(kind, value.shape)], source=maker).out()  # fmt: skip


def within(graph: Graph, take: Node, value: np.ndarray, kind: attrs.DType) -> Tensor:
    """A constant as the loop of the read sees it."""
    held = graph.add("Const", "tpugraph/rows/held", attrs={"dtype": kind, "value": value},
                     outputs=[(kind, value.shape)], source=take)  # fmt: skip
    entry = take.inputs[0].node
    if entry.op not in ops.ENTER:
        return held.out()
    made = graph.clone_subgraph([entry], lambda name: f"{held.name}/Enter")[entry]
    kept = {key: given for key, given in made.raw_attrs.items() if key[0] != "_"}
    graph.retype(made, entry.op, inputs=[held.out()], attrs={**kept, "T": kind}, outputs=[held.output(0)])
    return made.out()
