"""The step of a plain evaluation or prediction graph: what it reads, what it writes, and the roles that both kinds have."""

from __future__ import annotations

from typing import Any

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.analysis.state import flows_from, written_variables
from tpugraph.ir import Graph, Node
from tpugraph.roles import find_step, find_variables, input_reason
from tpugraph.roles.findings import Finding, Roles, Variable
from tpugraph.support.errors import RolesError

NO_LOSS = Finding("", "there is none")


class PlainStep:
    """What a plain graph that does not train is searched for.

    Args:
        graph: the graph as loaded; shapes are inferred where they are not known.

    Attributes:
        inputs: the nodes that bring data of a batch.
        writes: the nodes that write variables.
        varying: what depends on the input by its data.
        restored: what a checkpoint is read into.
        moving: the writes that the input causes.
        inside: what lies in a loop or a branch.
        kept: the names of the variables that a checkpoint holds.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        if any(node.outputs is None for node in graph):
            shapes.infer(graph)
        self.inputs = graph.of_type(*ops.INPUTS)
        self.writes = [node for node in graph if node.op in ops.WRITES]
        self.varying = flows_from(graph, self.inputs)
        self.restored = graph.descendants(graph.of_type(*ops.RESTORES), data_only=True)
        behind = graph.descendants(self.inputs)  # waiting counts: a metric may add a constant once the batch is there
        self.moving = [n for n in self.writes if (n in self.varying or n in behind) and n not in self.restored]
        frame_of = analysis.frames(graph)
        self.inside = {**analysis.conditional(graph), **{n: None for n in graph if frame_of[n]}}
        saved = find_variables(graph, [], {}, {}, [])
        hinted = {name.partition(":")[0] for name in graph.collections.get("trainable_variables", [])}
        self.kept = {name for name, variable in saved.items() if variable.key is not None} | hinted

    def check_input(self) -> None:
        """See that the graph reads an input.

        Raises:
            RolesError: it does not.
        """
        if not self.inputs:
            raise RolesError(
                "the graph reads no input: there is no iterator, queue or placeholder",
                origin=self.graph.source,
                fix="give the graph that Estimator.evaluate or Estimator.predict builds (it holds its input pipeline)",
            )

    def trains(self, node: Node) -> str | None:
        """The variable that a write trains: one that a checkpoint holds, or that an optimizer writes; else None."""
        trained = next((v.name for v in written_variables(node) if v.name in self.kept), None)
        if trained is None and ops.WRITES[node.op].kind == "apply":
            return next((v.name for v in written_variables(node)), "?")
        return trained

    def check_no_training(self, mode: str, writes: list[Node]) -> None:
        """See that none of the writes trains.

        Raises:
            RolesError: one does: it writes what a checkpoint holds, or is an optimizer's step.
        """
        for node in writes:
            trained = self.trains(node)
            if trained is not None:
                raise RolesError(
                    f"the graph trains: '{node.name}' writes '{trained}', which a checkpoint holds, from the input",
                    node=node,
                    origin=self.graph.source,
                    fix=f"--mode=train, or give the graph that Estimator builds for mode '{mode}'",
                )

    def roles(self, mode: str, *, loss: Finding, updates: list[Finding], more: dict[str, Any]) -> Roles:
        """The roles of the graph, with what its mode adds to them."""
        graph = self.graph
        roots = [*(f.name for f in updates), *([loss.name] if loss.name else []), *more.get("predictions", {}).values()]
        cone = graph.ancestors(graph.tensor(name).node for name in roots)
        variables = find_variables(graph, self.writes, cone, self.restored, [])
        self._give_keys(variables)
        return Roles(
            loss=loss,
            train_ops=[],
            step=self._step(variables),
            inputs=[Finding(n.name, input_reason(n)) for n in self.inputs if n in cone],
            variables=variables,
            updates=updates,
            savers=[Finding(n.name, "writes the checkpoint") for n in graph.of_type(*ops.TENSOR_SAVES)],
            table_initializers=[n.name for n in graph.of_type(*ops.TABLE_INITIALIZERS)],
            iterator_initializers=[n.name for n in graph.of_type(*ops.MAKE_ITERATOR)],
            mode=mode,
            **more,
        )

    def _give_keys(self, variables: dict[str, Variable]) -> None:
        """Without a saver, every variable that is not local to the evaluation has its own name as its key."""
        if any(variable.key is not None for variable in variables.values()):
            return
        local = {name.partition(":")[0] for name in self.graph.collections.get("local_variables", [])}
        local |= {v.name for node in self.moving for v in written_variables(node)}
        for variable in variables.values():
            if variable.name not in local:
                variable.key = variable.name

    def _step(self, variables: dict[str, Variable]) -> Finding | None:
        """The step counter: nothing increments it here, so its name and its collection tell it."""
        hinted = [name.partition(":")[0] for name in self.graph.collections.get("global_step", [])]
        for name in (*hinted, "global_step"):
            if name in variables:
                return Finding(name, "in the collection global_step" if hinted else "by its name")
        return find_step(self.graph, self.writes, dict.fromkeys(self.graph))
