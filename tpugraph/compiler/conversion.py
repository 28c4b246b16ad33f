"""The compiler: a plain training graph in, a Program out."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tpugraph import ops, roles
from tpugraph.analysis import cluster_nodes, race_order, shapes
from tpugraph.analysis.batched_input import rows_read
from tpugraph.analysis.step import Cut, Outfed, PaddedBatches, Partitioned
from tpugraph.compiler import preconditions, serving_input
from tpugraph.compiler.another_batch import another_batch
from tpugraph.compiler.recording import Recording
from tpugraph.compiler.report_facts import collectives, lookups, notes_of, plain_name, step_order, tables
from tpugraph.compiler.set_shapes import set_shapes
from tpugraph.control_flow import one_shot
from tpugraph.ir import Graph, graphdef
from tpugraph.passes import OF_REPLICAS, PASSES, PIPELINES
from tpugraph.roles import evaluation_roles, prediction_roles
from tpugraph.roles.findings import Roles
from tpugraph.support.errors import ConversionError, UsageError
from tpugraph.support.garbage import without_garbage_collection
from tpugraph.support.wording import counted
from tpugraph.tpu.pipeline import Pass, Pipeline, parse_passes
from tpugraph.tpu.program import Program
from tpugraph.views.history import History

MOST_ITERATIONS = 2**31 - 1
"""The loop of the converted graph counts in int32."""


@dataclass(frozen=True)
class ConvertOptions:
    """How to convert.

    Attributes:
        num_replicas: number of cores, which divides the batch; None takes 8, or the largest of 4, 2 and 1 that divides it.
        iterations_per_loop: steps per Session.run.
        global_batch: rows that a step reads, where that is another number than the plain graph's; 0 leaves it.
        train_op: name of the train op (or several, separated by commas); None finds it.
        loss: name of the loss; None finds it.
        varying_updates: ``mean``, ``replica0`` or ``error``: what is written where a policy lets cores differ.
        batch_norm: ``global`` (statistics of the whole batch) or ``per_core`` (each core its own, as is usual on a TPU).
        random: ``per_core`` (each core draws its own rows, as a TPU does) or ``plain`` (every core takes its rows of what the
            plain graph draws).
        step_order: ``reads_first`` or ``writes_first``: what comes first where the plain graph puts a read and a write of a
            variable, such as the step counter, in no order.
        batch_constants: of ``global_batch``: names of constants that grow with the batch.
        literals: of ``global_batch``: names of constants that do not.
        set_shape: shapes that the graph leaves open, as ``NODE:32,4``.
        max_ids: the most ids that a row of a sparse column has, where no shape tells; 0 leaves it open.
        shard_tables: tables of at least so many bytes that are read and written by rows are dealt out to the cores; 0 for none.
        mode: ``train``, ``eval`` or ``predict``: what kind of graph the model is.
        metrics: of mode ``eval``: value tensor and update op of each metric by name; None finds them.
        predictions: of mode ``predict``: the tensor of each prediction by name; None finds them.
        signature: of mode ``predict`` of a SavedModel: the signature that names the predictions; None is the default one.
        collected: of mode ``eval``: by name, tensors of one dimension or more that are handed out of each batch beside the
            metrics; none when None.
        passes: the pipeline as text; None is the default one.
        dump_dir: folder for numbered dumps.
        dump_after: passes to dump after; all when empty.
        dump_changed: print on stderr what each of these passes changed.
    """

    num_replicas: int | None = None
    iterations_per_loop: int = 100
    global_batch: int = 0
    train_op: str | None = None
    loss: str | None = None
    varying_updates: str = "mean"
    batch_norm: str = "global"
    random: str = "per_core"
    step_order: str = race_order.READS_FIRST
    batch_constants: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    max_ids: int = 0
    set_shape: tuple[str, ...] = ()
    shard_tables: int = 0
    mode: str = "train"
    metrics: Mapping[str, tuple[str, str]] | None = None
    predictions: Mapping[str, str] | None = None
    signature: str | None = None
    collected: Mapping[str, str] | None = None
    passes: str | None = None
    dump_dir: str | None = None
    dump_after: tuple[str, ...] = ()
    dump_changed: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("num_replicas", "iterations_per_loop"):
            value = getattr(self, name)
            if name == "num_replicas" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}, but must be a whole number of at least 1", fix=f"--{name}=8")
        if self.iterations_per_loop > MOST_ITERATIONS:
            raise UsageError(f"iterations_per_loop is {self.iterations_per_loop:,}, but a loop counts in 32 bits",
                             fix=f"--iterations_per_loop={MOST_ITERATIONS} or less")  # fmt: skip
        if self.dump_after and self.dump_dir is None and not self.dump_changed:
            raise UsageError("--dump_after needs a folder for the dumps", fix="give --dump_dir=DIR, or --dump_changed")
        for name, example in (("max_ids", 8), ("shard_tables", 1 << 30), ("global_batch", 256)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise UsageError(f"{name} is {value!r}, but must be a whole number", fix=f"--{name}={example}")
        if self.batch_norm not in ("global", "per_core"):
            raise UsageError(f"'{self.batch_norm}' is no batch_norm", fix="--batch_norm=global or per_core")
        if self.step_order not in race_order.ORDERS:
            raise UsageError(
                f"'{self.step_order}' is no order of a step", fix="--step_order=reads_first or writes_first"
            )
        if self.mode not in PIPELINES:
            raise UsageError(f"'{self.mode}' is no mode", fix="--mode=train, eval or predict")
        if self.mode != "train" and self.step_order != race_order.READS_FIRST:
            raise UsageError(f"--step_order={self.step_order} does not go with --mode={self.mode}",
                             fix="leave it out: it is for steps of training")  # fmt: skip
        for name, mode in (
            ("metrics", "eval"),
            ("collected", "eval"),
            ("predictions", "predict"),
            ("signature", "predict"),
            ("train_op", "train"),
        ):
            if getattr(self, name) is not None and self.mode != mode:
                raise UsageError(f"--{name} does not go with --mode={self.mode}", fix=f"--mode={mode}, or leave it out")


def convert(
    model: str | os.PathLike[str] | Graph,
    options: ConvertOptions | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
    history: History | None = None,
    **fields: Any,
) -> Program:
    """Convert a plain Estimator graph into a TPU graph: one that trains, or with ``mode`` one that evaluates or predicts.

    Args:
        model: a path (see :func:`tpugraph.ir.graphdef.load`) or a Graph, which is rewritten in place.
        options: the options; or give their fields as keyword arguments.
        progress: called before each pass with its name, its number and the number of passes.
        history: is told of the graph before and after each pass, which :func:`tpugraph.view` shows.
        **fields: fields of :class:`ConvertOptions`.

    Raises:
        TpuGraphError: the graph cannot be loaded, understood or rewritten; nothing is written.
    """
    if options is not None and fields:
        raise UsageError("give either options or keyword arguments, not both")
    with without_garbage_collection():
        return _convert(model, options or ConvertOptions(**fields), progress, history)


def _convert(
    model: str | os.PathLike[str] | Graph,
    options: ConvertOptions,
    progress: Callable[[str, int, int], None] | None,
    history: History | None,
) -> Program:
    started = time.perf_counter()
    graph = model if isinstance(model, Graph) else graphdef.load(model)
    if graph.of_type("TPUReplicateMetadata"):
        raise ConversionError("the graph is a TPU graph already", origin=graph.source, fix="run it: tpugraph run MODEL")
    size = len(graph)
    if history is not None:
        history.record(graph, "input", summary="The graph as it was read.")
    set_shapes(graph, options.set_shape)
    if graph.roles is None:
        one_shot.make_initializable(graph)
        graph.roles = find_roles(graph, options)
    predictions = dict(graph.roles.predictions)
    odd = preconditions.check(graph)
    if not options.global_batch and (options.batch_constants or options.literals):
        raise UsageError("--batch_constants and --literals say what follows another batch, and none is asked for",
                         fix="--global_batch=ROWS")  # fmt: skip
    if options.global_batch:
        odd += another_batch(
            graph, options.global_batch, batch_constants=options.batch_constants, literals=options.literals
        ).lines()
    options, said = with_cores(graph, options)
    odd += said
    pipeline = Pipeline(build_passes(options, replica=graph.roles.replica))
    recording = None if history is None else Recording(history, graph, pipeline, progress)
    with recording or contextlib.nullcontext():
        pipeline.run(graph, dump_dir=options.dump_dir, dump_after=options.dump_after,
                     progress=progress if recording is None else recording.before,
                     changed=_print_change if options.dump_changed else None)  # fmt: skip
    shapes.check(graph)
    graph.imported = None
    graph_def = graphdef.to_graph_def(graph)
    seconds = time.perf_counter() - started
    program = Program(graph_def, _report(graph, options, pipeline, size, seconds, odd) | {"predictions": predictions})
    if history is not None:
        program.history = history
        history.finish(graph).facts = program.summary().splitlines()
    return program


def _print_change(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def find_roles(graph: Graph, options: ConvertOptions) -> Roles:
    """The roles of a plain graph in the mode of the options. The graph of a SavedModel that predicts is given an input.

    Raises:
        RolesError: the graph is of another kind, or what it is for cannot be told.
    """
    if options.mode == "eval":
        return evaluation_roles.find_evaluation(
            graph, metrics=options.metrics, loss=options.loss, collected=options.collected
        )
    if options.mode == "predict":
        serves = bool(graph.signatures) or options.signature is not None
        named = serving_input.read_examples(graph, options.signature) if serves else None
        return prediction_roles.find_prediction(graph, predictions=options.predictions or named)
    return roles.find(graph, train_op=options.train_op, loss=options.loss)


def with_cores(graph: Graph, options: ConvertOptions) -> tuple[ConvertOptions, list[str]]:
    """The options with a number of cores, where none was given, and a line for the report where it is not 8.

    Args:
        graph: a plain graph with roles.
        options: the options.
    """
    if options.num_replicas is not None:
        return options, []
    rows = options.global_batch or rows_read(graph)
    if graph.roles.replica or not rows:
        return replace(options, num_replicas=_CORES[0]), []
    cores = next(count for count in _CORES if rows % count == 0)
    if cores == _CORES[0]:
        return replace(options, num_replicas=cores), []
    larger = -(-rows // _CORES[0]) * _CORES[0]
    return replace(options, num_replicas=cores), [
        f"{counted(cores, 'core')}: of 8, 4, 2 and 1 the most that divide a batch of {rows} rows; --global_batch={larger} takes 8"
    ]


_CORES = (8, 4, 2, 1)
"""How many cores are taken where nobody says."""


def build_passes(options: ConvertOptions, *, replica: bool = False) -> list[Pass]:
    """The passes that the options ask for, with their parameters, for a program that is one replica of several or for any other."""
    values = {name: value for name, value in asdict(options).items() if value is not None}  # else a pass's own default
    known = OF_REPLICAS if replica else PIPELINES[options.mode]
    if options.passes is not None:
        return parse_passes(options.passes, known, values)
    return [cls(**{key: values[key] for key in cls.parameters() if key in values}) for cls in known]


# --------------------------------------------------------------------------- report


def _report(
    graph: Graph, options: ConvertOptions, pipeline: Pipeline, size: int, seconds: float, notes: list[str]
) -> dict[str, Any]:
    found, device, cores = graph.roles, cluster_nodes(graph), options.num_replicas or 1
    cut, outfed = graph.kept(Cut) or Cut(), graph.kept(Outfed) or Outfed()
    per_core = cores if found.replica else 1
    naive = cut.naive_bytes
    return {
        "source": Path(graph.source).name if graph.source else "",
        "mode": options.mode,
        "num_replicas": cores,
        "iterations_per_loop": options.iterations_per_loop,
        "batch": _batch(graph, options),
        "nodes": {"input": size, "output": len(graph), "device": len(device)},
        "loss": asdict(found.loss),
        "metrics": found.values,
        "train_ops": [asdict(f) for f in found.train_ops],
        "step": None if found.step is None else asdict(found.step),
        "inputs": [asdict(f) for f in found.inputs],
        "trained": list(dict.fromkeys(plain_name(graph, name) for name in found.trained)),
        "variables": {plain_name(graph, n): {"key": v.key, "trained": v.trained} for n, v in found.variables.items()},
        "collectives": collectives(graph),
        "lookups": lookups(graph),
        "tables": tables(graph),
        "step_order": step_order(graph),
        "varying_updates": (graph.kept(Partitioned) or Partitioned()).unified,
        "bytes_per_step": {
            "infeed": cut.bytes() * per_core,
            "infeed_naive": None if naive is None else naive * per_core,
            "infeed_tensors": cut.tensors,
            "outfeed": outfed.bytes,
            "outfeed_tensors": outfed.tensors,
        },
        "host_ops": dict(Counter(n.op for n in graph if n not in device and ops.is_host_only(n.op))),
        "dropped": cut.dropped,
        "complete": bool(graph.of_type("TPUReplicateMetadata")),
        "passes": [trace.as_dict() for trace in pipeline.trace],
        "notes": notes_of(graph, notes),
        "why": [{"stage": n.stage, "node": n.node, "text": n.text} for n in graph.notes],
        "seconds": round(seconds, 4),
    }


def _batch(graph: Graph, options: ConvertOptions) -> dict[str, Any]:
    cores = options.num_replicas or 1
    partitioned, padded = graph.kept(Partitioned) or Partitioned(), graph.kept(PaddedBatches)
    rows = partitioned.rows if padded is None else padded.rows // cores
    if rows is None:
        return {"per_core": None, "global": None, "line": counted(cores, "core")}
    return {
        "per_core": rows,
        "global": rows * cores,
        "line": f"global batch {rows * cores} = {counted(cores, 'core')} x {rows}",
    }


def passes_of(spec: Sequence[type[Pass]] = PASSES) -> list[dict[str, Any]]:
    """The pipeline as data: name, parameters, requires, ensures and one sentence per pass."""
    return [
        {
            "name": cls.name,
            "parameters": cls.parameters(),
            "requires": list(cls.requires),
            "ensures": list(cls.ensures),
            "summary": cls.summary(),
        }
        for cls in spec
    ]
