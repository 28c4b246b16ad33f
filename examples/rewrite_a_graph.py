"""Rewrite a graph with a pass of your own: load, run a pipeline, look at what it did, save, convert.

Run it from the root of the checkout:

    python examples/rewrite_a_graph.py [OUT.pb]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tpugraph
from tpugraph.ir import graphdef

MODEL = Path(__file__).parent / "iris" / "model.ckpt-0.meta"


@dataclass(frozen=True)
class LeakyRectifiers(tpugraph.Pass):
    """Every Relu lets a part of negative values through, in the forward step and in its gradient."""

    alpha: float = 0.2

    def run(self, graph: tpugraph.Graph) -> None:
        """Rewrite the graph in place."""
        for node in graph.of_type("Relu", "ReluGrad"):
            leaky = "LeakyRelu" if node.op == "Relu" else "LeakyReluGrad"
            graph.retype(node, leaky, attrs={"T": node.raw_attrs["T"], "alpha": self.alpha})
            graph.note(node, f"lets {self.alpha} of negative values through")


def main(out: str) -> None:
    """Rewrite the Iris graph and write it to ``out``."""
    graph = tpugraph.load(MODEL)
    pipeline = tpugraph.Pipeline([LeakyRectifiers(alpha=0.1)])
    pipeline.run(graph)
    for step in pipeline.trace:
        print(f"{step.name}: {step.edits}, {step.nodes} nodes")
    for note in graph.notes:
        print(f"{note.node}: {note.text}")
    graphdef.save(graph, out)
    print(f"wrote {out}")

    program = tpugraph.convert(out, num_replicas=4, iterations_per_loop=10)
    with tpugraph.TPUSession(program) as session:
        session.restore(MODEL.with_suffix(""))
        print("loss of step 10:", round(session.train(steps=10)[-1], 4))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "leaky.pb")
