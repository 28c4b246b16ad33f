"""The graph that passes rewrite: nodes with use-lists and control edges, TF1 loops included.

Every edit is a method of :class:`Graph`, which checks before it changes anything, counts the edit and records which
pass made a node and from which node of the user's graph it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Self, TypeVar

from tpugraph import ops
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir import walks
from tpugraph.ir.model_files import Signature
from tpugraph.ir.node import PLACE, Node, Output, Tensor, Use, Wait, Wired, assign
from tpugraph.ir.walks import is_back_edge
from tpugraph.support.errors import GraphError
from tpugraph.support.suggestions import did_you_mean

__all__ = ["Edits", "Graph", "Node", "Note", "Output", "Tensor", "Use", "is_back_edge"]

_T = TypeVar("_T")
_new = tuple.__new__  # a third of the time of Use(...), which matters for every edge of a graph


@dataclass
class Edits:
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
    """A pass's reason for what it did with a node; shown by ``tpugraph inspect --why``."""

    stage: str
    node: str
    text: str
    shown: bool = False  # in the report's own notes, too


class Graph:
    """A dataflow graph with TF1 loops (one back edge each, NextIteration to Merge).

    Attributes:
        library: the function library, opaque to passes (``graphdef`` and ``function_library`` read it), or None.
        collections: collections of a MetaGraphDef, by key, as lists of node or tensor names.
        roles: the result of :func:`tpugraph.roles.find`, or None.
        source: the file or folder the graph came from, for messages.
        stage: name of the running pass; new nodes are marked with it.
        notes: the passes' notes on nodes, in order.
        readable: the classes of results that the running pass may read; None outside of a pipeline.
        imported: TensorFlow's import of the graph, opaque (owned by :mod:`tpugraph.analysis.shapes`), or None.
    """

    def __init__(self) -> None:
        self.library: Any = None
        self.versions: Any = None
        self.collections: dict[str, list[str]] = {}
        self.signatures: dict[str, Signature] = {}
        self.edits = Edits()
        self.roles: Any = None
        self.source = ""
        self.stage: str | None = None
        self.notes: list[Note] = []
        self.readable: frozenset[type] | None = None
        self.imported: Any = None
        self._nodes: dict[str, Node] = {}
        self._next_suffix: dict[str, int] = {}
        self._of_op: dict[str, dict[Node, None]] = {}
        self._places = count()
        self._waits: dict[tuple[Node, ...], Wait] = {}
        self._touched: dict[Node, None] = {}
        self._stale: dict[Node, None] = {}
        self._remembered: dict[str, tuple[tuple[int, int, int, int, int], dict[Any, Any]]] = {}
        self._kept: dict[type, object] = {}
        self._inferred = 0

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
        """The node with a name, or None."""
        return self._nodes.get(name)

    def tensor(self, name: str) -> Tensor:
        """The tensor ``node`` or ``node:port``."""
        node, _, port = name.partition(":")
        return Tensor(self[node], int(port or 0))

    def of_type(self, *types: str) -> list[Node]:
        """The nodes with one of these op types, in graph order."""
        found = [node for op in dict.fromkeys(types) for node in self._of_op.get(op, ())]
        found.sort(key=PLACE)
        return found

    def fresh_name(self, base: str) -> str:
        """``base`` if free, else ``base_1``, ``base_2`` and so on."""
        if base not in self._nodes:
            return base
        suffix = self._next_suffix.get(base, 1)
        while f"{base}_{suffix}" in self._nodes:
            suffix += 1
        self._next_suffix[base] = suffix + 1
        return f"{base}_{suffix}"

    def __repr__(self) -> str:
        return f"<Graph{f' of {self.source}' if self.source else ''}: {len(self):,} nodes>"

    def knows_op(self, op: str) -> bool:
        """Whether a node can be of an op type: one of TensorFlow's, or a function of the library."""
        functions = () if self.library is None else self.library.function
        return ops.op_def(op) is not None or any(function.signature.name == op for function in functions)

    # ------------------------------------------------------------------ order

    def topological_order(
        self,
        nodes: Iterable[Node] | None = None,
        *,
        last: Container[Node] = (),
        extra: Mapping[Node, Sequence[Node]] | None = None,
    ) -> list[Node]:
        """The nodes in topological order of data and control edges, without the back edges of loops.

        Args:
            nodes: the nodes; all where None.
            last: nodes that are placed as late as possible.
            extra: additional predecessors by node.

        Raises:
            GraphError: a cycle that is no loop; the message names its nodes.
        """
        chosen = dict.fromkeys(self._nodes.values() if nodes is None else nodes)
        return walks.topological(chosen, whole=nodes is None, last=last, extra=extra)

    ancestors = staticmethod(walks.ancestors)
    descendants = staticmethod(walks.descendants)

    # ------------------------------------------------------------------ what holds for as long as nothing is edited

    def remember(self, key: str, make: Callable[[Self], dict[_T, Any]]) -> dict[_T, Any]:
        """The cached result of ``make(graph)``, recomputed after an edit of the graph or its roles."""
        edits = self.edits
        state = (edits.added, edits.removed, edits.changed, self._inferred, id(self.roles))
        held = self._remembered.get(key)
        if held is None or held[0] != state:
            held = self._remembered[key] = (state, make(self))
        return dict(held[1])

    def with_attr(self, name: str) -> dict[Node, None]:
        """The nodes with an attribute, in the order of the graph; cached until an edit."""
        return self.remember(f"with {name}", lambda graph: {n: None for n in graph._nodes.values() if name in n._attrs})

    def take_touched(self) -> list[Node]:
        """The nodes of the graph that were added or changed since the last call, other than in ``_`` attributes."""
        return self._taken(self._touched)

    def take_stale(self) -> list[Node]:
        """The nodes added or changed since the last call in ways that affect dtypes and shapes."""
        return self._taken(self._stale)

    def _taken(self, marked: dict[Node, None]) -> list[Node]:
        found = [node for node in marked if self._nodes.get(node.name) is node]
        marked.clear()
        return found

    def set_outputs(self, node: Node, outputs: Sequence[Output]) -> None:
        """Record dtype and shape of each output; not counted as an edit."""
        assign(node, "outputs", list(outputs))
        self._inferred += 1

    def expect_outputs(self, node: Node, outputs: Sequence[Output]) -> None:
        """As ``set_outputs``, for shapes that follow from edits elsewhere; the next shape inference checks them."""
        self.set_outputs(node, outputs)
        self._stale[node] = None

    # ------------------------------------------------------------------ what passes leave for later ones

    def keep(self, result: object) -> None:
        """Store a pass's result for later ones, replacing the one of its class."""
        self._kept[type(result)] = result

    def kept(self, kind: type[_T]) -> _T | None:
        """The stored result of a class, or None. The running pass must declare that it reads it."""
        if self.readable is not None and kind not in self.readable:
            raise GraphError(f"the pass '{self.stage}' looks up {kind.__name__}, which it does not name in its reads",
                             origin=self.source)  # fmt: skip
        found = self._kept.get(kind)
        return found if isinstance(found, kind) else None

    def kept_or_empty(self, kind: type[_T]) -> _T:
        """The stored result of a class, or one with its defaults."""
        return self.kept(kind) or kind()

    def result(self, kind: type[_T]) -> _T:
        """The stored result of a class, which the running pass must declare; a GraphError where there is none."""
        found = self.kept(kind)
        if found is None:
            raise GraphError(f"{kind.__name__} is not known of the graph", origin=self.source,
                             fix="run the pass that gives it before")  # fmt: skip
        return found

    def note(self, node: Node | str, text: str, *, shown: bool = False) -> None:
        """Record what the running pass did with a node, or why it did nothing; ``shown``: the report says it, too."""
        self.notes.append(Note(self.stage or "", node if isinstance(node, str) else node.name, text, shown))

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
        """Add a node.

        Args:
            name: the preferred name; a suffix is added where it is taken.
            attrs: attributes as Python values or protobufs.
            outputs: dtype and shape of each output, where known.
            source: the node on whose behalf this one is made (provenance).

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
        self.edits.added += 1
        self._touched[node] = None
        self._stale[node] = None
        self._link(node, tuple(inputs), controls)
        return node

    def adopt(self, wired: Sequence[Wired]) -> None:
        """Add new nodes in bulk, each with its inputs and controls, as loading does."""
        for node, _, _ in wired:
            self._insert(node)
        for node, inputs, controls in wired:
            self._link(node, inputs, controls)

    def remove(self, node: Node) -> None:
        """Remove a node; a GraphError where it has data or control users."""
        self.remove_all((node,))

    def remove_all(self, nodes: Iterable[Node]) -> int:
        """Remove nodes without users outside of the set; returns their number."""
        doomed = dict.fromkeys(nodes)
        self._check_members(doomed, "removal")
        waits = dict.fromkeys(wait for node in doomed for wait in node._awaited)
        uses = (((node,), consumer) for node in doomed for consumer, _ in node._uses)
        waiting = ((wait.controls, consumer) for wait in waits for consumer in wait.nodes)
        for used, consumer in chain(uses, waiting):
            if consumer not in doomed:
                raise GraphError(
                    f"cannot remove a node that '{consumer.name}' uses", node=next(n for n in used if n in doomed)
                )
        for node in doomed:
            self._unlink(node)
            node._uses.clear()
            del self._nodes[node.name]
            del self._of_op[node.op][node]
        self.edits.removed += len(doomed)
        return len(doomed)

    def remove_dead(self, keep: Iterable[Node]) -> int:
        """Remove every node that is no ancestor of ``keep``; returns the number removed."""
        alive = self.ancestors(keep)
        return self.remove_all(node for node in self if node not in alive)

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
        del self._of_op[node.op][node]
        self._of_op.setdefault(op, {})[node] = None
        assign(node, "op", op)
        self._stale[node] = None
        if attrs is not None:
            kept = {key: held for key, held in node._attrs.items() if key[0] == "_" and key != "_output_shapes"}
            node._attrs = kept | {key: attr_codec.encode(value) for key, value in attrs.items()}
        if outputs is not None:
            node.outputs = list(outputs)
        if inputs is not None:
            self._relink(node, tuple(inputs), node.controls)
            return
        self._changed(node)

    def set_attr(self, nodes: Node | Iterable[Node], name: str, value: Any) -> None:
        """Set one attribute of a node, or of several; None removes it."""
        nodes = [nodes] if isinstance(nodes, Node) else list(nodes)
        self._check_members(nodes, f"attribute '{name}'")
        encoded = None if value is None else attr_codec.encode(value)
        for node in nodes:
            attrs = dict(node._attrs)
            attrs.pop(name, None)
            if encoded is not None:
                attrs[name] = encoded
            assign(node, "_attrs", attrs)
        self.edits.changed += len(nodes)
        if name[0] != "_":
            self._touched.update(dict.fromkeys(nodes))
        if name[0] != "_" or name == "_output_shapes":
            self._stale.update(dict.fromkeys(nodes))

    def set_device(self, nodes: Node | Iterable[Node], device: str) -> None:
        """Set the device of a node, or of several; "" for none."""
        others = [n for n in ([nodes] if isinstance(nodes, Node) else nodes) if n.device != device]
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
        """Copy nodes; edges among them connect the copies, others keep their source or follow replacements. Returns the copies."""
        replace, replace_controls = replace or {}, replace_controls or {}
        chosen = list(dict.fromkeys(nodes))
        copies = {
            node: self.add(
                node.op, rename(node.name), attrs=node._attrs, device=node.device, outputs=node.outputs, source=node
            )
            for node in chosen
        }
        for node in chosen:
            inputs = tuple(
                replace[t] if t in replace else Tensor(copies.get(t.node, t.node), t.port) for t in node.inputs
            )
            controls: dict[Node, None] = {}
            for control in node.controls:
                controls.update(dict.fromkeys(replace_controls.get(control, (copies.get(control, control),))))
            self._link(copies[node], inputs, tuple(controls))
        return copies

    # ------------------------------------------------------------------ edges

    def set_input(self, node: Node, index: int, tensor: Tensor) -> None:
        """Connect input ``index`` of ``node`` to ``tensor``."""
        self._check_members((node, tensor.node), f"input {index} of '{node.name}'")
        if not 0 <= index < len(node.inputs):
            raise GraphError(f"there is no input {index}", node=node)
        if node.inputs[index] == tensor:
            return
        use = Use(node, index)
        del node.inputs[index].node._uses[use]
        tensor.node._uses[use] = tensor.port
        assign(node, "inputs", (*node.inputs[:index], tensor, *node.inputs[index + 1 :]))
        self._stale[node] = None
        self._changed(node)

    def set_inputs(self, node: Node, inputs: Sequence[Tensor]) -> None:
        """Replace all data inputs of ``node``."""
        self._check_members((node, *(t.node for t in inputs)), f"inputs of '{node.name}'")
        self._relink(node, tuple(inputs), node.controls)
        self._stale[node] = None

    def set_controls(self, node: Node, controls: Iterable[Node]) -> None:
        """Replace all control inputs of ``node``."""
        wanted = tuple(dict.fromkeys(controls))
        if wanted == node.controls:
            return
        self._check_members((node, *wanted), f"control inputs of '{node.name}'")
        self._relink(node, node.inputs, wanted)

    def add_control(self, node: Node, control: Node) -> None:
        """Add a control edge from ``control`` to ``node``; idempotent."""
        self.add_controls(node, (control,))

    def add_controls(self, node: Node, controls: Iterable[Node]) -> None:
        """Add control edges from ``controls`` to ``node``; each new one counts as an edit."""
        held = dict.fromkeys(node.controls)
        new = [control for control in dict.fromkeys(controls) if control not in held]
        if not new:
            return
        self._check_members((node, *new), f"control inputs of '{node.name}'")
        self._relink(node, node.inputs, (*node.controls, *new))
        self.edits.changed += len(new) - 1

    def remove_control(self, node: Node, control: Node) -> None:
        """Remove the control edge from ``control`` to ``node``."""
        self.set_controls(node, [c for c in node.controls if c is not control])

    def swap_controls(self, nodes: Iterable[Node], swap: Callable[[Node], Sequence[Node]]) -> int:
        """Replace each control input of ``nodes`` by ``swap(control)``; returns the number of changed nodes.

        Equal sets of control inputs are computed once.
        """
        swapped: dict[tuple[Node, ...], tuple[Node, ...]] = {}
        changed = 0
        for node in nodes:
            if not node.controls:
                continue
            wanted = swapped.get(node.controls)
            if wanted is None:
                wanted = swapped[node.controls] = tuple(
                    dict.fromkeys([other for control in node.controls for other in swap(control)])
                )
            if wanted != node.controls:
                self.set_controls(node, wanted)
                changed += 1
        return changed

    def replace_uses(self, old: Tensor, new: Tensor, *, where: Callable[[Use], bool] | None = None) -> int:
        """Connect the readers of ``old`` (those that ``where`` accepts) to ``new``; returns the number of moved reads."""
        uses = [use for use in old.node.uses(old.port) if where is None or where(use)]
        for use in uses:
            self.set_input(use.node, use.index, new)
        return len(uses)

    def replace_control_uses(self, old: Node, new: Iterable[Node]) -> int:
        """Replace control edges from ``old`` by edges from all of ``new``; returns the number of changed nodes."""
        new = tuple(new)
        waiting = [node for node in old.control_uses() if node not in new]
        return self.swap_controls(waiting, lambda control: new if control is old else (control,))

    # ------------------------------------------------------------------ links

    def _insert(self, node: Node) -> None:
        self._nodes[node.name] = node
        assign(node, "_place", next(self._places))
        self._of_op.setdefault(node.op, {})[node] = None
        self._inferred += 1

    def _link(self, node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...]) -> None:
        assign(node, "inputs", inputs)
        for index, (producer, port) in enumerate(inputs):
            producer._uses[_new(Use, (node, index))] = port
        if not controls:
            return
        wait = self._waits.get(controls)
        if wait is None:
            wait = self._waits[controls] = Wait(controls)
            for control in controls:
                control._awaited[wait] = None
        assign(node, "controls", wait.controls)
        assign(node, "_wait", wait)
        wait.nodes[node] = None

    def _unlink(self, node: Node) -> None:
        for index, tensor in enumerate(node.inputs):
            tensor.node._uses.pop(_new(Use, (node, index)), None)
        assign(node, "inputs", ())
        wait = node._wait
        if wait is None:
            return
        assign(node, "controls", ())
        assign(node, "_wait", None)
        del wait.nodes[node]
        if not wait.nodes:
            del self._waits[wait.controls]
            for control in wait.controls:
                del control._awaited[wait]

    def _check_members(self, nodes: Iterable[Node], what: str) -> None:
        for node in nodes:
            if self._nodes.get(node.name) is not node:
                raise GraphError(f"{what}: the node is not in this graph", node=node)

    def _relink(self, node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...]) -> None:
        self._unlink(node)
        self._link(node, inputs, controls)
        self._changed(node)

    def _changed(self, node: Node) -> None:
        self.edits.changed += 1
        self._touched[node] = None
