"""One read of the input per step, for all cores and on each host; and the end of the data inside a loop.

The cores' batches of a step become one element of the dataset, by a Batch at its end, and are unpacked without a copy. With
several hosts each reads a pipeline of its own, every step whole, and keeps the batches of its cores: all pipelines stand at one
position, which a checkpoint holds, and any number of hosts goes on from it.

Datasets that slice constants of the graph give the numbers of rows instead, and one gather takes the rows of all cores:
``from_tensor_slices(constants).shuffle(n).repeat().batch(b)`` carries each row, tensor by tensor, through every stage. Where
the stages only select and order rows, int64 numbers go through them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import frames
from tpugraph.analysis.batched_input import makers_of
from tpugraph.analysis.shapes import element_count, is_static
from tpugraph.analysis.trip_counts import steps_per_loop
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library
from tpugraph.ir.builder import Builder
from tpugraph.ir.function_library import named_operands
from tpugraph.ir.walks import reached, readers, source_of
from tpugraph.runtime.emulator.hosts import Hosts
from tpugraph.runtime.pipelines import ahead_of, as_written
from tpugraph.tpu.program import mode_of

MOST_BYTES = 256 * 2**10
"""Batches of one core that are bigger are read one by one on one host: copying them costs more than a read."""

AHEAD = 64  # steps whose row numbers are read ahead at least
MOST_AHEAD = 2**20  # row numbers that are read ahead at most beyond that: 8 MiB

_ROWS_SCOPE = "tpugraph/rows"
_HANDLES = ops.ENTER | ops.IDENTITIES
_INT32, _INT64 = attrs.dtype("int32"), attrs.dtype("int64")


def read_together(graph: Graph, takes: list[Node], hosts: Hosts | None = None) -> None:
    """Let the cores' reads of one step, in their order, become one read of each iterator where possible; on many hosts one each."""
    groups: dict[Node, list[Node]] = {}
    for take in takes:
        groups.setdefault(source_of(take.inputs[0], _HANDLES).node, []).append(take)
    for iterator, group in groups.items():
        maker = _maker(iterator, group) if iterator.op in ops.ITERATORS else None
        if maker is None:
            continue
        step = read_by_number(graph, iterator, maker, group) or read_batched(graph, iterator, maker, group)
        if step is None:
            step = _ReadOfStep(group, [[take.out(port) for port in range(len(take.outputs or ()))] for take in group])
        if hosts is not None and len(group) == hosts.replicas:
            read_on_each(graph, iterator, maker, step, hosts)


def _maker(iterator: Node, takes: list[Node]) -> Node | None:
    """What gives the iterator its dataset, where these reads are all that there are and their shapes are known."""
    makers = makers_of(iterator)
    static = all(is_static(shape) for shape in takes[0].attr("output_shapes"))
    in_order = all(before in after.controls for before, after in itertools.pairwise(takes))
    others = any(node.op in ops.GET_NEXT and node not in takes for node in readers(iterator, through=_HANDLES))
    fits = len(makers) == 1 and static and in_order and not others
    return makers[0] if fits else None


@dataclass(frozen=True)
class _ReadOfStep:
    nodes: list[Node]  # the reads of a step, and what takes the batches out of them
    parts: list[list[Tensor]]  # of each core the tensors of its batch


def _unpacked(graph: Graph, takes: list[Node], read: Node, stacked: Sequence[Tensor]) -> _ReadOfStep:
    """Let what the cores read be their parts of values of all cores, [cores, ...], behind one read."""
    first, cores = takes[0], len(takes)
    pieces = [
        graph.add("Unpack", f"{first.name}/core", [tensor], attrs={"T": kind, "num": cores, "axis": 0},
                  outputs=[(kind, shape)] * cores, source=first)
        for tensor, (kind, shape) in zip(stacked, first.outputs or (), strict=True)
    ]  # fmt: skip
    for core, take in enumerate(takes):
        for port, piece in enumerate(pieces):
            graph.replace_uses(take.out(port), piece.out(core), where=lambda use: use.node not in pieces)
    gone = [take for take in takes if take is not read]
    for take in gone:
        graph.replace_control_uses(take, [read])
    graph.remove_all(gone)
    nodes = [read, *(tensor.node for tensor in stacked), *pieces]
    return _ReadOfStep(list(dict.fromkeys(nodes)), [[piece.out(core) for piece in pieces] for core in range(cores)])


