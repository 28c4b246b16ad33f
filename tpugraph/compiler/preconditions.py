"""What a graph must be before it can be converted: no Python, no feeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tpugraph import ops
from tpugraph.analysis.state import written_variables
from tpugraph.analysis.step import InProcess
from tpugraph.ir import Graph, Node, function_library
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ConversionError
from tpugraph.support.wording import first_of


def check(graph: Graph) -> list[str]:
    """Raise a ConversionError where the step has Python functions or fed placeholders; returns lines for the report."""
    step = graph.ancestors(graph[name] for name in graph.roles.roots)
    functions = function_library.functions_named(graph).items()
    calling: list[tuple[Any, str]] = [(node, "") for node in step if node.op in ops.PYTHON]
    calling += [(node, f" in the dataset function '{name}'") for name, function in functions
                for node in function.node_def if node.op in ops.PYTHON]  # fmt: skip
    if calling and graph.kept(InProcess) is None:
        node, where = calling[0]
        raise ConversionError(
            f"{node.op}{where} calls a Python function of the program that wrote the graph; a file does not hold it",
            node=node if isinstance(node, Node) else node.name,
            origin=graph.source,
            fix="replace from_generator and py_func by TensorFlow ops, or convert inside the program that defines the function",
        )
    fed = [node for node in step if node.op in ops.PLACEHOLDERS]
    if fed:
        more = f" (and {len(fed) - 1} more)" if len(fed) > 1 else ""
        raise ConversionError(f"the step is fed from outside through '{fed[0].name}'{more}; a file does not hold what is fed",
                              node=fed[0], origin=graph.source,
                              fix="read the input with tf.data or queues in the graph, as Estimator's input_fn does")  # fmt: skip
    return _without_gradients(graph, step) if graph.roles.mode == "train" else []


def _without_gradients(graph: Graph, step: dict[Node, None]) -> list[str]:
    """Variables that nothing writes and that the loss reads through ops without a gradient, such as a frozen teacher's."""
    loss = graph.tensor(graph.roles.loss.name).node
    forward = graph.ancestors([loss], data_only=True)
    written = {variable for node in step for variable in written_variables(node)}
    names = graph.collections.get("trainable_variables", graph.roles.variables)
    held = [node for node in map(graph.get, names) if node in step and node not in written and node.op in ops.VARIABLES]
    blocked: dict[Node, list[str]] = {}
    for variable in held:
        blocker = _blocked_by(variable, loss, forward) if variable.attr("dtype").floating else None
        if blocker is not None:
            blocked.setdefault(blocker, []).append(variable.name)
    return [
        f"not trained, as in TensorFlow: {first_of(found)}, which the loss reads through '{blocker.name}', an op without a gradient"
        for blocker, found in blocked.items()
    ]


def _blocked_by(variable: Node, loss: Node, forward: dict[Node, None]) -> Node | None:
    """The op that stops the gradient on every path from the variable to the loss; None where one gets through."""
    blockers: dict[Node, None] = {}

    def behind(node: Node) -> Iterator[Node]:
        for reader in (use.node for use in node.uses() if use.node in forward):
            to_integers = reader.op in ops.CASTS and not reader.attr("DstT").floating
            if to_integers or reader.op in ops.NO_GRADIENT:
                blockers[reader] = None
            else:
                yield reader

    return None if loss in reached((variable,), behind) else next(iter(blockers), None)
