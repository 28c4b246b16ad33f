"""Errors of tpugraph: every failure is one block that names the fault, the node, its origin and the fix."""

from __future__ import annotations

from typing import Any


class TpuGraphError(Exception):
    """A failure that a user can act on.

    Args:
        fault: what is wrong, one sentence without a final full stop.
        node: the node it was found at, as ``name (Op)``.
        origin: where the node comes from in the user's graph.
        fix: what the user can do about it.
        stage: the pass or stage that found it; the pipeline fills it in.
    """

    def __init__(
        self,
        fault: str,
        *,
        node: object | None = None,
        origin: str | None = None,
        fix: str | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(fault)
        self.fault, self.origin, self.fix, self.stage = fault, origin, fix, stage
        self.node = None if node is None else str(node)

    def block(self) -> str:
        """The error as it is printed: one headline and up to three labelled lines."""
        stage = f"{self.stage}: " if self.stage else ""
        lines = [f"error: {stage}{self.fault}"]
        for label, text in (("node", self.node), ("from", self.origin), ("fix", self.fix)):
            if text:
                lines.append(f"  {label:<7} {text}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.block().removeprefix("error: ")

    def as_dict(self) -> dict[str, str | None]:
        """The same facts for JSON."""
        return {"kind": type(self).__name__, **vars(self)}


class LoadError(TpuGraphError):
    """The input is not a graph that can be read."""


class GraphError(TpuGraphError):
    """An edit or a graph that breaks a rule of the IR."""


class RolesError(TpuGraphError):
    """The loss, the train op, the input or a gradient cannot be told from the graph."""


class ConversionError(TpuGraphError):
    """A pass cannot rewrite the graph."""


class ShapeError(ConversionError):
    """A shape that is open, or a batch that does not divide."""


class InvariantError(TpuGraphError):
    """A graph violates what a pass requires or has promised."""


class PipelineError(TpuGraphError):
    """A pipeline whose order or parameters cannot work."""


class RunError(TpuGraphError):
    """A session that cannot start or a step that failed."""


class CheckpointError(RunError):
    """A checkpoint that cannot be read, written or matched to the graph."""


class UsageError(TpuGraphError):
    """An option or argument with an unusable value."""


class ArgumentError(UsageError, ValueError):
    """An argument of the Estimator API whose value cannot be used; a ``ValueError`` too."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of the Estimator API that is of the wrong type; a ``TypeError`` too."""


class NanLossDuringTrainingError(RunError, RuntimeError):
    """The loss is no number any more; ``step`` is the global step of the first such loss."""

    def __init__(self, fault: str, *, step: int = 0, **more: Any) -> None:
        super().__init__(fault, **more)
        self.step = step