def read_batched(graph: Graph, iterator: Node, maker: Node, takes: list[Node]) -> _ReadOfStep | None:
    """Batch the dataset by the number of cores, and let the first read take the batches of all; None where they are large."""
    first = takes[0]
    sizes = [(element_count(shape) or 0) * (kind.size or math.inf) for kind, shape in first.outputs or ()]
    if sum(sizes) > MOST_BYTES:
        return None
    kinds, own = first.attr("output_types"), first.attr("output_shapes")
    shapes = [(len(takes), *shape) for shape in own]
    before = ahead_of(graph, maker, maker.inputs[0], kinds, own)
    make = Builder(graph, "tpugraph/reads", source=maker)
    extra = [make.constant(value, name="value") for value in (np.int64(len(takes)), np.bool_(True))]
    dataset = make.node("BatchDatasetV2", [before, *extra], name="of_a_step", shapes=[()], metadata="",
                        output_types=kinds, output_shapes=shapes, parallel_copy=False)  # fmt: skip
    graph.set_input(maker, 0, dataset.out())
    step = _unpacked(graph, takes, first, [first.out(port) for port in range(len(own))])
    for node in (iterator, first):
        graph.set_attr(node, "output_shapes", shapes)
    graph.set_outputs(first, list(zip(kinds, shapes, strict=True)))
    return step


# --------------------------------------------------------------------------- rows of constants, by number


@dataclass(frozen=True)
class _Rows:
    constants: list[Node]
    stages: list[Node]  # that order the rows, the last one first
    count: int
    batch: int
    core: int  # rows of a batch of one core


def read_by_number(graph: Graph, iterator: Node, maker: Node, takes: list[Node]) -> _ReadOfStep | None:
    """Let an iterator give the row numbers of a step, and gather the rows; None where the dataset is another."""
    rows, take, cores = _rows(graph, maker.inputs[0].node), takes[0], len(takes)
    if rows is None:
        return None
    total, step = _in_order(rows), cores * rows.core
    if total is None:
        graph.set_input(maker, 0, _numbers_of_steps(graph, maker, rows, cores))
    else:  # the number of the first row of each step; nothing may count ahead, since where the next begins depends on the cores
        counted = _range(graph, maker, 0, max(total - step + 1, 0), step)
        graph.set_input(maker, 0, _unmeasured(graph, maker, counted, ()).out())
    # Where they never end nobody has to ask, and the executor reads them itself: they are not worth another thread.
    op = "IteratorGetNextSync" if _endless(rows) else "IteratorGetNext"
    size, shape = (step,) if total is None else (), (cores, rows.core)
    read = Builder(graph, source=take).node(op, [take.inputs[0]], name=f"{take.name}/numbers", shapes=[size],
                                            controls=take.controls, **_numbers(size))  # fmt: skip
    for name, value in _numbers(size).items():
        graph.set_attr(iterator, name, value)
    make = Builder(graph, take.name, source=take)
    if total is None:
        sizes = _within(graph, take, np.asarray(shape), _INT64)
        numbers = make.add("Reshape", [read.out(), sizes], shape, name="of_cores")
    else:
        behind = _within(graph, take, np.arange(step).reshape(shape), _INT64)
        numbers = make.add("AddV2", [read.out(), behind], shape, name="counted")
        numbers = make.add(
            "FloorMod", [numbers, _within(graph, take, np.array(rows.count), _INT64)], shape, name="around"
        )
    gathered = []
    for held, (kind, _) in zip(rows.constants, take.outputs or (), strict=True):
        value, axis = held.attr("value"), _within(graph, take, np.zeros((), "int32"), _INT32)
        operands = [_within(graph, take, value, kind), numbers, axis]
        gathered.append(make.add("GatherV2", operands, (*shape, *value.shape[1:]), name="rows", batch_dims=0))
    return _unpacked(graph, takes, read, gathered)


def _numbers(shape: attrs.Shape) -> dict[str, Any]:
    return {"output_types": [_INT64], "output_shapes": [shape]}


def _scalar(node: Node) -> int | None:
    """The number that a constant is; None of any other node."""
    return int(node.attr("value").item()) if node.op in ops.CONSTANTS and node.attr("value").size == 1 else None


def _constants_of(slices: Node) -> list[Node] | None:
    """The constants whose rows a dataset of slices gives; None where it gives others, or constants of several lengths."""
    found = [tensor.node for tensor in slices.inputs]
    held = all(node.op in ops.CONSTANTS and node.attr("value").shape for node in found)
    alike = held and len({len(node.attr("value")) for node in found}) == 1
    return found if alike and not slices.attr("is_files", False) else None


