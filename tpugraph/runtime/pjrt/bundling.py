"""Makes a bundle from a TPU graph: the part that needs TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tpugraph import ops
from tpugraph.analysis import by_core
from tpugraph.compiler import adopt_tpu_estimator
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.pattern import anything, either, match, op
from tpugraph.ir.side_effects import side_effects
from tpugraph.runtime.pjrt.bundle import Bundle
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import ConversionError, RunError
from tpugraph.tpu.program import Program
from tpugraph.xla import stablehlo
from tpugraph.xla.module import Module


def make(
    program: Program,
    *,
    module: Module | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    rebind: Mapping[str, str] | None = None,
) -> Bundle:
    source = str(program.report.get("source", ""))
    graph = graphdef.from_graph_def(program.graph_def, source=source)
    adopt_tpu_estimator.add_entry_points(graph)
    inputs, loss = _inputs(graph), _loss(graph)
    module = module or stablehlo.lower(graph)
    given = next((value for value in module.arguments if value.kind == "host"), None)
    if given is not None:
        raise RunError("the host gives the step a value before each loop, which a bundle has no host for", node=given.name,
                       origin=source, fix="compute it in the input function, or in the step")  # fmt: skip
    shared = next((value for value in module.arguments if value.kind == "shard"), None)
    if shared is not None:
        raise RunError(f"the cores share the rows of the table '{shared.name}', and a bundle has every variable whole",
                       origin=source, fix="convert without --shard_tables")  # fmt: skip
    with TPUSession(_without_input(program, source), rebind=rebind) as session:
        trained = 0 if checkpoint is None else max(session.restore(checkpoint), 0)
        if checkpoint is None:
            session.initialize()
        variables = session.values([value.name for value in module.arguments if value.kind == "variable"])
    return Bundle(module, variables, inputs, loss, trained)


def _without_input(program: Program, source: str) -> Program:
    """The program with only its variables to initialize: tables and input are not opened, nor their files read."""
    graph = graphdef.from_graph_def(program.graph_def, source=source)
    adopt_tpu_estimator.add_entry_points(graph)
    opens = graph["tpugraph/init_input"]
    graph.set_controls(graph["tpugraph/init"], [c for c in graph["tpugraph/init"].controls if c not in opens.controls])
    graph.set_controls(opens, ())
    runs = graph.ancestors([graph["tpugraph/init"], graph["tpugraph/init_local"]])
    runs.update((node, None) for node in graph if ops.is_folded_away(node.op))
    for found in side_effects(graph, runs):
        raise ConversionError(f"to know the first values of the variables, an op would be run that {found.words}",
                              node=found.node, origin=source, fix="train it with `tpugraph run`, which runs all ops, or "
                              "make the values of constants")  # fmt: skip
    return Program(graphdef.to_graph_def(graph), program.report)


def _inputs(graph: Graph) -> tuple[str, ...]:
    puts = by_core(graph.of_type("InfeedEnqueueTuple"))
    if not puts:
        return ()
    return tuple(map(str, puts[0].inputs))


def _loss(graph: Graph) -> int | None:
    """The index of the core's share of the loss in the outfeed, where the host sums the shares."""
    before = graph.ancestors([graph["tpugraph/dequeue"]], data_only=True)
    found = (match(_WRITTEN_SUM, node.out()) for node in before)
    return next((sent["rows"].port for sent in found if sent), None)


_ROWS = op("OutfeedDequeueTuple", name="rows")
_WRITTEN_SUM = op("TensorArrayWriteV3", anything(), anything(), op("Sum", either(op("ConcatV2", _ROWS), _ROWS)))
