"""The door: what comes in from outside is held against TensorFlow's own definitions, once, before TensorFlow sees it.

Behind the door the rest of the compiler may rely on it: each node has the attributes that its op demands, of the right kinds
and in range; it reads as many tensors as its op takes, of the right dtypes and from outputs that are there; names and device
strings are such; constants hold what they declare; what looks like a loop is one, and nothing else goes in a circle. The
same holds in the functions of the library, none of which calls itself. Time and memory are linear in the size of the file:
a number in the file that claims more (inputs, outputs, elements) is refused before anything is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tpugraph import ops
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.body_check import check_body, check_calls
from tpugraph.ir.constants import Constants
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.op_schemas import Mismatch, Schema, shape_fault
from tpugraph.support.errors import LoadError

Wired = tuple[Node, tuple[Tensor, ...], tuple[Node, ...]]
"""A node with its inputs and what it waits for."""

FIX = "the file is damaged or was edited by hand: write the graph again, or copy it again"

MOST_OUTPUTS_TOGETHER = 1 << 20
"""How many outputs the nodes of a file may have together, beyond 16 for each node."""

_NAMES = re.compile(r"(?:[A-Za-z0-9.][A-Za-z0-9_>./\\-]*\n)*")
_DEVICE = re.compile(
    r"(?:/job:(?:\*|[a-zA-Z][\w-]*)|/replica:(?:\*|\d{1,9})|/task:(?:\*|\d{1,9})"
    r"|/device:\*|/(?:device:)?(?:\*|[a-zA-Z]\w*):(?:\*|\d{1,9}))*/?"
)
_SHAPES = "_output_shapes"
_serialized = attr_codec.AttrValue.SerializeToString
_Taker = Callable[[dict[str, Any]], tuple[Any, ...]]
_Outputs = dict[Node, tuple[int, ...]]
_Early = tuple[Node, tuple[Tensor, ...], tuple[int, ...]]


class Door:
    """The checks of one graph.

    Args:
        library: its ``FunctionDefLibrary``.
        source: the file, for messages.
    """

    def __init__(self, library: Any, source: str) -> None:
        self._source = source
        self._library = library
        self._functions: dict[str, Any] = {function.signature.name: function for function in library.function}
        self._schemas: dict[str, Schema | None] = {}
        self._signatures: dict[tuple[Any, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._known_shapes: set[tuple[bytes, int]] = set()
        self._constants = Constants()

    def check(self, wired: Sequence[Wired]) -> bool:
        """Check the nodes of a graph and the library; returns whether each node stands behind all that it reads and waits for.

        Args:
            wired: the nodes with what they read and wait for.

        Raises:
            LoadError: something is not as TensorFlow defines it; the node is named.
        """
        nodes = [node for node, _, _ in wired]
        self._check_names(nodes)
        self._check_library()
        self._check_known({node.op: node for node in reversed(nodes)})
        outputs, early = self._check_in_order(wired)
        for node, inputs, wanted in early:
            self._check_inputs(node, inputs, wanted, outputs)
        claimed = sum(map(len, outputs.values()))
        if claimed > MOST_OUTPUTS_TOGETHER + 16 * len(nodes):
            raise LoadError(f"the nodes claim {claimed:,} outputs together", origin=self._source, fix=FIX)
        return not early

    def _check_in_order(self, wired: Sequence[Wired]) -> tuple[_Outputs, list[_Early]]:
        """Check nodes and what they read in one walk, which is all there is to do for a file that is sorted.

        Returns the dtypes of the outputs of each node, and the nodes that stand before something that they read or wait for.
        """
        outputs: _Outputs = {}
        early: list[_Early] = []
        released: set[int] = set()  # tuples of nodes that all came by: many wait for the same
        matching: set[tuple[Any, Any]] = set()
        signatures = self._signatures
        chosen: dict[tuple[str, ...], _Taker] = {}  # takes out what is compared of the attributes
        for node, inputs, controls in wired:
            held = node._attrs
            names = tuple(held)
            declared = chosen.get(names)
            if declared is None:
                declared = chosen[names] = _taker([name for name in names if name[:1] != "_" and name != "value"])
            key = (node.op, len(inputs), names, *map(_serialized, declared(held)))
            found = signatures.get(key)
            if found is None:
                found = signatures[key] = self._signature(node, len(inputs))
            wanted, made = found
            if inputs:
                try:
                    read = tuple([outputs[producer][port] for producer, port in inputs])
                except (KeyError, IndexError):
                    read = None
                if read != wanted and (read is None or (read, wanted) not in matching):
                    self._check_inputs(node, inputs, wanted, outputs)
                    matching.add((read, wanted))
                    if read is None:
                        early.append((node, inputs, wanted))
            if controls and id(controls) not in released:
                if all(map(outputs.__contains__, controls)):
                    released.add(id(controls))
                else:
                    early.append((node, inputs, wanted))
            outputs[node] = made
            if node.op in ops.CONSTANTS:
                self._check_constant(node)
            if _SHAPES in held:
                self._check_told_shapes(node, len(made))
        return outputs, early

    def _signature(self, node: Node, given: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The dtypes of what a node takes and gives; nodes with the same attributes are looked at once."""
        schema = self.schema(node.op)
        assert schema is not None, "unknown ops were refused"
        try:
            found = schema.signature(node._attrs, given)
        except Mismatch as error:
            raise self._refusal(str(error), node) from error
        return found.inputs or (), found.outputs or ()

    def _check_names(self, nodes: Sequence[Node]) -> None:
        names = [node.name for node in nodes]
        joined = "\n".join([*names, ""])
        if joined.count("\n") != len(names) or not _NAMES.fullmatch(joined):
            node = next(node for node in nodes if "\n" in node.name or not _NAMES.fullmatch(node.name + "\n"))
            raise self._refusal(f"{node.name[:100]!r} is no name of a node", node)
        for device in {node.device for node in nodes}:
            if not _DEVICE.fullmatch(device):
                node = next(node for node in nodes if node.device == device)
                raise self._refusal(f"{device[:100]!r} is no device", node)

    def _check_known(self, first_of: Mapping[str, Node]) -> None:
        unknown = sorted(op for op in first_of if self.schema(op) is None)
        if unknown:
            import tensorflow as tf

            raise LoadError(
                f"this TensorFlow ({tf.__version__}) does not know the op{'s' if len(unknown) > 1 else ''} "
                + ", ".join(unknown)[:300],
                node=first_of[unknown[0]],
                origin=self._source,
                fix="load its library with tf.load_op_library before converting, or remove it from the graph",
            )

    def schema(self, op: str) -> Schema | None:
        """What an op type or a library function demands; None where neither is known."""
        if op not in self._schemas:
            function = self._functions.get(op)
            definition = ops.op_def(op) if function is None else function.signature
            self._schemas[op] = None if definition is None else Schema(definition, self._functions)
        return self._schemas[op]

    def _check_told_shapes(self, node: Node, outputs: int) -> None:
        value = node._attrs[_SHAPES]
        key = (value.SerializeToString(), outputs)
        if key in self._known_shapes:
            return
        if value.WhichOneof("value") not in ("list", None) or len(value.list.shape) < outputs:
            raise self._refusal(f"the attribute '{_SHAPES}' does not hold a shape of each output ({outputs})", node)
        for fault in filter(None, map(shape_fault, value.list.shape)):
            raise self._refusal(f"the attribute '{_SHAPES}' {fault}", node)
        self._known_shapes.add(key)

    def _check_constant(self, node: Node) -> None:
        try:
            self._constants.check(node._attrs["value"].tensor, node._attrs["dtype"].type)
        except Mismatch as error:
            raise self._refusal(f"the constant '{node.name}' {error}", node) from error

    def _check_inputs(self, node: Node, inputs: Sequence[Tensor], wanted: Sequence[int], outputs: _Outputs) -> None:
        """Check each input of a node, with words; what was not come by yet is passed over."""
        for index, ((producer, port), kind) in enumerate(zip(inputs, wanted, strict=True)):
            made = outputs.get(producer)
            if made is None:
                continue
            if port >= len(made):
                raise self._refusal(f"input {index} is output {port} of '{producer.name}', which has {len(made)}", node)
            if made[port] not in (kind, kind + 100):
                raise self._refusal(f"input {index}, '{producer.name}', is {attr_codec.dtype(made[port])}, and "
                                    f"{node.op} takes {attr_codec.dtype(kind)}", node)  # fmt: skip

    def _check_library(self) -> None:
        seen: set[str] = set()
        for function in self._library.function:
            name = function.signature.name
            try:
                if name in seen:
                    raise Mismatch("there are two functions of that name")
                if not name or ops.op_def(name) is not None:
                    raise Mismatch("a function cannot have the name of an op" if name else "a function has no name")
                check_body(function, self.schema, self._constants)
            except Mismatch as error:
                raise LoadError(f"the function '{name[:100]}': {error}", origin=self._source, fix=FIX) from error
            seen.add(name)
        try:
            check_calls(self._functions, self._library.gradient)
        except Mismatch as error:
            raise LoadError(str(error), origin=self._source, fix=FIX) from error

    def _refusal(self, fault: str, node: Node) -> LoadError:
        return LoadError(fault, node=node, origin=self._source, fix=FIX)


def _taker(names: list[str]) -> _Taker:
    """Takes the values of some keys out of a dict."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda held: tuple([held[name] for name in names])
