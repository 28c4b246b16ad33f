"""Builds nodes: dtypes and attributes follow from the operands and TensorFlow's op definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.attrs import DType, Shape, definition
from tpugraph.ir.graph import Graph
from tpugraph.ir.node import Node, Tensor
from tpugraph.support.errors import GraphError


@dataclass(frozen=True)
class Builder:
    """Builds nodes with a common scope, device, marker attributes and provenance.

    Attributes that the operands determine (``T``, ``N``, ``Tidx``, lists of dtypes) may be left out; given ones take precedence.
    Output dtypes follow from the attributes. Shapes are optional, since shape inference visits new nodes.

    Attributes:
        scope: the prefix of names, without the final slash; "" for none.
        source: the node on whose behalf the others are made (provenance).
        made_by: the recorded creator of the nodes; the running pass where None.
    """

    graph: Graph
    scope: str = ""
    device: str = ""
    marks: Mapping[str, Any] = field(default_factory=dict)
    source: Node | None = None
    made_by: str | None = None

    def node(
        self,
        op: str,
        inputs: Sequence[Tensor] = (),
        *,
        name: str | None = None,
        shapes: Sequence[Shape] = (),
        controls: Iterable[Node] = (),
        **attributes: Any,
    ) -> Node:
        """Build a node.

        Args:
            inputs: its operands; their dtypes must be known.
            name: the preferred name, below the scope; the op type where None.
            shapes: the shapes of the first outputs; those of the rest are unknown.
            **attributes: those that the operands do not determine, as Python values.

        Raises:
            GraphError: TensorFlow has no such op, the dtype of an operand is unknown, or an attribute of an output is missing.
        """
        known = operand_attrs(op, [tensor.dtype for tensor in inputs], attributes) | attributes
        known = {key: attr_codec.encode(value) for key, value in known.items()}
        kinds = output_dtypes(op, known)
        padded = [*shapes, *[None] * (len(kinds) - len(shapes))]
        made = self.graph.add(
            op,
            f"{self.scope}/{name or op}" if self.scope else name or op,
            inputs,
            controls=controls,
            attrs={**known, **self.marks},
            device=self.device,
            outputs=list(zip(kinds, padded, strict=True)),
            source=self.source,
        )
        if self.made_by is not None:
            made.made_by = self.made_by
        return made

    def add(
        self,
        op: str,
        inputs: Sequence[Tensor] = (),
        shape: Shape = None,
        *,
        name: str | None = None,
        controls: Iterable[Node] = (),
        **attributes: Any,
    ) -> Tensor:
        """Build a node and return its first output, with a shape; see :meth:`node`."""
        return self.node(op, inputs, name=name, shapes=(shape,), controls=controls, **attributes).out()

    def constant(
        self, value: Any, kind: DType | None = None, *, name: str = "const", controls: Iterable[Node] = ()
    ) -> Tensor:
        """A constant from a number, list or array; lists and Python numbers need a dtype.

        In a loop or branch it needs control inputs from inside.
        """
        array = (
            np.asarray(value) if kind is None else np.asarray(value, "object" if kind.name == "string" else kind.name)
        )
        kind = kind or attr_codec.dtype(array.dtype.name)
        return self.add("Const", [], array.shape, name=name, controls=controls, dtype=kind, value=array)

    def cast(self, tensor: Tensor, kind: DType, *, name: str = "cast") -> Tensor:
        return self.add("Cast", [tensor], _shape(tensor), name=name, DstT=kind, Truncate=False)

    def identity(self, tensor: Tensor, *, name: str = "identity", controls: Iterable[Node] = ()) -> Tensor:
        """An Identity, after ``controls``."""
        return self.add("Identity", [tensor], _shape(tensor), name=name, controls=controls)

    def reshape(
        self, tensor: Tensor, shape: Sequence[int], *, name: str = "reshape", target: str = "reshape/shape"
    ) -> Tensor:
        """Reshape; ``target`` is the preferred name of the shape constant."""
        wanted = self.constant(np.asarray(shape, "int32"), name=target)
        return self.add("Reshape", [tensor, wanted], tuple(shape), name=name)

    def placeholder(self, kind: DType, shape: Shape, *, name: str = "Placeholder") -> Tensor:
        known: dict[str, Any] = {} if shape is None else {"shape": shape}
        return self.node("Placeholder", name=name, shapes=(shape,), dtype=kind, **known).out()

    def variable(self, kind: DType, shape: Shape, *, name: str) -> Node:
        """The handle of a resource variable with the shared name ``name``."""
        return self.node("VarHandleOp", name=name, shapes=((),), dtype=kind, shape=shape, container="",
                         shared_name=f"{self.scope}/{name}" if self.scope else name)  # fmt: skip

    def enter(self, tensor: Tensor, frame: str, *, constant: bool = True) -> Tensor:
        """An Enter of a value into a loop's frame: a loop invariant, or the initial value of a loop variable."""
        return self.add(
            "Enter", [tensor], _shape(tensor), frame_name=frame, is_constant=constant, parallel_iterations=1
        )


def _shape(tensor: Tensor) -> Shape:
    return None if tensor.node.outputs is None else tensor.shape


def operand_attrs(op: str, inputs: Sequence[DType | None], given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that the operands' dtypes determine, without given ones; unknown dtypes determine none."""
    found: dict[str, Any] = {}
    arguments = definition(op).inputs
    several = len(inputs) - sum(not argument.several for argument in arguments)
    place = 0
    for argument in arguments:
        count = several if argument.several else 1
        group = inputs[place : place + count]
        place += count
        if argument.number_attr:
            found[argument.number_attr] = count
        if argument.kinds and None not in group:
            found[argument.kinds] = list(group)
        if argument.kind and argument.kind not in given and group and group[0] is not None:
            found[argument.kind] = attr_codec.dtype(group[0].name) if group[0].ref else group[0]
    return found


def output_dtypes(op: str, attributes: Mapping[str, Any]) -> list[DType]:
    """The output dtypes by encoded attributes; a GraphError where a needed attribute is missing."""
    found = definition(op)
    try:
        return [attr_codec.dtype(number) for number in found.dtypes(found.outputs, attributes)]
    except KeyError as missing:
        raise GraphError(f"a new {op} lacks the attribute {missing}", fix=f"give {missing.args[0]}=") from missing
