"""Shards: the variables that hold the rows of one table together, one on each core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder

TABLE = "_tpugraph_table"
"""Attribute of a shard: the name of the whole variable in the plain graph."""

ROWS = "_tpugraph_rows"
"""Attribute of a shard: how many rows of the whole variable it holds. What it has room for beyond these is nobody's."""


@dataclass(frozen=True)
class Layout:
    """How the rows of a table are dealt out: each core has as many, one after the other, and the last core what is left.

    Attributes:
        rows: how many rows the table has.
        cores: how many cores there are.
    """

    rows: int
    cores: int

    @property
    def piece(self) -> int:
        """The rows of each core but the last."""
        return -(-self.rows // self.cores)

    @property
    def room(self) -> int:
        """The rows that a shard has room for: one more than it holds, for what updates do to rows of other cores."""
        return self.piece + 1

    def start(self, core: int) -> int:
        """The first row of a core."""
        return core * self.piece

    def count(self, core: int) -> int:
        """How many rows a core has."""
        return min(self.piece, self.rows - self.start(core))

    def slice(self, core: int, shape: Sequence[int]) -> str:
        """What checkpoints call the part of a core: the whole shape, then the first row and the number of rows."""
        return f"{' '.join(map(str, shape))} {self.start(core)},{self.count(core)}{':-' * (len(shape) - 1)}"


@dataclass(frozen=True)
class ShardedTable:
    """A table whose rows were dealt out to the cores.

    Attributes:
        variables: the table, and the optimizer's variables that were dealt out with it.
        rows: of the table.
        rows_per_core: of each core but the last, which has what is left.
        bytes_per_core: of all these variables on a core.
        bytes: what they would take on each core otherwise.
        sums: the nodes that sum over the cores what lookups find.
        local: the nodes whose values are of the core's own rows, and of all rows in the plain graph.
    """

    variables: tuple[str, ...]
    rows: int
    rows_per_core: int
    bytes_per_core: int
    bytes: int
    sums: tuple[str, ...]
    local: tuple[str, ...]


@dataclass(frozen=True)
class ShardedTables:
    """Large tables have been dealt out to the cores.

    Attributes:
        least_bytes: how large a table is at least.
        tables: by the name of the table.
        whole: why the others of this size are whole on each core, by name.
    """

    least_bytes: int = 0
    tables: Mapping[str, ShardedTable] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)


def table_of(variable: Node) -> str:
    """The name of a variable in the plain graph: of a shard that of its table, else its own."""
    name: str = variable.attr(TABLE, variable.name)
    return name


def shards_of(graph: Graph) -> dict[str, list[Node]]:
    """The shards of each table, core by core, by the name that the table has in the plain graph."""
    found: dict[str, list[Node]] = {}
    for node in graph.of_type(*ops.RESOURCE_VARIABLES):
        if node.has_attr(TABLE):
            found.setdefault(node.attr(TABLE), []).append(node)
    return found


def padded(make: Builder, rows: Tensor, count: int, room: Sequence[int], *, name: str) -> Tensor:
    """So many rows with zeros behind them, in the shape of a shard, which is the room that it has."""
    padding = make.constant(
        [[0, room[0] - count], *[[0, 0]] * (len(room) - 1)], attrs.dtype("int32"), name=f"{name}/padding"
    )
    return make.add("Pad", [rows, padding], tuple(room), name=name)
