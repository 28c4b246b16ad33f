"""One-shot iterators made initializable, so that their datasets are nodes of the graph like those of any other."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.control_flow import inlining, lower_functional
from tpugraph.ir import Graph, attrs

_RESOURCE, _VARIANT = attrs.dtype("resource"), attrs.dtype("variant")


def make_initializable(graph: Graph) -> None:
    """Replace each OneShotIterator by an IteratorV2 that a MakeIterator fills; its function is inlined.

    One that a dataset reads stays: it starts when that dataset asks for the first element.
    """
    for node in graph.of_type("OneShotIterator"):
        if any(ops.is_dataset(use.node.op) for use in node.uses(0)):
            continue
        factory = node.attr("dataset_factory")
        call = graph.add("PartitionedCall", f"{node.name}/dataset", source=node, outputs=[(_VARIANT, ())],
                         attrs={"Tin": [], "Tout": [_VARIANT], "f": factory})  # fmt: skip
        names = ("output_types", "output_shapes", "container", "shared_name")
        kept = {name: node.raw_attrs[name] for name in names if node.has_attr(name)}
        iterator = graph.add(
            "IteratorV2", f"{node.name}/initializable", attrs=kept, source=node, outputs=[(_RESOURCE, ())]
        )
        graph.add("MakeIterator", f"{node.name}/make", [call.out(), iterator.out()], source=node, outputs=[])
        graph.replace_uses(node.out(), iterator.out())
        graph.remove(node)
        lower_functional.replace_calls(graph, inlining.calls_of(graph, [call]), ())
