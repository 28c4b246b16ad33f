"""Lowers the cluster of a TPU graph to StableHLO: one module for one core, with collectives over all of them.

TensorFlow's bridge makes the module from a function and runs nothing. Ops that it has no kernel for are rewritten first:
CrossReplicaSum to an all-reduce, stateful random ops to stateless ones, TF1 loops and conditionals to functional ones.
"""

from __future__ import annotations

import time

from tpugraph import ops
from tpugraph.analysis import CLUSTER_ATTR
from tpugraph.analysis.trip_counts import bound_stacks
from tpugraph.control_flow import functionalize
from tpugraph.control_flow.functionalize import raise_control_flow
from tpugraph.control_flow.stacks import begin_stacks, replace_known_stacks
from tpugraph.ir import Graph, Tensor
from tpugraph.ir.side_effects import side_effects
from tpugraph.support.errors import ConversionError
from tpugraph.support.process import without_garbage_collection
from tpugraph.xla import cut_cluster
from tpugraph.xla.bridge import DataSized, export
from tpugraph.xla.legalize import make_dense, make_quick, reduce_over_all
from tpugraph.xla.module import Module, Value
from tpugraph.xla.stateless_random import own_streams


@without_garbage_collection()
def lower(graph: Graph, *, iterations: int | None = None) -> Module:
    """Lower the cluster of a TPU graph that has its entry points, which is used up, for calls of at most so many steps."""
    started = time.perf_counter()
    graph.stage = "stablehlo"
    _refuse_side_effects(graph)
    shapes_of = _variable_shapes(graph)
    replace_known_stacks(graph)
    begin_stacks(graph)
    found = cut_cluster.cut(graph, iterations=iterations)
    reduces = reduce_over_all(graph, found.num_replicas)
    sized = DataSized(graph)
    make_dense(found, shapes_of)
    make_quick(graph)
    seed, own = own_streams(found)
    bound_stacks(graph)
    raised = raise_control_flow(graph)
    plain = [("count", "", found.count), ("seed", "", seed)]
    plain += [("infeed", str(i), t) for i, t in enumerate(found.infeed)]
    plain += [("host", name, t) for name, t in found.host.items()]
    results = [("outfeed", str(i), t) for i, t in enumerate(found.outfeed)]
    results += [("output", name, t) for name, t in found.outputs.items()]
    arguments = [*(t for *_, t in plain), *found.variables.values()]
    given = {t.node for t in arguments}
    function = functionalize.make_function(
        graph,
        "tpugraph_cluster",
        [node for node in graph if node not in given],
        [[t] for t in arguments],
        [t for *_, t in results],
    )
    raised_at = time.perf_counter()
    variables = {name: shapes_of[name] for name in found.variables}
    code = export(graph, function, [t for *_, t in plain], list(variables.values()), sized)
    held_as = {
        name: ("shard", found.shards[name]) if name in found.shards else ("variable", name) for name in variables
    }
    takes = [*(_value(*held) for held in plain), *(Value(*held_as[name], *held) for name, held in variables.items())]
    gives = [_value(*held) for held in results]
    gives += [Value(*held_as[name], *variables[name]) for name in found.variables if name in found.written]
    seconds = {"rewrite": raised_at - started, "export": time.perf_counter() - raised_at}
    facts = {"all_reduces": reduces, **raised, "own_streams": own}
    return Module(code, found.num_replicas, found.iterations, tuple(takes), tuple(gives), seconds, facts)


def _refuse_side_effects(graph: Graph) -> None:
    """Refuse ops that touch files or call Python: the bridge folds constants by running ops on this machine."""
    for found in side_effects(graph, graph.with_attr(CLUSTER_ATTR)):
        raise ConversionError(f"the step {found.words} on the device: {found.op}", node=found.node, origin=graph.source,
                              fix="do that in the input function: a device reaches no host")  # fmt: skip


def _value(kind: str, name: str, tensor: Tensor) -> Value:
    return Value(kind, name, tensor.dtype.name, tuple(d or 0 for d in tensor.shape or ()))


def _variable_shapes(graph: Graph) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        node.name: (node.attr("dtype").name, tuple(node.attr("shape") or ()))
        for node in graph.of_type(*ops.RESOURCE_VARIABLES)
    }
