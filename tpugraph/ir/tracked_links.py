"""Links that keep count of edits: what holds for as long as nothing is edited, and what passes leave for later ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from tpugraph.ir.links import Links
from tpugraph.ir.node import Node, Output, assign
from tpugraph.support.errors import GraphError

_T = TypeVar("_T")


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


class TrackedLinks(Links):
    """The part of a graph that knows what was done to it and what is known of it.

    Attributes:
        edits: how often the graph was edited.
        roles: what :func:`tpugraph.roles.find` said about the graph, or None.
        source: the file or folder the graph came from, for messages.
        stage: name of the pass at work; new nodes are marked with it.
        notes: what passes said about nodes, in order.
        readable: the classes of results that the pass at work may look up; None where no pipeline runs.
        imported: what TensorFlow knows of the graph, opaque (:mod:`tpugraph.analysis.shapes` keeps it here), or None.
    """

    def __init__(self) -> None:
        super().__init__()
        self._touched: dict[Node, None] = {}
        self._unproven: dict[Node, None] = {}
        self._remembered: dict[str, tuple[tuple[int, int, int, int], dict[Node, Any]]] = {}
        self._verified: dict[str, tuple[int, int, int, int, int]] = {}
        self._inferred = 0
        self._marked = 0
        self._with_attr: dict[str, tuple[tuple[int, int, int, int], dict[Node, None]]] = {}
        self.edits = Edits()
        self.roles: Any = None
        self.source = ""
        self.stage: str | None = None
        self.notes: list[Note] = []
        self.readable: frozenset[type] | None = None
        self._kept: dict[type, object] = {}
        self.imported: Any = None

    # ------------------------------------------------------------------ what holds for as long as nothing is edited

    def verified(self, name: str) -> bool:
        """Whether :meth:`set_verified` was called with that name and nothing was edited since."""
        return self._verified.get(name) == (*self._state(), id(self.roles))

    def set_verified(self, name: str) -> None:
        """Record that an invariant holds for the graph as it is."""
        self._verified[name] = (*self._state(), id(self.roles))

    def _state(self) -> tuple[int, int, int, int]:
        return (self.edits.added, self.edits.removed, self.edits.changed, self._inferred)

    def remember(self, key: str, make: Callable[[Self], dict[Node, Any]]) -> dict[Node, Any]:
        """What ``make(graph)`` says of the graph; computed once for as long as nothing is edited."""
        state = self._state()
        held = self._remembered.get(key)
        if held is None or held[0] != state:
            held = self._remembered[key] = (state, make(self))
        return dict(held[1])

    def with_attr(self, name: str) -> dict[Node, None]:
        """The nodes that have a ``_`` attribute, in the order of the graph; computed once for as long as none is set."""
        state = (self.edits.added, self.edits.removed, self._marked, len(self))
        held = self._with_attr.get(name)
        if held is None or held[0] != state:
            found = {node: None for node in self._nodes.values() if name in node._attrs}
            held = self._with_attr[name] = (state, found)
        return dict(held[1])

    def take_touched(self) -> list[Node]:
        """The nodes added or changed since the last call that are still in the graph; a ``_`` attribute is no change."""
        held = self._nodes
        touched = [node for node in self._touched if held.get(node.name) is node]
        self._touched.clear()
        return touched

    def take_unproven(self) -> list[Node]:
        """The nodes whose dtypes and shapes may be others than at the last call: new ones, and edited ones.

        Control edges, devices and most ``_`` attributes say nothing about either.
        """
        held = self._nodes
        unproven = [node for node in self._unproven if held.get(node.name) is node]
        self._unproven.clear()
        return unproven

    def set_outputs(self, node: Node, outputs: Sequence[Output]) -> None:
        """Record dtype and shape of each output; this is knowledge about the graph, not an edit of it."""
        assign(node, "outputs", list(outputs))
        self._inferred += 1

    def expect_outputs(self, node: Node, outputs: Sequence[Output]) -> None:
        """As ``set_outputs``, of shapes that follow from edits elsewhere: TensorFlow infers them the next time, as a check."""
        self.set_outputs(node, outputs)
        self._unprove(node)

    # ------------------------------------------------------------------ what passes leave for later ones

    def keep(self, result: object) -> None:
        """Keep what a pass found or made, for later ones, instead of what is kept of its class."""
        self._kept[type(result)] = result

    def kept(self, kind: type[_T]) -> _T | None:
        """The result of that class; None where none is kept.

        Raises:
            GraphError: the pass at work does not say that it reads it.
        """
        if self.readable is not None and kind not in self.readable:
            raise GraphError(f"the pass '{self.stage}' looks up {kind.__name__}, which it does not name in its reads",
                             origin=self.source)  # fmt: skip
        found = self._kept.get(kind)
        return found if isinstance(found, kind) else None

    def result(self, kind: type[_T]) -> _T:
        """The result of that class.

        Raises:
            GraphError: none is kept, or the pass at work does not say that it reads it.
        """
        found = self.kept(kind)
        if found is None:
            raise GraphError(f"{kind.__name__} is not known of the graph", origin=self.source,
                             fix="run the pass that gives it before")  # fmt: skip
        return found

    def note(self, node: Node | str, text: str) -> None:
        """Record what the pass at work did with a node, or why it left it alone."""
        self.notes.append(Note(self.stage or "", node if isinstance(node, str) else node.name, text))

    # ------------------------------------------------------------------ tracks of edits

    def _insert(self, node: Node) -> None:
        super()._insert(node)
        self._inferred += 1

    def _unprove(self, node: Node) -> None:
        self._unproven[node] = None
        assign(node, "_written", None)

    def _changed(self, node: Node) -> None:
        self.edits.changed += 1
        self._touched[node] = None
