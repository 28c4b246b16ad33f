"""The graph that passes rewrite: nodes, tensors, use-lists, control edges.

Every edit is a method of :class:`Graph`, which checks before it changes anything, counts the edit and records which
pass made a node and from which node of the user's graph it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tpugraph import attrs as attr_codec
from tpugraph import ops
from tpugraph.attrs import DType, Shape
from tpugraph.errors import GraphError

Output = tuple[DType, Shape]
"""What is known of one output of a node: its dtype and its static shape."""


class Tensor(NamedTuple):
    """One output of a node."""

    node: Node
    port: int

    @property
    def dtype(self) -> DType:
        """The element type; raises GraphError before shape inference."""
        return self.node.output(self.port)[0]

    @property
    def shape(self) -> Shape:
        """The static shape; raises GraphError before shape inference."""
        return self.node.output(self.port)[1]

    def __str__(self) -> str:
        return self.node.name if self.port == 0 else f"{self.node.name}:{self.port}"

    def __repr__(self) -> str:
        return f"<{self}>"


class Use(NamedTuple):
    """One place where a tensor is read: input ``index`` of ``node``."""

    node: Node
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a use


class Node:
    """One operation. Read its fields; change it through :class:`Graph` only.

    Attributes:
        name: unique within the graph.
        op: the op type.
        device: the device string, "" where none is asked for.
        inputs: data inputs, in order.
        controls: nodes that must run before, in order.
        outputs: dtype and shape of each output, or None before shape inference.
        origin: name of the node in the user's graph that this one was made for, or None for an original node.
        made_by: name of the pass that made it, or None.
    """

    __slots__ = (
        "_attrs",
        "_control_uses",
        "_uses",
        "controls",
        "device",
        "inputs",
        "made_by",
        "name",
        "op",
        "origin",
        "outputs",
    )

    def __init__(self, op: str, name: str, device: str, attrs: dict[str, Any]) -> None:
        self.op = op
        self.name = name
        self.device = device
        self._attrs = attrs
        self.inputs: tuple[Tensor, ...] = ()
        self.controls: tuple[Node, ...] = ()
        self.outputs: list[Output] | None = None
        self.origin: str | None = None
        self.made_by: str | None = None
        self._uses: dict[Use, int] = {}
        self._control_uses: dict[Node, None] = {}

    def out(self, port: int = 0) -> Tensor:
        """Output ``port`` as a tensor."""
        return Tensor(self, port)

    def output(self, port: int) -> Output:
        """Dtype and shape of output ``port``.

        Raises:
            GraphError: shapes were not inferred, or there is no such output.
        """
        if self.outputs is None or port >= len(self.outputs):
            raise GraphError(f"nothing is known of output {port}", node=self)
        return self.outputs[port]

    def attr(self, name: str, default: Any = None) -> Any:
        """The Python value of attribute ``name`` (see :func:`tpugraph.attrs.decode`)."""
        value = self._attrs.get(name)
        return default if value is None else attr_codec.decode(value)

    def has_attr(self, name: str) -> bool:
        """Whether the attribute is set."""
        return name in self._attrs

    @property
    def raw_attrs(self) -> Mapping[str, Any]:
        """Attributes as protobufs, read-only."""
        return self._attrs

    def uses(self, port: int | None = None) -> list[Use]:
        """The reads of one output, or of all of them, as a snapshot: editing while iterating is safe."""
        return [use for use, p in self._uses.items() if port is None or p == port]

    def used_ports(self) -> list[int]:
        """The outputs that something reads, in ascending order."""
        return sorted(set(self._uses.values()))

    def control_uses(self) -> list[Node]:
        """The nodes that wait for this one, as a snapshot."""
        return list(self._control_uses)

    def consumers(self) -> list[Node]:
        """Every node that reads or waits for this one, each once."""
        found = dict.fromkeys([node for node, _ in self._uses])
        if self._control_uses:
            found.update(self._control_uses)
        return list(found)

    def producers(self) -> list[Node]:
        """Every node that this one reads or waits for, each once."""
        return list(dict.fromkeys([*[t.node for t in self.inputs], *self.controls]))

    def __str__(self) -> str:
        return f"{self.name} ({self.op})"

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass
class Edits:
    """How often a graph was edited."""

    added: int = 0
    removed: int = 0
    changed: int = 0

    def since(self, before: Edits) -> Edits:
        """The edits made after ``before`` was taken."""
        return Edits(self.added - before.added, self.removed - before.removed, self.changed - before.changed)

    def __str__(self) -> str:
        return f"+{self.added} -{self.removed} ~{self.changed}"


@dataclass(frozen=True)
class Note:
    """Why a pass did, or did not do, something to a node; answers ``tpugraph inspect --why``."""

    stage: str
    node: str
    text: str


class Graph:
    """A dataflow graph with TF1 loops (one back edge each, NextIteration to Merge).

    Attributes:
        library: the function library, opaque to passes (only ``graphdef`` reads it), or None.
        versions: the producer versions, opaque.
        roles: what :func:`tpugraph.roles.find` said about the graph, or None.
        collections: collections of a MetaGraphDef, by key, as lists of node or tensor names.
        source: the file or folder the graph came from, for messages.
        stage: name of the pass at work; new nodes are marked with it.
        notes: what passes said about nodes, in order.
        facts: what passes measured, by pass name, for the report.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._next_suffix: dict[str, int] = {}
        self._touched: dict[Node, None] = {}
        self._count_of: dict[str, int] = {}
        self._remembered: dict[str, tuple[tuple[int, int, int, int], dict[Node, Any]]] = {}
        self._verified: dict[str, tuple[int, int, int, int, int]] = {}
        self._inferred = 0
        self.edits = Edits()
        self.library: Any = None
        self.versions: Any = None
        self.roles: Any = None
        self.collections: dict[str, list[str]] = {}
        self.source = ""
        self.stage: str | None = None
        self.notes: list[Note] = []
        self.facts: dict[str, dict[str, Any]] = {}

    # ------------------------------------------------------------------ reading

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes.values()))

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return item in self._nodes
        return isinstance(item, Node) and self._nodes.get(item.name) is item

    def __getitem__(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise GraphError(f"there is no node '{name}'")
        return node

    def get(self, name: str) -> Node | None:
        """The node of that name, or None."""
        return self._nodes.get(name)

    def tensor(self, name: str) -> Tensor:
        """The tensor ``node`` or ``node:port``.

        Raises:
            GraphError: there is no such node.
        """
        node, _, port = name.partition(":")
        return Tensor(self[node], int(port or 0))

    def of_type(self, *types: str) -> list[Node]:
        """The nodes with one of these op types, in graph order."""
        wanted = {op for op in types if self._count_of.get(op)}
        return [node for node in self._nodes.values() if node.op in wanted] if wanted else []

    def verified(self, name: str) -> bool:
        """Whether :meth:`set_verified` was called with that name and nothing was edited since."""
        return self._verified.get(name) == (*self._state(), id(self.roles))

    def set_verified(self, name: str) -> None:
        """Record that an invariant holds for the graph as it is."""
        self._verified[name] = (*self._state(), id(self.roles))

    def _state(self) -> tuple[int, int, int, int]:
        return (self.edits.added, self.edits.removed, self.edits.changed, self._inferred)

    def remember(self, key: str, make: Callable[[Graph], dict[Node, Any]]) -> dict[Node, Any]:
        """What ``make(graph)`` says of the graph; computed once for as long as nothing is edited."""
        state = self._state()
        held = self._remembered.get(key)
        if held is None or held[0] != state:
            held = self._remembered[key] = (state, make(self))
        return dict(held[1])

    def fresh_name(self, base: str) -> str:
        """``base`` if free, else ``base_1``, ``base_2`` and so on."""
        if base not in self._nodes:
            return base
        suffix = self._next_suffix.get(base, 1)
        while f"{base}_{suffix}" in self._nodes:
            suffix += 1
        self._next_suffix[base] = suffix + 1
        return f"{base}_{suffix}"

    def topological_order(self, nodes: Iterable[Node] | None = None, *, last: Container[Node] = ()) -> list[Node]:
        """The nodes (all by default) so that each follows what it reads and waits for; loop back edges are ignored.

        Args:
            nodes: the nodes to order.
            last: nodes that come only when nothing else can.

        Raises:
            GraphError: a cycle that is no loop; the message names its nodes.
        """
        chosen = dict.fromkeys(self._nodes.values() if nodes is None else nodes)
        waiting: dict[Node, int] = {}
        ready: deque[Node] = deque()
        held: deque[Node] = deque()
        for node in chosen:
            producers = {t.node for t in node.inputs}
            if node.controls:
                producers.update(node.controls)
            if node.op in ops.MERGE:
                producers = {p for p in producers if p.op not in ops.NEXT_ITERATION}
            count = len(producers) if nodes is None else sum(1 for p in producers if p in chosen)
            if count:
                waiting[node] = count
            else:
                (held if node in last else ready).append(node)
        order: list[Node] = []
        while ready or held:
            node = ready.popleft() if ready else held.popleft()
            order.append(node)
            closes = node.op in ops.NEXT_ITERATION
            for consumer in node.consumers():
                count = waiting.get(consumer, 0)
                if not count or (closes and consumer.op in ops.MERGE):
                    continue
                if count > 1:
                    waiting[consumer] = count - 1
                else:
                    del waiting[consumer]
                    (held if consumer in last else ready).append(consumer)
        if waiting:
            raise _cycle_error(waiting)
        return order

    def take_touched(self) -> list[Node]:
        """The nodes added or changed since the last call that are still in the graph; a ``_`` attribute is no change."""
        held = self._nodes
        touched = [node for node in self._touched if held.get(node.name) is node]
        self._touched.clear()
        return touched

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
        self._check_members((t.node for t in inputs), f"new node '{name}'")
        self._check_members(controls, f"new node '{name}'")
        encoded = {key: attr_codec.encode(value) for key, value in (attrs or {}).items()}
        node = Node(op, self.fresh_name(name), device, encoded)
        node.outputs = None if outputs is None else list(outputs)
        node.made_by = self.stage
        node.origin = None if source is None else (source.origin or source.name)
        self._insert(node)
        self._link(node, tuple(inputs), controls)
        self.edits.added += 1
        self._touched[node] = None
        return node

    def adopt(self, nodes: Sequence[Node], wiring: Callable[[Node], tuple[Sequence[Tensor], Sequence[Node]]]) -> None:
        """Take over freshly made nodes in bulk, as loading does; ``wiring`` gives inputs and controls of each."""
        for node in nodes:
            self._insert(node)
        for node in nodes:
            inputs, controls = wiring(node)
            self._link(node, tuple(inputs), tuple(controls))

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
        for node in doomed:
            outside = next((c for c in node.consumers() if c not in doomed), None)
            if outside is not None:
                raise GraphError(f"cannot remove a node that '{outside.name}' uses", node=node)
        for node in doomed:
            self._drop(node)
        self.edits.removed += len(doomed)
        return len(doomed)

    def remove_dead(self, keep: Iterable[Node]) -> int:
        """Remove every node that none of ``keep`` depends on; returns how many."""
        alive = self.ancestors(keep)
        return self.remove_all(node for node in self if node not in alive)

    def ancestors(self, nodes: Iterable[Node], *, data_only: bool = False) -> dict[Node, None]:
        """The nodes and all that they depend on (a dict used as an ordered set)."""
        seen = dict.fromkeys(nodes)
        stack = list(seen)
        while stack:
            node = stack.pop()
            for tensor in node.inputs:
                if tensor.node not in seen:
                    seen[tensor.node] = None
                    stack.append(tensor.node)
            if data_only:
                continue
            for control in node.controls:
                if control not in seen:
                    seen[control] = None
                    stack.append(control)
        return seen

    def descendants(self, nodes: Iterable[Node], *, data_only: bool = False) -> dict[Node, None]:
        """The nodes and all that depends on them (a dict used as an ordered set)."""
        seen = dict.fromkeys(nodes)
        stack = list(seen)
        while stack:
            node = stack.pop()
            for consumer in [n for n, _ in node._uses] if data_only else node.consumers():
                if consumer not in seen:
                    seen[consumer] = None
                    stack.append(consumer)
        return seen

    def set_input(self, node: Node, index: int, tensor: Tensor) -> None:
        """Let input ``index`` of ``node`` read ``tensor``."""
        self._check_members((node, tensor.node), f"input {index} of '{node.name}'")
        if not 0 <= index < len(node.inputs):
            raise GraphError(f"there is no input {index}", node=node)
        if node.inputs[index] == tensor:
            return
        use = Use(node, index)
        del node.inputs[index].node._uses[use]
        tensor.node._uses[use] = tensor.port
        node.inputs = (*node.inputs[:index], tensor, *node.inputs[index + 1 :])
        self._changed(node)

    def set_inputs(self, node: Node, inputs: Sequence[Tensor]) -> None:
        """Replace all data inputs of ``node``."""
        self._check_members((node, *(t.node for t in inputs)), f"inputs of '{node.name}'")
        self._relink(node, tuple(inputs), node.controls)

    def set_controls(self, node: Node, controls: Iterable[Node]) -> None:
        """Replace all control inputs of ``node``."""
        wanted = tuple(dict.fromkeys(controls))
        if wanted == node.controls:
            return
        self._check_members((node, *wanted), f"control inputs of '{node.name}'")
        self._relink(node, node.inputs, wanted)

    def add_control(self, node: Node, control: Node) -> None:
        """Let ``node`` wait for ``control``; nothing happens where it does already."""
        self.add_controls(node, (control,))

    def add_controls(self, node: Node, controls: Iterable[Node]) -> None:
        """Let ``node`` wait for all of ``controls``; each that it did not wait for counts as an edit."""
        new = [control for control in dict.fromkeys(controls) if node not in control._control_uses]
        if not new:
            return
        self._check_members((node, *new), f"control inputs of '{node.name}'")
        self._relink(node, node.inputs, (*node.controls, *new))
        self.edits.changed += len(new) - 1

    def remove_control(self, node: Node, control: Node) -> None:
        """Let ``node`` no longer wait for ``control``."""
        self.set_controls(node, [c for c in node.controls if c is not control])

    def replace_uses(self, old: Tensor, new: Tensor, *, where: Callable[[Use], bool] | None = None) -> int:
        """Let the readers of ``old`` (those that ``where`` accepts) read ``new``; returns how many reads moved."""
        uses = [use for use in old.node.uses(old.port) if where is None or where(use)]
        for use in uses:
            self.set_input(use.node, use.index, new)
        return len(uses)

    def replace_control_uses(self, old: Node, new: Iterable[Node]) -> int:
        """Let the nodes that wait for ``old`` wait for all of ``new``; returns how many nodes changed."""
        new = tuple(new)
        waiting = [node for node in old.control_uses() if node not in new]
        for node in waiting:
            swapped: list[Node] = []
            for control in node.controls:
                swapped.extend(new if control is old else (control,))
            self.set_controls(node, swapped)
        return len(waiting)

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
        """Turn ``node`` into another op under the same name; ``attrs`` replaces all attributes but ``_`` ones."""
        self._check_members((node, *(t.node for t in inputs or ())), f"new inputs of '{node.name}'")
        self._count_of[node.op] -= 1
        self._count_of[op] = self._count_of.get(op, 0) + 1
        node.op = op
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
        self._check_members((node,), f"attribute '{name}'")
        attrs = dict(node._attrs)
        attrs.pop(name, None)
        if value is not None:
            attrs[name] = attr_codec.encode(value)
        node._attrs = attrs
        if name[0] == "_":
            self.edits.changed += 1
        else:
            self._changed(node)

    def set_device(self, node: Node, device: str) -> None:
        """Ask for a device; "" asks for none."""
        if node.device == device:
            return
        self._check_members((node,), "device")
        node.device = device
        self._changed(node)

    def set_outputs(self, node: Node, outputs: Sequence[Output]) -> None:
        """Record dtype and shape of each output; this is knowledge about the graph, not an edit of it."""
        node.outputs = list(outputs)
        self._inferred += 1

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
        self.edits.added += len(chosen)
        return copies

    def note(self, node: Node | str, text: str) -> None:
        """Record what the pass at work did with a node, or why it left it alone."""
        self.notes.append(Note(self.stage or "", node if isinstance(node, str) else node.name, text))

    # ------------------------------------------------------------------ links

    def _insert(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._count_of[node.op] = self._count_of.get(node.op, 0) + 1
        self._inferred += 1

    def _drop(self, node: Node) -> None:
        self._unlink(node)
        del self._nodes[node.name]
        self._count_of[node.op] -= 1

    def _link(self, node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...]) -> None:
        node.inputs = inputs
        node.controls = controls
        for index, tensor in enumerate(inputs):
            tensor.node._uses[Use(node, index)] = tensor.port
        for control in controls:
            control._control_uses[node] = None

    def _unlink(self, node: Node) -> None:
        for index, tensor in enumerate(node.inputs):
            tensor.node._uses.pop(Use(node, index), None)
        for control in node.controls:
            control._control_uses.pop(node, None)
        node.inputs = ()
        node.controls = ()

    def _relink(self, node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...]) -> None:
        self._unlink(node)
        self._link(node, inputs, controls)
        self._changed(node)

    def _changed(self, node: Node) -> None:
        self.edits.changed += 1
        self._touched[node] = None

    def _check_members(self, nodes: Iterable[Node], what: str) -> None:
        for node in nodes:
            if self._nodes.get(node.name) is not node:
                raise GraphError(f"{what}: the node is not in this graph", node=node)


def is_back_edge(producer: Node, consumer: Node) -> bool:
    """Whether the edge closes a TF1 loop."""
    return consumer.op in ops.MERGE and producer.op in ops.NEXT_ITERATION


def _cycle_error(waiting: Mapping[Node, int]) -> GraphError:
    node = next(iter(waiting))
    seen: dict[Node, None] = {}
    while node not in seen:
        seen[node] = None
        node = next(p for p in node.producers() if p in waiting and not is_back_edge(p, node))
    path = list(seen)
    cycle = path[path.index(node) :]
    names = " <- ".join(n.name for n in cycle[:6]) + (" <- ..." if len(cycle) > 6 else "")
    return GraphError(
        f"the graph has a cycle that is no loop: {names}",
        node=node,
        fix="break it where the graph is written; a loop needs Merge and NextIteration, as tf.while_loop makes them",
    )
