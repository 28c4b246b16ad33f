"""What TensorFlow's shape functions say of nodes that are asked alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.attrs import Shape
from tpugraph.spmd import factors
from tpugraph.support.errors import GraphError


def inferred(twin: Graph, nodes: Sequence[Node]) -> Mapping[Node, list[Shape]]:
    """What the shape functions of some nodes say, each asked alone; those that they refuse are left out."""
    left = list(nodes)
    while left:
        alone, made = Graph(), {}
        alone.library, alone.versions = twin.library, twin.versions
        for number, node in enumerate(left):
            inputs = [_operand(alone, tensor, f"n{number}/{index}") for index, tensor in enumerate(node.inputs)]
            kept = {name: value for name, value in node.raw_attrs.items() if not name.startswith("_")}
            made[node] = alone.add(node.op, f"n{number}/asked", inputs, attrs=kept)
        try:
            shapes.infer(alone)
        except GraphError as error:
            refused = next((node for node, copy in made.items() if error.node and copy.name in error.node), None)
            if refused is None:
                return {}
            left.remove(refused)
            continue
        return {node: [shape for _, shape in copy.outputs or ()] for node, copy in made.items()}
    return {}


def _operand(alone: Graph, tensor: Tensor, name: str) -> Tensor:
    value = factors.vector(tensor) if tensor.dtype.name in ("int32", "int64") and len(tensor.shape or ()) < 2 else None
    if value is not None and None not in value and len(value) <= 64:
        array = np.asarray(value if tensor.shape else value[0], tensor.dtype.name)
        return alone.add(
            "Const", name, attrs={"dtype": tensor.dtype, "value": array}, outputs=[(tensor.dtype, array.shape)]
        ).out()
    known = {} if tensor.shape is None else {"shape": tensor.shape}
    return alone.add(
        "Placeholder", name, attrs={"dtype": tensor.dtype, **known}, outputs=[(tensor.dtype, tensor.shape)]
    ).out()
