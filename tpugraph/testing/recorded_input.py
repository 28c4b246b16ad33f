"""Records the batches of non-deterministic input pipelines, so that several runs read the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis.batched_input import makers_of
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library, graphdef
from tpugraph.ir.builder import Builder
from tpugraph.ir.function_library import named_operands
from tpugraph.ir.walks import source_of
from tpugraph.testing.plain_run import PlainRun, Values

_UNREADABLE = ("variant", "resource")


_SLOPPY_REWRITE = b"make_sloppy"
"""The rewrite by which TensorFlow 1's tf.data implements ``experimental_deterministic = False``."""

_LOOKED_AT = ("deterministic", "sloppy", "seed", "seed2")


def changing_inputs(graph: Graph) -> list[str]:
    """Why the input of a plain graph is not repeatable, a sentence per reason."""
    behind = graph.ancestors(maker.inputs[0].node for maker in graph.of_type(*ops.MAKE_ITERATOR))
    nodes = [node for node in graph if node in behind and ops.is_dataset(node.op)]
    reasons = [f"'{node.name}' hands elements on as soon as they are there" for node in nodes if _is_sloppy(node)]
    reasons += [f"'{node.name}' is read on from where it stands" for node in behind if node.op in ops.ITERATORS]
    for node in function_library.callers(graph, nodes):
        reasons += _reasons_in(graph, node)
    return list(dict.fromkeys(reasons))


def _is_sloppy(node: Node) -> bool:
    """Whether a dataset's order of elements depends on timing."""
    if node.attr("deterministic", "") == "false" or node.attr("sloppy", False):
        return True
    if node.has_attr("serialized_options"):
        return attrs.keeps_order(node.raw_attrs["serialized_options"]) is False
    return any(
        operand.node.op in ops.CONSTANTS and _says_sloppy(name, operand.node.attr("value"))
        for name, operand in named_operands(node)
    )


def _says_sloppy(name: str, value: Any) -> bool:
    return (name == "sloppy" and bool(value.any())) or (
        name == "optimizations" and _SLOPPY_REWRITE in value.ravel().tolist()
    )


def _reasons_in(graph: Graph, node: Node) -> Iterator[str]:
    parallel = any(
        name.startswith("num_parallel") or name == "prefetch_input_elements" for name, _ in named_operands(node)
    )
    for name, function in function_library.used_by(graph, [node]).items():
        where = f"the function '{name}' of '{node.name}'"
        for definition in function.node_def:
            given = {key: definition.attr[key] for key in _LOOKED_AT if key in definition.attr}
            if definition.op in ops.RANDOM and {"seed", "seed2"} <= ops.attr_names(definition.op):
                if not any(given[key].i for key in ("seed", "seed2") if key in given):
                    yield f"{where} draws random numbers without a seed"
                elif parallel:
                    yield f"{where} draws random numbers for several elements at a time"
            elif any(value.b or value.s == b"false" for value in given.values()):
                yield f"'{definition.name}' in {where} hands elements on as soon as they are there"


@dataclass(frozen=True)
class Recording:
    """The number of batches and, for each iterator by name and each batch, a file per tensor."""

    batches: int
    files: Mapping[str, Sequence[Sequence[Path]]]


def why_not_recordable(plain: PlainRun) -> str:
    """Why the batches of a plain graph cannot be recorded; "" where they can."""
    drawn = [plain.graph[finding.name] for finding in plain.roles.inputs]
    iterators = [source_of(node.inputs[0]).node if node.op in ops.GET_NEXT else None for node in drawn]
    if None in iterators or len(set(iterators)) < len(iterators):
        return "a step takes its batch from a queue, or two from one iterator"
    if not all(makers_of(node) for node in iterators if node is not None):
        return "the iterator starts by itself"
    kinds = [kind.name for node in drawn for kind in node.attr("output_types")]
    return "a batch has tensors of any length (sparse or ragged)" if set(kinds) & set(_UNREADABLE) else ""


def on_one_stream(
    plain: PlainRun, graph_def: Any, start: Values, steps: int, folder: Path, notes: list[str]
) -> tuple[Any, int | None]:
    """Make a plain graph and its conversion read recorded batches, where the input is not repeatable.

    The plain graph is changed, and must be opened again. Returns the conversion that reads the batches, and their number; None
    where nothing was recorded. Adds to ``notes``.
    """
    reasons = changing_inputs(plain.graph)
    if not reasons:
        return graph_def, None
    why = f"the input gives other batches in each run ({reasons[0]})"
    if hindrance := why_not_recordable(plain):
        notes.append(f"{why} and cannot be recorded, since {hindrance}: a difference below may be chance")
        return graph_def, None
    recording = record(plain, start, steps, folder)
    notes.append(f"{why}: both sides read one recorded stream of batches ({recording.batches:,} in all)")
    read_again(plain.graph, recording)
    converted = graphdef.from_graph_def(graph_def)
    read_again(converted, recording)
    return graphdef.to_graph_def(converted), recording.batches


def record(plain: PlainRun, start: Values, count: int, folder: Path) -> Recording:
    """Open the plain graph again, read batches, and write them to files in a folder."""
    drawn = [plain.graph[finding.name] for finding in plain.roles.inputs]
    ports = [(node, port) for node in drawn for port in range(len(node.attr("output_types")))]
    plain.open(start)
    found = plain.batches([f"{node.name}:{port}" for node, port in ports], count)
    files: dict[str, list[list[Path]]] = {}
    for place, node in enumerate(drawn):
        iterator = source_of(node.inputs[0]).node.name
        for number, batch in enumerate(found):
            mine = [value for value, (owner, _) in zip(batch, ports, strict=True) if owner is node]
            files.setdefault(iterator, []).append(_write(folder, f"{place}-{number}", mine))
    return Recording(len(found), files)


def read_again(graph: Graph, recording: Recording) -> None:
    """Replace the datasets of a plain or converted graph by recorded batches."""
    for name, batches in recording.files.items():
        maker = makers_of(graph[name])[0]
        graph.set_input(maker, 0, _dataset(graph, maker, graph[name], batches))


def _write(folder: Path, name: str, values: Sequence[np.ndarray[Any, Any]]) -> list[Path]:
    paths = [folder / f"batch-{name}-{place}.tensor" for place in range(len(values))]
    for path, value in zip(paths, values, strict=True):
        path.write_bytes(tf.make_tensor_proto(value).SerializeToString())
    return paths


def _dataset(graph: Graph, maker: Node, iterator: Node, batches: Sequence[Sequence[Path]]) -> Tensor:
    """A dataset of batches in files, concatenated as a balanced tree to bound the nesting depth."""
    types, shapes = iterator.attr("output_types"), iterator.attr("output_shapes")
    build = Builder(graph, scope=f"{iterator.name}/recorded", device=maker.device, source=iterator)

    def one(paths: Sequence[Path]) -> Tensor:
        names = [build.constant(str(path).encode(), attrs.dtype("string")) for path in paths]
        contents = [build.add("ReadFile", [name], ()) for name in names]
        parsed = [build.add("ParseTensor", [content], shape, out_type=kind)
                  for content, kind, shape in zip(contents, types, shapes, strict=True)]  # fmt: skip
        return build.add("TensorDataset", parsed, (), output_shapes=shapes)

    def joined(part: Sequence[Sequence[Path]]) -> Tensor:
        if len(part) == 1:
            return one(part[0])
        halves = [joined(part[: len(part) // 2]), joined(part[len(part) // 2 :])]
        return build.add("ConcatenateDataset", halves, (), output_types=types, output_shapes=shapes)

    return joined(batches)
