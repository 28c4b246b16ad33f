"""Compare: finds the first tensor of a step that differs between engines, with its step, core and placement."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import HOST_DEVICE, by_core, frames, shapes
from tpugraph.analysis.placements import REPLICATE, SUM, Partial, Placement, Replicate, Shard, Share
from tpugraph.analysis.shapes import is_static
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.compiler.options import given
from tpugraph.ir import Graph, Node, Tensor, graphdef
from tpugraph.ir.builder import Builder
from tpugraph.ir.conditionals import sides
from tpugraph.ir.walks import source_of, variable_of
from tpugraph.passes.partition import Partition
from tpugraph.runtime.engines import VIRTUAL_DEVICES
from tpugraph.runtime.variables import saved_variables
from tpugraph.spmd.placing import Placing
from tpugraph.support.errors import RunError, UsageError
from tpugraph.support.wording import counted
from tpugraph.tables.sharding import ShardedTables
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.verification import CHANCE, Pair, nothing_to_compare, pair, relative
from tpugraph.tpu.pipeline import Pass
from tpugraph.tpu.program import Program
from tpugraph.xla.bridge import PICKING
from tpugraph.xla.mesh import DATA, Layout, Mesh


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that differs; for a variable its value after the step.

    Attributes:
        step: the step, from 1.
        core: the core; None where the combined value differs.
        engine: the engine whose value differs from the first one's.
        difference: the largest difference, relative to the largest element.
        lives: its placement, and how the cores' values were combined; ``because`` is the rule for the placement.
        reader: the node that reads it in this placement; "" where it is compared as produced.
        reads: operands that were compared and are equal.
        unseen: operands that could not be compared.
    """

    tensor: str
    op: str
    step: int
    core: int | None
    engine: str
    difference: float
    lives: str
    because: str
    reader: str = ""
    reads: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(repr=False)
class TensorComparison:
    """The result of :func:`compare`.

    Attributes:
        engines: the compared engines, the reference first.
        cores: the number of cores of the engines ``emulator`` and ``pjrt``.
        mesh: the mesh of the engine ``xla``; "" without it.
        tolerance: the largest difference that counts as equal.
        notes: changes to the graph for the comparison, and differences that are rounding.
        compared: the tensors compared on all engines, in topological order, then the loss and the variables.
        differences: those of the first step with any difference, in the same order.
    """

    source: str
    engines: tuple[str, ...]
    cores: int
    tolerance: float
    mesh: str = ""
    notes: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    differences: list[TensorDifference] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<TensorComparison of {self.source}: {len(self.differences):,} tensors differ>"

    @property
    def first(self) -> TensorDifference | None:
        """The first tensor in topological order that differs; None where none does."""
        return self.differences[0] if self.differences else None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists (JSON)."""
        return asdict(self) | {"ok": not self.differences}


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class OnCores:
    """A tensor of the plain graph on the cores, as a node reads it there: after scaling, reduction or all-gather."""

    tensor: str  # its name in the converted graph
    placement: Placement = REPLICATE
    reader: str = ""  # the reader in this placement; "" where it is compared as produced
    because: str = ""  # the rule for the placement

    @property
    def lives(self) -> str:
        """The placement in words, and how the cores' values make up the plain graph's."""
        how = "each core's is compared"
        if isinstance(self.placement, Shard):
            how = f"put together along dimension {self.placement.axis}"
        elif isinstance(self.placement, Partial):
            how = _COMBINED[self.placement.reduce_op][0]
        return f"{self.placement}, {how}"

    def whole(self, parts: Sequence[Array]) -> Array:
        """Combine the values of all cores into the plain graph's value."""
        if isinstance(self.placement, Partial):
            kind = {"f": np.float64, "V": np.float64, "c": np.complex128}.get(parts[0].dtype.kind, parts[0].dtype)
            return np.asarray(_COMBINED[self.placement.reduce_op][1](np.stack(parts).astype(kind), axis=0))
        if isinstance(self.placement, Shard):
            rows = self.placement
            joined = np.concatenate([_blocks(part, rows) for part in parts], axis=rows.axis + 1)
            shape = list(parts[0].shape)
            shape[rows.axis] *= len(parts)
            return joined.reshape(shape)
        return parts[0]

    def difference(self, whole: Array, parts: Sequence[Array]) -> list[float]:
        """The difference from the plain graph's value: of each core's share of it, else of the combined value."""
        if isinstance(self.placement, Partial):
            return [relative(whole, self.whole(parts))]
        shares = [whole] * len(parts)
        if isinstance(self.placement, Shard):
            split = np.split(_blocks(whole, self.placement), len(parts), axis=self.placement.axis + 1)
            shares = [share.reshape(parts[0].shape) for share in split]
        return [relative(share, part, whole) for share, part in zip(shares, parts, strict=True)]