def _rows(graph: Graph, node: Node) -> _Rows | None:
    core = None
    while node.op in ops.SAME_ELEMENTS | ops.REBATCH_DATASETS or _maps_to_itself(graph, node):
        if node.op in ops.REBATCH_DATASETS:
            sizes = _scalar(node.inputs[1].node)
            if core is not None or sizes is None or not _scalar(node.inputs[2].node):
                return None
            core = sizes
        node = node.inputs[0].node
    batching = ops.BATCHING[node.op] if node.op in ops.BATCH_DATASETS else None
    if batching is None or batching.drop_remainder is None or not _scalar(node.inputs[batching.drop_remainder].node):
        return None
    batch = _scalar(node.inputs[batching.size].node)
    stages: list[Node] = []
    node = node.inputs[0].node
    while node.op in ops.CHOSEN_ELEMENTS:
        stages.append(node)
        node = node.inputs[0].node
    constants = _constants_of(node) if node.op in ops.SLICE_DATASETS else None
    if constants is None or not batch:
        return None
    return _Rows(constants, stages, len(constants[0].attr("value")), batch, core or batch)


def _in_order(rows: _Rows) -> int | None:
    """How many rows are read in all where no stage but a repeat orders them, so that they need only be counted; else None."""
    if (
        rows.batch != rows.core
        or not rows.count
        or [stage.op for stage in rows.stages if stage.op not in ops.REPEAT_DATASETS]
    ):
        return None
    if _endless(rows):
        return 2**62
    repeats = [_scalar(stage.inputs[1].node) or 0 for stage in rows.stages]
    return rows.count * math.prod(repeats) if all(count > 0 for count in repeats) else None


def _endless(rows: _Rows) -> bool:
    """Whether rows come again and again: they are repeated for ever, and no stage leaves any out."""
    repeats = [_scalar(stage.inputs[1].node) for stage in rows.stages if stage.op in ops.REPEAT_DATASETS]
    for_ever = all(repeats) and any(count is not None and count < 0 for count in repeats)
    return for_ever and rows.count > 0 and all(stage.op in _ALL_ROWS for stage in rows.stages)


_ALL_ROWS = ops.REPEAT_DATASETS | ops.SHUFFLE_DATASETS


def _maps_to_itself(graph: Graph, node: Node) -> bool:
    """Whether a dataset is a map whose function returns its arguments; TensorFlow puts one before a rebatch."""
    if node.op not in ops.MAP_DATASETS or len(node.inputs) != 1:
        return False
    function = function_library.functions_named(graph)[node.attr("f").name]
    passed = {n.name: n.input[0] for n in function.node_def if n.op in ops.IDENTITIES}
    ends = []
    for output in function.signature.output_arg:
        source = function.ret[output.name]
        while source.partition(":")[0] in passed:
            source = passed[source.partition(":")[0]]
        ends.append(source)
    return ends == [argument.name for argument in function.signature.input_arg]


