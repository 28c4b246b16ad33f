"""Links whose edges can be edited: which tensors a node reads, and which nodes it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tpugraph.ir.node import Node, Tensor, Use, assign
from tpugraph.ir.tracked_links import TrackedLinks
from tpugraph.support.errors import GraphError


class RewiredLinks(TrackedLinks):
    """The part of a graph that edits edges; each edit is checked before anything changes, and counted."""

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
        assign(node, "inputs", (*node.inputs[:index], tensor, *node.inputs[index + 1 :]))
        self._unprove(node)
        self._changed(node)

    def set_inputs(self, node: Node, inputs: Sequence[Tensor]) -> None:
        """Replace all data inputs of ``node``."""
        self._check_members((node, *(t.node for t in inputs)), f"inputs of '{node.name}'")
        self._relink(node, tuple(inputs), node.controls)
        self._unprove(node)

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
        held = dict.fromkeys(node.controls)
        new = [control for control in dict.fromkeys(controls) if control not in held]
        if not new:
            return
        self._check_members((node, *new), f"control inputs of '{node.name}'")
        self._relink(node, node.inputs, (*node.controls, *new))
        self.edits.changed += len(new) - 1

    def remove_control(self, node: Node, control: Node) -> None:
        """Let ``node`` no longer wait for ``control``."""
        self.set_controls(node, [c for c in node.controls if c is not control])

    def swap_controls(self, nodes: Iterable[Node], swap: Callable[[Node], Sequence[Node]]) -> int:
        """Let each of ``nodes`` wait for ``swap(control)`` where it waits for ``control``; returns how many changed.

        What many wait for together is looked at once.
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
        """Let the readers of ``old`` (those that ``where`` accepts) read ``new``; returns how many reads moved."""
        uses = [use for use in old.node.uses(old.port) if where is None or where(use)]
        for use in uses:
            self.set_input(use.node, use.index, new)
        return len(uses)

    def replace_control_uses(self, old: Node, new: Iterable[Node]) -> int:
        """Let the nodes that wait for ``old`` wait for all of ``new``; returns how many nodes changed."""
        new = tuple(new)
        waiting = [node for node in old.control_uses() if node not in new]
        return self.swap_controls(waiting, lambda control: new if control is old else (control,))

    def _relink(self, node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...]) -> None:
        self._unlink(node)
        self._link(node, inputs, controls)
        self._changed(node)
