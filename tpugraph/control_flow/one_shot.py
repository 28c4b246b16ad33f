"""One-shot iterators made initializable, so that their datasets are nodes of the graph like those of any other."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.control_flow import inlining, lower_functional
from tpugraph.ir import Graph, attrs
from tpugraph.ir.builder import Builder

_VARIANT = attrs.dtype("variant")


def make_initializable(graph: Graph) -> None:
    """Replace each OneShotIterator by an IteratorV2 that a MakeIterator fills; its function is inlined.

    One that a dataset reads stays: it starts when that dataset asks for the first element.
    """
    for node in graph.of_type("OneShotIterator"):
        if any(ops.is_dataset(use.node.op) for use in node.uses(0)):
            continue
        make = Builder(graph, node.name, source=node)
        call = make.add("PartitionedCall", (), (), name="dataset", Tout=[_VARIANT], f=node.attr("dataset_factory"))
        kept = {name: value for name, value in node.raw_attrs.items() if name in ops.attr_names("IteratorV2")}
        iterator = make.add("IteratorV2", (), (), name="initializable", **kept)
        make.node("MakeIterator", [call, iterator], name="make")
        graph.replace_uses(node.out(), iterator)
        graph.remove(node)
        lower_functional.replace_calls(graph, inlining.calls_of(graph, [call.node]), ())
