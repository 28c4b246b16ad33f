"""Makes a bundle of a TPU graph: the part of it that needs TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping

import tensorflow as tf

from tpugraph.compiler import adopt_tpu_estimator
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime.pjrt.bundle import Bundle
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import RunError
from tpugraph.tpu.program import Program
from tpugraph.xla import stablehlo
from tpugraph.xla.module import Module


def make(
    program: Program,
    *,
    module: Module | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    rebind: Mapping[str, str] | None = None,
    made_by: Mapping[str, str] | None = None,
) -> Bundle:
    """The bundle of a converted training graph.

    Args:
        program: the graph.
        module: its lowered cluster, where there is one already.
        checkpoint: where the variables have their values from; their initialisers when None.
        rebind: file names in the graph to replace, old name to new.
        made_by: versions to note beside TensorFlow's.

    Raises:
        ConversionError, RunError: the graph cannot be lowered, or the host gives values that a bundle cannot hold.
        CheckpointError: a checkpoint that does not match.
    """
    source = str(program.report.get("source", ""))
    graph = graphdef.from_graph_def(program.graph_def, source=source)
    if "tpugraph/train" not in graph:
        adopt_tpu_estimator.add_entry_points(graph)
    inputs, loss = _inputs(graph), _loss(graph)
    module = module or stablehlo.lower(graph)
    given = next((value for value in module.arguments if value.kind == "host"), None)
    if given is not None:
        raise RunError("the host gives the step a value before each loop, which a bundle has no host for", node=given.name,
                       origin=source, fix="compute it in the input function, or in the step")  # fmt: skip
    with TPUSession(program, rebind=rebind) as session:
        trained = 0 if checkpoint is None else max(session.restore(checkpoint), 0)
        if checkpoint is None:
            session.initialize()
        variables = session.values([value.name for value in module.arguments if value.kind == "variable"])
    versions = {"tensorflow": tf.__version__, **(made_by or {})}
    return Bundle(module, variables, inputs, loss, trained, versions, source)


def _inputs(graph: Graph) -> tuple[str, ...]:
    """The tensors that core 0 is fed."""
    puts = sorted(graph.of_type("InfeedEnqueueTuple"), key=lambda node: node.attr("device_ordinal", 0))
    if not puts:
        return ()
    return tuple(map(str, puts[0].inputs))


def _loss(graph: Graph) -> int | None:
    """Which tensor of the outfeed is each core's share of the loss, where the host adds the shares up."""
    before = graph.ancestors([graph["tpugraph/dequeue"]], data_only=True)
    for write in [node for node in before if node.op == "TensorArrayWriteV3"]:
        total = write.inputs[2].node
        rows = total.inputs[0] if total.op == "Sum" else None
        if rows is not None and rows.node.op == "ConcatV2":
            rows = rows.node.inputs[0]
        if rows is not None and rows.node.op == "OutfeedDequeueTuple":
            return rows.port
    return None