_COMBINED: dict[str, tuple[str, Any]] = {
    "sum": ("added up over the cores", np.sum),
    "max": ("the largest over the cores", np.max),
    "min": ("the smallest over the cores", np.min),
}


def converted(reads: dict[str, list[OnCores]], graph: Graph, options: ConvertOptions) -> Program:
    """Convert a graph; ``reads`` get the forms in which the cores read each tensor of the plain graph, by name."""
    found: list[tuple[Tensor, str, int, OnCores]] = []

    def before(step: Pass) -> None:
        if isinstance(step, Partition) and step.num_replicas > 1:
            found.extend(_reads(step.placements(graph).placing))

    program = convert(graph, options, before=before)
    local = {name for table in graph.kept_or_empty(ShardedTables).tables.values() for name in table.local}
    for tensor, reader, index, held in found:
        node = graph.get(reader)
        if node is None or tensor.node.name in local:
            continue
        read = str(node.inputs[index]) if index >= 0 else str(tensor)
        known = reads.setdefault(str(tensor), [])
        if read not in {other.tensor for other in known}:
            known.append(replace(held, tensor=read))
    return program


def _reads(placing: Placing) -> Iterator[tuple[Tensor, str, int, OnCores]]:
    """Each tensor of the step with its reader and operand index; -1 where no node of the step reads it."""
    verdicts = placing.verdicts
    for node, verdict in verdicts.items():
        record = ops.record(node.op)
        for index, tensor in enumerate(node.inputs):
            placement = verdict.wants.get(index, placing.read(tensor))
            placement = SUM if isinstance(placement, Share) else placement
            sizes = index in (record.shaped_by, record.rows_operand)  # local sizes
            if tensor.node in verdicts and isinstance(placement, Replicate | Shard | Partial) and not sizes:
                yield tensor, node.name, index, OnCores("", placement, node.name, verdicts[tensor.node].why)
        if node.op in ops.RANDOM | ops.SHAPES | ops.SIZES:
            continue  # values that a core produces represent themselves
        for port, made in enumerate(verdict.outputs):
            read = port in (*verdict.averaged, *verdict.cuts) or any(use.node in verdicts for use in node.uses(port))
            if not read and isinstance(made, Replicate | Shard | Partial):
                yield node.out(port), node.name, -1, OnCores("", made, "", verdict.why)


