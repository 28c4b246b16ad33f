"""The compiler: a plain graph in, a Program out."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tpugraph import ops, roles
from tpugraph.analysis import shapes
from tpugraph.analysis.batched_input import rows_read
from tpugraph.compiler import preconditions, serving_input
from tpugraph.compiler.options import ConvertOptions, given, of_file, shows_options
from tpugraph.compiler.report import report
from tpugraph.compiler.set_shapes import set_shapes
from tpugraph.control_flow import lower_functional
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.model_files import parse
from tpugraph.passes import OF_REPLICAS, PIPELINES
from tpugraph.passes.inline_functions import InlineFunctions
from tpugraph.passes.partition import Partition
from tpugraph.rebatch import Rebatched, is_open, rebatch
from tpugraph.roles import evaluation_roles
from tpugraph.roles.findings import Roles
from tpugraph.spmd.explain import Explanation
from tpugraph.support.errors import ConversionError, TpuGraphError, UsageError
from tpugraph.support.process import without_garbage_collection
from tpugraph.support.wording import counted
from tpugraph.tpu.pipeline import Pass, Pipeline, parse_passes
from tpugraph.tpu.program import Program, cores_of
from tpugraph.views.history import History


@shows_options
@without_garbage_collection()
def convert(
    model: str | os.PathLike[str] | Graph,
    options: ConvertOptions | None = None,
    *,
    before: Callable[[Pass], object] | None = None,
    history: History | None = None,
    **fields: Any,
) -> Program:
    """Convert a plain Estimator graph into a TPU graph: one that trains, or with ``mode`` one that evaluates or predicts.

    Args:
        model: a path (see :func:`tpugraph.ir.graphdef.load`) or a Graph, which is rewritten in place.
        options: how; or give the fields of :class:`ConvertOptions`, which says what each is, as keyword arguments.
        before: is called with each pass before it runs.
        history: is told of the graph before and after each pass, which :func:`tpugraph.view` shows.

    Raises:
        TpuGraphError: the graph cannot be loaded, understood or rewritten; nothing is written.
    """
    options = given(options, fields)
    started = time.perf_counter()
    if isinstance(model, Graph):
        graph, plain = model, b""
    else:
        loaded = graphdef.sniff(Path(model))
        graph, plain = graphdef.from_loaded(loaded, source=str(model)), loaded.data
    if graph.of_type("TPUReplicateMetadata"):
        raise ConversionError("the graph is a TPU graph already", origin=graph.source, fix="run it: tpugraph run MODEL")
    size = len(graph)
    if history is not None:
        history.record(graph, "input", summary="The graph as it was read.")
    pipeline, options, odd = prepare(graph, options)
    predictions = dict(graph.roles.predictions)
    run: dict[str, Any] = {"dump_dir": options.dump_dir, "dump_after": options.dump_after,
           "changed": partial(print, file=sys.stderr, flush=True) if options.dump_changed else None}  # fmt: skip
    if history is None:
        pipeline.run(graph, before=before, **run)
    else:
        _run_recorded(history, graph, pipeline, before, run)
    shapes.check(graph)
    graph.imported = None
    graph_def = graphdef.to_graph_def(graph)
    seconds = time.perf_counter() - started
    program = Program(graph_def, report(graph, options, pipeline, size, seconds, odd) | {"predictions": predictions},
                      plain=plain if options.mode == "train" else b"", options=options.kept())  # fmt: skip
    if history is not None:
        program.history = history
        history.finish(graph).facts = program.summary().splitlines()
    return program


def _run_recorded(
    history: History, graph: Graph, pipeline: Pipeline, look: Callable[[Pass], object] | None, run: dict[str, Any]
) -> None:
    """Run the passes and record each, where values live before the step is partitioned, and what stops the conversion."""

    def before(step: Pass) -> None:
        if look is not None:
            look(step)
        if isinstance(step, Partition) and step.num_replicas > 1:
            with contextlib.suppress(TpuGraphError):  # which the pass raises again, with its name
                history.place(Explanation(step.placements(graph)))

    def after(step: Pass, seconds: float) -> None:
        history.record(graph, step.name, summary=step.summary(), seconds=seconds)

    try:
        pipeline.run(graph, before=before, after=after, **run)
    except TpuGraphError as error:
        history.record(graph, error.stage or "checks", summary=f"The conversion stops here: {error.fault}")
        raise


def prepare(graph: Graph, options: ConvertOptions) -> tuple[Pipeline, ConvertOptions, list[str]]:
    """What comes before the passes: roles, preconditions, another batch, the number of cores. The graph is changed in place."""
    if graph.roles is None:
        graph.roles = find_roles(graph, options)
    odd = preconditions.check(graph)
    if not options.global_batch and (options.batch_constants or options.literals):
        raise UsageError("--batch_constants and --literals say what follows another batch, and none is asked for",
                         fix="--global_batch=ROWS")  # fmt: skip
    if options.global_batch:
        odd += another_batch(
            graph, options.global_batch, batch_constants=options.batch_constants, literals=options.literals
        ).lines()
    options, said = _with_cores(graph, options)
    return Pipeline(build_passes(options, replica=graph.roles.replica)), options, [*odd, *said]


def whole_step(program: Program) -> Program:
    """A program's plain step for one core, from the plain graph that the program keeps, with the options of its conversion.

    Raises:
        UsageError: it keeps none, or its step runs on cores only.
    """
    if cores_of(program.graph_def) == 1:
        return program
    source = str(program.report.get("source", ""))
    loaded = parse(program.plain, Path(f"the plain graph in {source}")) if program.plain else None
    options = of_file(program.options)
    why = why_on_cores(None if loaded is None else loaded.graph_def, options, program.options)
    if loaded is None or why:
        raise UsageError(
            f"the step runs on cores only: {why}",
            origin=source,
            fix="engine='pjrt', or convert the plain graph with num_replicas=1",
        )
    return convert(graphdef.from_loaded(loaded, source=source), replace(options, num_replicas=1))


def why_on_cores(plain: Any, options: ConvertOptions, kept: Mapping[str, Any]) -> str:
    """Why the step of a plain GraphDef runs on cores only; "" where XLA can partition it.

    Args:
        plain: the GraphDef; None where a converted graph keeps none.
        options: how it is converted.
        kept: the options that a converted graph keeps.
    """
    if plain is None:
        return "the graph is converted, and keeps no plain graph"
    if "passes" in kept:
        return "the graph was converted by passes of its own"
    nodes = chain(plain.node, *(function.node_def for function in plain.library.function))
    if any(node.op in ops.OF_REPLICAS for node in nodes):
        return "the program is that of one replica, which combines its replicas itself"
    if options.batch_norm == "per_core":
        return "batch_norm=per_core normalises each core's rows, and the plain step the whole batch"
    return "shard_tables shards tables over cores" if options.shard_tables else ""


def find_roles(graph: Graph, options: ConvertOptions) -> Roles:
    """The roles of a plain graph in the mode of the options, which first gets the shapes that they tell and an input to restart.

    Calls of functions that write variables are inlined. The graph of a SavedModel that predicts is given an input.
    """
    set_shapes(graph, options.set_shape)
    lower_functional.make_initializable(graph)
    if options.mode == "eval":
        return evaluation_roles.find_evaluation(
            graph, metrics=options.metrics, loss=options.loss, collected=options.collected
        )
    if options.mode == "predict":
        serves = bool(graph.signatures) or options.signature is not None
        named = serving_input.read_examples(graph, options.signature) if serves else None
        return evaluation_roles.find_prediction(graph, predictions=options.predictions or named)
    lower_functional.inline_updates(graph, options.train_op)
    return roles.find(graph, train_op=options.train_op, loss=options.loss)


def _with_cores(graph: Graph, options: ConvertOptions) -> tuple[ConvertOptions, list[str]]:
    """The options with a number of cores, where none was given, and a line for the report where it is not 8."""
    if options.num_replicas is not None:
        return options, []
    rows = 0 if graph.roles.replica else options.global_batch or rows_read(graph) or 0
    cores = next(count for count in (8, 4, 2, 1) if rows % count == 0)
    why = (f"{counted(cores, 'core')}: of 8, 4, 2 and 1 the most that divide a batch of {rows} rows; "
           f"--global_batch={-(-rows // 8) * 8} takes 8")  # fmt: skip
    return replace(options, num_replicas=cores), [why] if cores < 8 else []


def build_passes(options: ConvertOptions, *, replica: bool = False) -> list[Pass]:
    """The passes that the options ask for, with their parameters, for a program that is one replica of several or for any other."""
    values = {name: value for name, value in asdict(options).items() if value is not None}  # else a pass's own default
    known = OF_REPLICAS if replica else PIPELINES[options.mode]
    if options.passes is not None:
        return parse_passes(options.passes, known, values)
    return [cls(**{key: values[key] for key in cls.parameters() if key in values}) for cls in known]


def another_batch(
    graph: Graph, rows: int, *, batch_constants: Iterable[str] = (), literals: Iterable[str] = ()
) -> Rebatched:
    """Let a plain graph with its roles read so many rows a step, in place.

    Where the batch is static, functions that the step calls are inlined, so that what follows the batch in them is found.
    """
    shapes.infer(graph)
    if not is_open(graph):
        InlineFunctions().run(graph)
    return rebatch(graph, rows, batch_constants=batch_constants, literals=literals)
