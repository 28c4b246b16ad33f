"""The engine of several workers: emulated cores in one loop that has a part on each of them."""

from __future__ import annotations

from tpugraph.ir import Graph
from tpugraph.runtime.emulator import emulation
from tpugraph.runtime.emulator.emulation import EmulatedLoop
from tpugraph.runtime.emulator.hosts import MIRROR, Hosts


class SpreadLoop(EmulatedLoop):
    """Emulated cores on several hosts, each of which has variables of its own that hold the same.

    Its ops are not measured one by one: the session of a cluster hands out no measurements.

    Args:
        graph: the TPU graph with its entry points; it is lowered in place.
        hosts: the workers.
        notes: what is worth knowing about them.

    Raises:
        RunError: the graph has what is not emulated, or a loop that cannot be shared.
    """

    def __init__(self, graph: Graph, hosts: Hosts, notes: list[str]) -> None:
        super().__init__(emulation.lower(graph, hosts=hosts), notes=notes)

    def variables_changed(self) -> None:
        """Let the variables of all hosts follow those of the first."""
        if MIRROR in self.host.names:
            self.host.run([MIRROR])
