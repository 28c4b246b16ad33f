"""The graph that passes rewrite: nodes, tensors, use-lists, control edges, and here the edits of nodes.

Every edit is a method of :class:`Graph`, which checks before it changes anything, counts the edit and records which
pass made a node and from which node of the user's graph it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tpugraph import ops
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.countdown import is_back_edge
from tpugraph.ir.node import Node, Output, Tensor, Use, Wait, assign
from tpugraph.ir.rewired_links import RewiredLinks
from tpugraph.ir.serving_signatures import Signature
from tpugraph.ir.tracked_links import Edits, Note
from tpugraph.support.errors import GraphError
from tpugraph.support.suggestions import did_you_mean

__all__ = ["Edits", "Graph", "Node", "Note", "Output", "Tensor", "Use", "is_back_edge"]


class Graph(RewiredLinks):
    """A dataflow graph with TF1 loops (one back edge each, NextIteration to Merge).

    It knows lookups and orders as :class:`~tpugraph.ir.links.Links`, edits and results as
    :class:`~tpugraph.ir.tracked_links.TrackedLinks`, edges as :class:`~tpugraph.ir.rewired_links.RewiredLinks`, and edits nodes.

    Attributes:
        library: the function library, opaque to passes (``graphdef`` and ``function_library`` read it), or None.
        versions: the producer versions, opaque.
        collections: collections of a MetaGraphDef, by key, as lists of node or tensor names.
        signatures: what a SavedModel is fed and hands out, by the name of the signature.
    """

    def __init__(self) -> None:
        super().__init__()
        self.library: Any = None
        self.versions: Any = None
        self.collections: dict[str, list[str]] = {}
        self.signatures: dict[str, Signature] = {}

    def __repr__(self) -> str:
        return f"<Graph{f' of {self.source}' if self.source else ''}: {len(self):,} nodes>"

    def knows_op(self, op: str) -> bool:
        """Whether a node can be of an op type: one of TensorFlow's, or a function of the library."""
        functions = () if self.library is None else self.library.function
        return ops.op_def(op) is not None or any(function.signature.name == op for function in functions)

    # ------------------------------------------------------------------ editing

    def add(
        self,
        op: str,
        name: str,
        inputs: Sequence[Tensor] = (),
        *,
        controls: Iterable[Node] = (),
        attrs: Mapping[str, Any] | None = None,
        device: str = "",
        outputs: Sequence[Output] | None = None,
        source: Node | None = None,
    ) -> Node:
        """Add a node under a fresh name made from ``name``.

        Args:
            op: the op type.
            name: the name wished for; a suffix is added where it is taken.
            inputs: data inputs.
            controls: nodes to wait for.
            attrs: attributes as Python values or protobufs.
            device: device string.
            outputs: dtype and shape of each output, where known.
            source: the node for whose sake this one is made (provenance).

        Raises:
            GraphError: an input that is not in this graph.
        """
        controls = tuple(dict.fromkeys(controls))
        self._check_members([*[t.node for t in inputs], *controls], f"new node '{name}'")
        encoded = {key: attr_codec.encode(value) for key, value in (attrs or {}).items()}
        node = Node(op, self.fresh_name(name), device, encoded)
        node.outputs = None if outputs is None else list(outputs)
        node.made_by = self.stage
        node.origin = None if source is None else (source.origin or source.name)
        self._insert(node)
        self._link(node, tuple(inputs), controls)
        self.edits.added += 1
        self._touched[node] = None
        self._unprove(node)
        return node

    def adopt(self, wired: Sequence[tuple[Node, tuple[Tensor, ...], tuple[Node, ...]]]) -> None:
        """Take over freshly made nodes in bulk, as loading does: each with its inputs and controls."""
        for node, _, _ in wired:
            self._insert(node)
        for node, inputs, controls in wired:
            self._link(node, inputs, controls)

    def remove(self, node: Node) -> None:
        """Remove a node that nothing reads or waits for.

        Raises:
            GraphError: uses remain.
        """
        self._check_members((node,), "removal")
        others = [c for c in node.consumers() if c is not node]
        if others:
            raise GraphError(f"cannot remove a node with {len(others)} uses, one by '{others[0].name}'", node=node)
        self._drop(node)
        self.edits.removed += 1

    def remove_all(self, nodes: Iterable[Node]) -> int:
        """Remove nodes together; uses among them are no hindrance. Returns how many.

        Raises:
            GraphError: a node outside the set uses one inside it.
        """
        doomed = dict.fromkeys(nodes)
        waits: dict[Wait, Node] = {}
        for node in doomed:
            for consumer, _ in node._uses:
                if consumer not in doomed:
                    raise _in_use(node, consumer)
            if node._awaited:
                waits.update(dict.fromkeys(node._awaited, node))
        for wait, node in waits.items():
            for consumer in wait.nodes:
                if consumer not in doomed:
                    raise _in_use(node, consumer)
        self._drop_all(doomed)
        self.edits.removed += len(doomed)
        return len(doomed)

    def remove_dead(self, keep: Iterable[Node]) -> int:
        """Remove every node that none of ``keep`` depends on; returns how many."""
        alive = self.ancestors(keep)
        dead = {node: None for node in self if node not in alive}
        self._drop_all(dead)  # what uses a dead node is dead itself
        self.edits.removed += len(dead)
        return len(dead)

    def insert_between(
        self,
        tensor: Tensor,
        op: str,
        name: str,
        *,
        extra_inputs: Sequence[Tensor] = (),
        attrs: Mapping[str, Any] | None = None,
        controls: Iterable[Node] = (),
        outputs: Sequence[Output] | None = None,
        where: Callable[[Use], bool] | None = None,
    ) -> Node:
        """Put a new node behind ``tensor``: it reads the tensor (and ``extra_inputs``), the readers read it instead."""
        uses = [use for use in tensor.node.uses(tensor.port) if where is None or where(use)]
        if outputs is None and tensor.node.outputs is not None:
            outputs = [tensor.node.output(tensor.port)]
        node = self.add(
            op,
            name,
            [tensor, *extra_inputs],
            attrs=attrs,
            controls=controls,
            outputs=outputs,
            device=tensor.node.device,
            source=tensor.node,
        )
        for use in uses:
            self.set_input(use.node, use.index, node.out())
        return node

    def retype(
        self,
        node: Node,
        op: str,
        *,
        inputs: Sequence[Tensor] | None = None,
        attrs: Mapping[str, Any] | None = None,
        outputs: Sequence[Output] | None = None,
    ) -> None:
        """Turn ``node`` into another op under the same name; ``attrs`` replaces all attributes but ``_`` ones.

        Raises:
            GraphError: there is no such op, or it takes another number of inputs.
        """
        self._check_members((node, *(t.node for t in inputs or ())), f"new inputs of '{node.name}'")
        if not self.knows_op(op):
            raise GraphError(f"'{node.name}' cannot become {op}: this TensorFlow does not know that op", node=node,
                             fix=did_you_mean(op, ops.records(), "load its library with tf.load_op_library before"))  # fmt: skip
        given = node._attrs if attrs is None else {key: attr_codec.encode(value) for key, value in attrs.items()}
        wanted, count = attr_codec.arity(op, given), len(node.inputs if inputs is None else inputs)
        if wanted is not None and wanted != count:
            raise GraphError(f"'{node.name}' cannot become {op}: it has {count} inputs, and {op} takes {wanted}", node=node,
                             fix="give inputs= and the attributes that say how many they are")  # fmt: skip
        self._set_op(node, op)
        self._unprove(node)
        self._marked += 1
        if attrs is not None:
            kept = {key: held for key, held in node._attrs.items() if key[0] == "_" and key != "_output_shapes"}
            node._attrs = kept | {key: attr_codec.encode(value) for key, value in attrs.items()}
        if outputs is not None:
            node.outputs = list(outputs)
        if inputs is not None:
            self._relink(node, tuple(inputs), node.controls)
            return
        self._changed(node)

    def set_attr(self, node: Node, name: str, value: Any) -> None:
        """Set one attribute; None removes it."""
        self.set_attr_of((node,), name, value)

    def set_attr_of(self, nodes: Iterable[Node], name: str, value: Any) -> None:
        """Set one attribute of many nodes; None removes it."""
        nodes = list(nodes)
        self._check_members(nodes, f"attribute '{name}'")
        encoded = None if value is None else attr_codec.encode(value)
        for node in nodes:
            attrs = dict(node._attrs)
            attrs.pop(name, None)
            if encoded is not None:
                attrs[name] = encoded
            assign(node, "_attrs", attrs)
        self.edits.changed += len(nodes)
        self._marked += 1
        if name[0] != "_":
            self._touched.update(dict.fromkeys(nodes))
        if name[0] != "_" or name == "_output_shapes":
            for node in nodes:
                self._unprove(node)

    def set_device(self, node: Node, device: str) -> None:
        """Ask for a device; "" asks for none."""
        self.set_device_of((node,), device)

    def set_device_of(self, nodes: Iterable[Node], device: str) -> None:
        """Ask for a device for many nodes; "" asks for none."""
        others = [node for node in nodes if node.device != device]
        self._check_members(others, "device")
        for node in others:
            assign(node, "device", device)
        self.edits.changed += len(others)

    def clone_subgraph(
        self,
        nodes: Iterable[Node],
        rename: Callable[[str], str],
        *,
        replace: Mapping[Tensor, Tensor] | None = None,
        replace_controls: Mapping[Node, Sequence[Node]] | None = None,
    ) -> dict[Node, Node]:
        """Copy nodes; edges among them lead to the copies, other edges stay or follow the replacements.

        Args:
            nodes: what to copy.
            rename: the name wished for a copy, from the original's name.
            replace: tensors to read instead, by the original tensor.
            replace_controls: nodes to wait for instead, by the original node.

        Returns:
            The copy of each node.
        """
        replace = replace or {}
        replace_controls = replace_controls or {}
        chosen = list(dict.fromkeys(nodes))
        copies: dict[Node, Node] = {}
        for node in chosen:
            copy = Node(node.op, self.fresh_name(rename(node.name)), node.device, dict(node._attrs))
            copy.outputs = node.outputs
            copy.made_by = self.stage
            copy.origin = node.origin or node.name
            self._insert(copy)
            copies[node] = copy
        for node in chosen:
            inputs = tuple(
                replace[t] if t in replace else Tensor(copies.get(t.node, t.node), t.port) for t in node.inputs
            )
            controls: dict[Node, None] = {}
            for control in node.controls:
                if control in replace_controls:
                    controls.update(dict.fromkeys(replace_controls[control]))
                else:
                    controls[copies.get(control, control)] = None
            self._link(copies[node], inputs, tuple(controls))
            self._touched[copies[node]] = None
            self._unprove(copies[node])
        self.edits.added += len(chosen)
        return copies


def _in_use(node: Node, consumer: Node) -> GraphError:
    return GraphError(f"cannot remove a node that '{consumer.name}' uses", node=node)