def _blocks(value: Array, rows: Shard) -> Array:
    """A value reshaped so that concatenated batches along the dimension of rows get a dimension of their own."""
    shape = value.shape
    return value.reshape(*shape[: rows.axis], rows.outer, shape[rows.axis] // rows.outer, *shape[rows.axis + 1 :])


def tap(graph: Graph, tensors: Sequence[Tensor]) -> dict[str, list[str]]:
    """Add tensors of a TPU graph's step to the outfeed, in place; any engine can run the graph afterwards.

    Returns by tensor the variables that hold its last value on each core.
    """
    enqueue, frame_of = graph.of_type("OutfeedEnqueueTuple")[0], frames(graph)
    sent = [*enqueue.inputs, *tensors]
    graph.set_inputs(enqueue, sent)
    graph.set_attr(enqueue, "dtypes", [tensor.dtype for tensor in sent])
    make = Builder(graph, "tpugraph/taps", device=HOST_DEVICE)
    kept: dict[str, list[str]] = {str(tensor): [] for tensor in tensors}
    for core, dequeue in enumerate(by_core(graph.of_type("OutfeedDequeueTuple"))):
        readers, first = dequeue.consumers(), len(dequeue.outputs or ())
        outputs = [*(dequeue.outputs or ()), *((tensor.dtype, tensor.shape) for tensor in tensors)]
        graph.set_attr(dequeue, "dtypes", [kind for kind, _ in outputs])
        graph.set_attr(dequeue, "shapes", [shape for _, shape in outputs])
        graph.set_outputs(dequeue, outputs)
        for port, tensor in enumerate(tensors, first):
            variable = make.variable(tensor.dtype, tensor.shape, name=f"core_{core}/{port}")
            handle = make.enter(variable.out(), frame_of[dequeue])
            write = make.node("AssignVariableOp", [handle, dequeue.out(port)], name="keep")
            for reader in readers:
                graph.add_control(reader, write)
            kept[str(tensor)].append(variable.name)
    return kept


def can_tap(graph: Graph) -> dict[str, Tensor]:
    """The tensors of the device's step that the outfeed can send, by name: of static shape, no handles."""
    sends = graph.of_type("OutfeedEnqueueTuple")
    if len(sends) != 1:
        raise RunError("the graph has no outfeed: it is no converted training graph", origin=graph.source)
    behind, skipped = graph.descendants(sends), ops.EXIT | ops.CONSTANTS
    nodes = [node for node in analysis.cluster_nodes(graph) if node not in behind and node.op not in skipped]
    found = [t for t in _each_step(graph, nodes, frames(graph)[sends[0]]) if t.dtype.size and is_static(t.shape)]
    return {str(tensor): tensor for tensor in found if source_of(tensor).node.op not in ops.FLOWS}


def _each_step(graph: Graph, nodes: Iterable[Node], frame: str) -> list[Tensor]:
    """The outputs of nodes that have one value in each step: none in loops within the frame and in branches, no handles."""
    frame_of, on = frames(graph), sides(graph)
    once = [node for node in nodes if frame_of[node] == frame and node not in on and node.op not in ops.SWITCH]
    tensors = [node.out(port) for node in once for port in range(len(node.outputs or ()))]
    return [tensor for tensor in tensors if not tensor.dtype.is_handle]


XLA = "xla"
ENGINES = ("plain", "emulator", "pjrt", XLA)
"""What can be compared: the plain graph in TensorFlow, emulated cores, compiled ones, the plain step that XLA divides."""

_ON_NO_CORE = OnCores("-")
"""A tensor with the plain graph's value on a mesh only."""

_DIVIDED = ("as XLA divides it, the whole is compared", "", "")
"""Where a tensor on a mesh lives, without a rule and a reader."""

_LOSS = ""
"""The name of the loss among the values of the cores, which is told by each core's part of it."""

_Parts = Sequence[Array]
"""The values on all cores; a single one for the plain graph, the loss and variables."""


def compare(
    model: str | os.PathLike[str] | Graph,
    options: ConvertOptions | None = None,
    *,
    engines: Sequence[str] = ("plain", "emulator"),
    tensors: str = "all",
    steps: int = 1,
    tolerance: float = 1e-4,
    checkpoint: str | None = None,
    rebind: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    layout: Layout | None = None,
    platform: str = "cpu",
    **fields: Any,
) -> TensorComparison:
    """Find the first tensor of a training step that differs between engines.

    The cores split each batch of the plain graph; their rows are concatenated and their partial sums added before a comparison.
    After the tensors of a step its loss and its variables are compared. Tensors inside loops and branches are not compared; their
    outputs are.

    Args:
        model: a plain training graph, or its file.
        options: how to convert it; or give the fields of :class:`ConvertOptions` as keyword arguments.
        engines: ``plain``, ``emulator``, ``pjrt``, ``xla``; the first is what the others are compared with.
        tensors: ``all``, or a regular expression that their names match.
        steps: how many steps are compared.
        tolerance: the largest difference that counts as equal, relative to the largest element of a tensor.
        checkpoint: where training starts; the graph's own first values when None.
        rebind: file names in the graph to replace.
        progress: called with what runs next.
        layout: of ``xla``, how values lie on its mesh; 8 devices along the rows of the batch when None.
        platform: the devices of ``pjrt`` and ``xla``.
        **fields: see ``options``.

    Raises:
        UsageError: an unknown engine, less than two, or an expression that no tensor matches.
        TpuGraphError: the graph cannot be converted or run.
    """
    _check(engines, tensors)
    chosen = replace(given(options, fields), iterations_per_loop=1)
    if XLA in engines:
        layout = layout or Layout(Mesh({DATA: VIRTUAL_DEVICES}))
        if not {"emulator", "pjrt"} & set(engines):
            chosen = replace(chosen, num_replicas=1)
    held: dict[str, list[OnCores]] = {}
    with pair(model, chosen, checkpoint_path=checkpoint, rebind=rebind, convert_with=partial(converted, held)) as both:
        cores = both.program.report["num_replicas"]
        found = TensorComparison(both.plain.graph.source, tuple(engines), cores, tolerance,
                                 str(layout.mesh) if layout else "", both.notes)  # fmt: skip
        programs = {engine: both.program for engine in engines if engine != "plain"}
        if XLA in engines and cores > 1:
            programs[XLA] = convert(graphdef.copy(both.plain.graph), replace(both.options, num_replicas=1))
        on: dict[str, dict[str, Any]] = {"pjrt": {"platform": platform}, XLA: {"platform": platform, "mesh": layout}}
        comparing = _Comparing(both, found, "" if tensors == "all" else tensors, held, programs, on)
        comparing.run(steps, progress or (lambda text: None))
    return found


def _check(engines: Sequence[str], tensors: str) -> None:
    unknown = [engine for engine in engines if engine not in ENGINES]
    if unknown or len(set(engines)) < 2:
        what = f"'{unknown[0]}' is no engine" if unknown else "less than two engines leave nothing to compare"
        raise UsageError(what, fix=f"--engines=two or more of {','.join(ENGINES)}")
    try:
        re.compile(tensors)
    except re.error as error:
        raise UsageError(
            f"'{tensors}' is no regular expression: {error}", fix="--tensors=all, or as in --tensors='dense.*'"
        ) from error


class _Comparing:
    def __init__(self, both: Pair, found: TensorComparison, tensors: str, held: Mapping[str, list[OnCores]],
                 programs: Mapping[str, Program], on: Mapping[str, Mapping[str, Any]]) -> None:  # fmt: skip
        self.both, self.found, self.on = both, found, on
        self.graphs: dict[str, Graph] = {}
        for engine, program in programs.items():
            self.graphs[engine] = graphdef.from_graph_def(program.graph_def, source=found.source)
            shapes.infer(self.graphs[engine])
        self.there = {engine: can_tap(graph) for engine, graph in self.graphs.items()}
        names = _fetchable(both.plain)
        if XLA in self.there:  # its partitioners take no sizes that data decide; without the taps they are not left
            sized = _sized_by_data(self.graphs[XLA])
            left = [name for name in names if name in self.there[XLA] and self.there[XLA][name].node in sized]
            self.there[XLA] = {name: tensor for name, tensor in self.there[XLA].items() if name not in left}
            if left:
                found.notes.append(f"{counted(len(left), 'tensor')} not compared with xla, of a size that the data decide: "
                                   f"'{left[0]}', ...")  # fmt: skip
        self.loss = str(both.plain.graph.tensor(both.plain.roles.loss.name))
        self.variables = [name for name in saved_variables(next(iter(self.graphs.values()))) if name in both.start]
        whole = [(self.loss, OnCores(_LOSS)), *((name, OnCores(name)) for name in self.variables)]
        self.seen = [one for one in (*self._tensors(names, held), *whole) if re.search(tensors, one[0])]
        self.drawn: dict[str, set[str]] = {}  # of an engine, the tensors that depend on a random stream of XLA's own
        if not self.seen:
            raise UsageError(f"no tensor of the step matches '{tensors}'", origin=found.source,
                             fix="--tensors=all, or a part of a name; `tpugraph inspect` shows names")  # fmt: skip

    def run(self, steps: int, progress: Callable[[str], None]) -> None:
        """Compare step by step, until a tensor differs or the data end."""
        first, *others = self.found.engines
        compared: dict[str, set[str]] = {engine: set() for engine in others}
        with ExitStack() as stack:
            runs = [stack.enter_context(closing(self._engine(engine))) for engine in self.found.engines]
            for step in range(1, steps + 1):
                progress(f"step {step}")
                taken = [next(run, None) for run in runs]
                if None in taken and step == 1:
                    raise nothing_to_compare(self.found.source)
                ended = [engine for engine, values in zip(self.found.engines, taken, strict=True) if values is None]
                if ended:
                    self._ended(step, ended)
                    break
                for engine, other in zip(others, taken[1:], strict=True):
                    if step == 1 or not self._drawn_on(
                        engine
                    ):  # other random numbers change the variables of all later steps
                        compared[engine] |= self._look(step, engine, taken[0] or [], other or [])
                if self.found.differences:
                    self._leave_out_rounding(step)
                if self.found.differences:
                    break
        every = list(dict.fromkeys(name for name, _ in self.seen))
        self.found.compared += [name for name in every if all(name in names for names in compared.values())]
        for engine, names in compared.items():
            drawn = self._drawn_on(engine)
            if drawn:
                self.found.notes.append(
                    f"{counted(len(drawn), 'tensor')} made of such numbers not compared with {engine}"
                )
            if left := [name for name in every if name not in names | drawn]:
                self.found.notes.append(f"{counted(len(left), 'tensor')} not compared with {engine}, which holds more or less than "
                                        f"{first}: '{left[0]}', ...")  # fmt: skip
        if not any(compared.values()) and not any(self.drawn.values()):
            raise UsageError("nothing was compared: of these tensors the cores hold more or less than the plain graph",
                             origin=self.found.source, fix="--tensors=all, which has the loss and the variables")  # fmt: skip

    def _ended(self, step: int, ended: Sequence[str]) -> None:
        """Handle the end of the data: a difference where only some engines have reached it."""
        self.found.notes.append(f"the data of {' and '.join(ended)} end after {counted(step - 1, 'step')}")
        if len(ended) < len(self.found.engines):
            uneven = next(e for e in self.found.engines if (e in ended) != (self.found.engines[0] in ended))
            op, lives = self.both.plain.graph.tensor(self.loss).node.op, OnCores(_LOSS).lives
            self.found.differences.append(TensorDifference(self.loss, op, step, None, uneven, math.inf, lives, ""))

    def _tensors(self, names: Iterable[str], held: Mapping[str, list[OnCores]]) -> Iterator[tuple[str, OnCores]]:
        """The tensors of the plain step that an engine can send to the host, in topological order."""
        graph = self.both.plain.graph
        sums = [s for s in graph.of_type(*ops.UNSORTED_SUMS) if source_of(s.inputs[1]).node.op in ops.UNIQUE]
        by_number = graph.descendants(sums)
        for name in names:
            if graph.tensor(name).node in by_number and not is_static(graph.tensor(name).shape):
                continue  # rows of a gradient in the order of tf.unique; the cores may have them in that of the table
            ones = held.get(name, ()) if self.found.cores > 1 else [OnCores(name)]
            sent = [one for one in ones if any(self._sent(engine, name, one) for engine in self.graphs)]
            on_mesh = [_ON_NO_CORE] if XLA in self.graphs and self._sent(XLA, name, _ON_NO_CORE) else []
            yield from ((name, one) for one in sent or on_mesh)

    def _place(self, engine: str, name: str, held: OnCores) -> str:
        """What an engine other than TensorFlow calls a value: XLA has the plain graph's tensors, whole."""
        return name if engine == XLA and held.tensor != _LOSS else held.tensor

    def _sent(self, engine: str, name: str, held: OnCores) -> Tensor | None:
        """The tensor that an engine sends to the host, where it can."""
        found = self.there[engine].get(self._place(engine, name, held))
        return found if found is not None and found.dtype == self.both.plain.graph.tensor(name).dtype else None

    def _engine(self, engine: str) -> Generator[list[_Parts]]:
        """The compared values, step by step; without those that an engine does not have."""
        if engine == "plain":
            for _, by in self.both.plain.steps(self.both.start, *self._split(name for name, _ in self.seen)):
                yield [[by[name]] for name, _ in self.seen]
            return
        graph = self.graphs[engine]
        sent = dict.fromkeys(tensor for one in self.seen if (tensor := self._sent(engine, *one)) is not None)
        kept = tap(graph, list(sent)) | {name: [name] for name in self.variables}
        with self.both.on_cores(graphdef.to_graph_def(graph), engine=engine, **self.on.get(engine, {})) as session:
            self.drawn[engine] = self._depend_on(session.report.get("own_streams", ()))
            while losses := session.train(1):
                values = session.values([name for names in kept.values() for name in names])
                parts: dict[str, _Parts] = {held: [values[name] for name in names] for held, names in kept.items()}
                parts[_LOSS] = [np.asarray(losses[0])]
                yield [parts.get(self._place(engine, *one), ()) for one in self.seen]

    def _split(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Tensors of the step, and variables."""
        every = dict.fromkeys(names)
        return [n for n in every if n not in self.variables], [n for n in every if n in self.variables]

    def _depend_on(self, names: Iterable[str]) -> set[str]:
        """The compared tensors that depend on nodes of the plain graph, and the variables that such tensors are written to."""
        graph = self.both.plain.graph
        made = graph.descendants([graph[name] for name in names if name in graph])
        writes = {variable for node in made for tensor in node.inputs if (variable := variable_of(tensor)) is not None}
        return {name for name, _ in self.seen if graph.tensor(name).node in {*made, *writes}}

    def _drawn_on(self, engine: str) -> set[str]:
        return self.drawn.get(engine, set()) | self.drawn.get(self.found.engines[0], set())

    def _look(self, step: int, engine: str, reference: Sequence[_Parts], other: Sequence[_Parts]) -> set[str]:
        """Record the differences of a step; returns the compared names."""
        values, drawn = zip(self.seen, reference, other, strict=True), self._drawn_on(engine)
        apart = [(name, held, _apart(held, one, two)) for (name, held), one, two in values if name not in drawn]
        wrong = {name for name, _, by in apart if max(by, default=0.0) > self.found.tolerance}
        same = {name for name, _, by in apart if by} - wrong
        for name, held, by in apart:
            beyond = [core for core, difference in enumerate(by) if difference > self.found.tolerance]
            known = engine == XLA and any(d.tensor == name and d.engine == XLA for d in self.found.differences)
            if beyond and not known:  # a mesh has one value for all readers
                node = self.both.plain.graph.tensor(name).node
                reads = [str(tensor) for tensor in node.inputs]
                how = (held.lives, held.because, held.reader) if engine != XLA else _DIVIDED
                self.found.differences.append(TensorDifference(
                    name, node.op, step, beyond[0] if len(by) > 1 else None, engine, max(by), *how,
                    tuple(r for r in reads if r in same), tuple(r for r in reads if r not in same),
                ))  # fmt: skip
        return wrong | same

    def _leave_out_rounding(self, step: int) -> None:
        """Leave out differences that the plain graph shows as well when its weights start a rounding apart."""
        rounding = self.both.rounding(step, *self._split(found.tensor for found in self.found.differences))
        if rounding.losses[0] > self.found.tolerance:
            self.found.notes.append(CHANCE.format(rounding.losses[0]))
            return
        kept = [found for found in self.found.differences if found.difference > rounding.explains(step, found.tensor)]
        if explained := {found.tensor for found in self.found.differences} - {found.tensor for found in kept}:
            few = f"{counted(len(explained), 'tensor')} in step {step}"
            self.found.notes.append(f"rounding alone makes as much of {few}, from weights a rounding apart")
        self.found.differences = kept


def _sized_by_data(graph: Graph) -> set[Node]:
    """The nodes that produce or read a tensor of data-dependent size, and those computed from such sizes alone."""
    found: set[Node] = set()
    counts: set[Node] = set()
    for node in graph.topological_order():
        picks = node.op in PICKING and not all(is_static(shape) for _, shape in node.outputs or ())
        if picks or any(tensor.node in found and not is_static(tensor.shape) for tensor in node.inputs):
            found.add(node)
        given = {tensor.node for tensor in node.inputs if tensor.node.op not in ops.CONSTANTS}
        if (node.op in ops.SHAPE_OF and node in found) or (given and given <= counts):
            counts.add(node)
    return found | counts


def _apart(held: OnCores, expected: _Parts, actual: _Parts) -> list[float]:
    """The difference of a value on each core, or of the combined value.

    Nothing where an engine does not have it, or where the shapes differ, as with padding.
    """
    if not expected or not actual:
        return []
    if len(actual) == 1:
        whole = expected[0] if len(expected) == 1 else held.whole(expected)
        return [relative(whole, actual[0])] if whole.shape == actual[0].shape else []
    if len(expected) == len(actual):
        return [relative(one, other) for one, other in zip(expected, actual, strict=True)]
    return held.difference(expected[0], actual) if held.whole(actual).shape == expected[0].shape else []


def _fetchable(plain: PlainRun) -> list[str]:
    """The tensors of the plain step that can be fetched, in topological order."""
    graph = plain.graph
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    order = graph.topological_order(graph.ancestors(graph[name] for name in plain.roles.roots))
    aliases = {n for n in order if n.op in ops.SHARES_MEMORY and any(t.dtype.is_handle for t in n.inputs[:1])}
    return [str(tensor) for tensor in _each_step(graph, order, "") if tensor.node not in aliases]