def _numbers_of_steps(graph: Graph, maker: Node, rows: _Rows, cores: int) -> Tensor:
    """The dataset of row numbers, a step's at a time."""
    dataset = _range(graph, maker, 0, rows.count, 1)
    for stage in reversed(rows.stages):
        made = graph.clone_subgraph([stage], lambda name: f"tpugraph/rows/{name}")[stage]
        graph.set_input(made, 0, dataset.out())
        graph.set_attr(made, "output_types", [_INT64])
        graph.set_attr(made, "output_shapes", [()])
        dataset = made
    step = cores * rows.core
    # Rows behind the last whole batch are never read: of batches that do not divide a step, they are dropped here.
    chunk = step if rows.batch == rows.core or step % rows.batch == 0 else rows.batch
    dataset = _sized(graph, maker, "BatchDatasetV2", dataset, np.int64(chunk), drop_remainder=chunk != step)
    dataset = _unmeasured(graph, maker, dataset, (None,))
    # The numbers of the next loop are drawn while the steps of this one run.
    loop = min(steps_per_loop(graph), MOST_AHEAD // step)
    ahead = _outside(graph, maker, np.int64(max(AHEAD, loop) * step // chunk or 1))
    dataset = Builder(graph, _ROWS_SCOPE, source=maker).node(
        "PrefetchDataset", [dataset.out(), ahead], name="ahead", shapes=[()], slack_period=0, legacy_autotune=True,
        buffer_size_min=0, metadata="", **_numbers((None,)),
    )  # fmt: skip
    # The cut into steps comes last: what is read ahead, which a checkpoint holds, fits any number of cores.
    return _sized(graph, maker, "RebatchDatasetV2", dataset, np.array([step], "int64"), drop_remainder=True).out()


def _sized(graph: Graph, maker: Node, op: str, dataset: Node, size: np.ndarray | np.generic, *,
           drop_remainder: bool) -> Node:  # fmt: skip
    """A dataset of the same row numbers, so many at a time."""
    ends = [_outside(graph, maker, size), _outside(graph, maker, np.bool_(drop_remainder))]
    extra: dict[str, Any] = {"parallel_copy": False, "metadata": ""} if op in ops.BATCH_DATASETS else {}
    shape = (int(size.item()) if op in ops.REBATCH_DATASETS else None,)
    return Builder(graph, _ROWS_SCOPE, source=maker).node(op, [dataset.out(), *ends], name="of_a_step", shapes=[()],
                                                     **extra, **_numbers(shape))  # fmt: skip


def _unmeasured(graph: Graph, maker: Node, dataset: Node, shape: attrs.Shape) -> Node:
    """The stages do so little that measuring them costs more than they do."""
    return as_written(graph, maker, dataset.out(), [_INT64], [shape], name="tpugraph/rows/as_it_is", rewrite=False)


def _range(graph: Graph, maker: Node, *ends: int) -> Node:
    """A dataset that counts from the first number to the second by the third."""
    return Builder(graph, source=maker).node(
        "RangeDataset", [_outside(graph, maker, np.int64(end)) for end in ends], name=_ROWS_SCOPE, shapes=[()], metadata="",
        replicate_on_split=False, **_numbers(()),
    )  # fmt: skip


def _outside(graph: Graph, maker: Node, value: np.ndarray | np.generic) -> Tensor:
    return Builder(graph, _ROWS_SCOPE, source=maker).constant(value, name="value")


def _within(graph: Graph, take: Node, value: np.ndarray, kind: attrs.DType) -> Tensor:
    """A constant as the loop of the read sees it."""
    make = Builder(graph, _ROWS_SCOPE, source=take)
    held = make.node("Const", shapes=[value.shape], name="held", dtype=kind, value=value)
    entry = take.inputs[0].node
    if entry.op not in ops.ENTER:
        return held.out()
    made = graph.clone_subgraph([entry], lambda name: f"{held.name}/Enter")[entry]
    kept = {key: given for key, given in made.raw_attrs.items() if key[0] != "_"}
    graph.retype(made, entry.op, inputs=[held.out()], attrs={**kept, "T": kind}, outputs=[held.output(0)])
    return made.out()


# --------------------------------------------------------------------------- several hosts


def read_on_each(graph: Graph, iterator: Node, maker: Node, step: _ReadOfStep, hosts: Hosts) -> None:
    """Give every host but the first an iterator and a read of its own, and its cores what that reads."""
    if any(tensor.dtype.name == "resource" for part in step.parts for tensor in part):
        return  # a handle is of no use on another host
    _draw_alike(graph, maker)
    for host in hosts.others:
        own = hosts.copy_iterator(graph, iterator, maker, host)
        made = _copy(graph, step, hosts, host)
        for tensor in itertools.chain(*step.parts[host * hosts.cores : (host + 1) * hosts.cores]):
            graph.replace_uses(tensor, made[tensor.node].out(tensor.port))
        _restore_too(graph, iterator, own, hosts, host)


def _copy(graph: Graph, step: _ReadOfStep, hosts: Hosts, host: int) -> dict[Node, Node]:
    """A host's own copy of a read, with all of the loop that leads to it."""
    frame_of = frames(graph)
    frame = frame_of[step.nodes[0]]
    chosen = reached(step.nodes, lambda node: (t.node for t in node.inputs if frame_of[t.node] == frame))
    made = graph.clone_subgraph(chosen, lambda name: f"{name}/host_{host}")
    for copy in made.values():
        for index, tensor in enumerate(copy.inputs):
            if frame_of.get(tensor.node, frame) != frame:
                graph.set_input(copy, index, hosts.copy_outside(graph, tensor.node, host).out(tensor.port))
    hosts.put(made.values(), host)
    return made


def _restore_too(graph: Graph, iterator: Node, own: Node, hosts: Hosts, host: int) -> None:
    """Let what gives the first host's iterator a position give it to a host's own as well."""
    restores = [node for node in graph.of_type("DeserializeIterator") if node.inputs[0].node is iterator]
    made = graph.clone_subgraph(restores, lambda name: f"{name}/host_{host}", replace={iterator.out(): own.out()})
    hosts.put(made.values(), host)
    for node, copy in made.items():
        for waiting in node.control_uses():
            graph.add_control(waiting, copy)


def _draw_alike(graph: Graph, maker: Node) -> None:
    """Give a pipeline that shuffles without a seed one that is drawn here, so that all hosts put its rows in one order."""
    for node in graph.ancestors([maker], data_only=True):
        seeds = [tensor for name, tensor in named_operands(node) if name in ("seed", "seed2")]
        if len(seeds) != 2 or any(_scalar(tensor.node) != 0 for tensor in seeds):
            continue
        for index, tensor in enumerate(node.inputs):
            if tensor in seeds:
                drawn = np.int64(random.SystemRandom().randrange(1, 2**31))
                graph.set_input(node, index, Builder(graph, node.name, source=node).constant(drawn, name="drawn"))


# --------------------------------------------------------------------------- the end of the data

OPTIONAL = "/optional"  # what the name of a read gets when it becomes one that tells the end of the data


def stop_at_end_of_data(graph: Graph, condition: Node) -> None:
    """Let the loop that ``condition`` controls end after the last whole step instead of failing.

    Each IteratorGetNext of the loop becomes an IteratorGetNextAsOptional in the loop's condition, behind ``i < limit`` so
    that no batch is taken for a step that will not run. The loop goes on only while every core has a batch.
    """
    frame_of = frames(graph)
    takes = [n for n in graph.of_type("IteratorGetNext") if frame_of[n] == frame_of[condition]]
    if not takes:
        return
    make, more = Builder(graph, "tpugraph/end"), condition.inputs[0]
    gate = make.node("Switch", [more, more], name="gate", shapes=[(), ()])
    go = make.identity(gate.out(1), name="go").node
    optionals = [_as_optional(graph, take, go, takes) for take in takes]
    if mode_of(graph) != "train":  # here empty batches follow the data
        present = [_has_rows(make, takes[0], optionals[0])]
    else:
        present = [make.add("OptionalHasValue", [o.out()], (), name="has_value") for o in optionals]
    if len(present) > 1:
        packed = make.add("Pack", present, (len(present),), name="pack", axis=0)
        axis = make.constant(np.zeros(1, "int32"), name="axis", controls=[go])
        present = [make.add("All", [packed, axis], (), name="all", keep_dims=False)]
    joined = make.node("Merge", [gate.out(0), *present], name="more", shapes=[(), ()])
    graph.set_input(condition, 0, joined.out())
    for take, optional in zip(takes, optionals, strict=True):
        switch = Builder(graph).node("Switch", [optional.out(), condition.out()], name=f"{take.name}/switch",
                                     shapes=[(), ()])  # fmt: skip
        graph.set_controls(take, [c for c in take.controls if c.op not in ops.GET_NEXT | ops.UNWRAPS])
        graph.retype(take, "OptionalGetValue", inputs=[switch.out(1)], attrs=_element(take))


def _element(take: Node) -> dict[str, Any]:
    return {"output_types": take.attr("output_types"), "output_shapes": take.raw_attrs["output_shapes"]}


def _as_optional(graph: Graph, take: Node, go: Node, takes: list[Node]) -> Node:
    # The order of the cores: each read waits for the one before it, which was rewritten already.
    earlier = [graph[f"{c.name}{OPTIONAL}"] for c in take.controls if c in takes and f"{c.name}{OPTIONAL}" in graph]
    return Builder(graph, source=take).node(
        "IteratorGetNextAsOptional", [take.inputs[0]], name=f"{take.name}{OPTIONAL}", shapes=[()],
        controls=[go, *earlier], **_element(take),
    )  # fmt: skip


def _has_rows(make: Builder, take: Node, optional: Node) -> Tensor:
    """Whether the batch of core 0 has rows; the cores behind it have none where it has none."""
    shapes = take.attr("output_shapes")
    value = make.node("OptionalGetValue", [optional.out()], name="batch", shapes=shapes, **_element(take))
    dense = next(port for port, shape in enumerate(shapes) if shape)  # a sparse tensor comes wrapped, without rows
    shape = make.add("Shape", [value.out(dense)], (len(shapes[dense]),), name="shape", out_type=_INT32)
    zero, one, nothing = (make.constant(v, _INT32, name="bound", controls=[optional]) for v in ([0], [1], 0))
    rows = make.add("StridedSlice", [shape, zero, one, one], (), name="rows", **attrs.first_element())
    return make.add("Greater", [rows, nothing], (), name="has_rows")
