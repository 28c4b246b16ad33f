"""What a session asks of what runs its steps: the protocol ``Engine``, and what engines inside TensorFlow have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tpugraph.runtime.graph_session import GraphSession

TRAIN = "tpugraph/train"
"""The node that is the device's part of a training loop."""

LOSSES = "tpugraph/dequeue:0"
"""The loss of each step of a loop, float32 [steps]."""

SUMMARIES = "tpugraph/summaries:0"
"""The merged summaries of a loop's last step, serialised."""

STATE_SUMMARIES = "tpugraph/state_summaries:0"
"""The merged summaries of variables alone, serialised; read in a run of its own, when the loop has ended."""


@dataclass(frozen=True)
class TrainingLoop:
    """A loop that is to be trained.

    Attributes:
        steps: the number of its steps.
        following: the steps of the loop after it, 0 where none is known; an engine may read their input meanwhile.
        trained: the steps that were trained before.
        summaries: whether the graph's merged summaries of the last step are wanted.
    """

    steps: int
    following: int
    trained: int
    summaries: bool


class Trained(NamedTuple):
    """What a training loop gave.

    Attributes:
        losses: the loss of each step; fewer than were asked for where the data ended.
        summaries: the merged summaries of the last step, serialised; None where the engine has none.
    """

    losses: list[float]
    summaries: bytes | None = None


class Engine(Protocol):
    """Runs the loops of one TPU graph.

    An engine is made from the graph, which it changes in place to what TensorFlow is left to run of it. The session imports
    that and hands it back by :meth:`attach`, before anything else is asked. Variables live in TensorFlow, where checkpoints are
    read and written; an engine may hold newer values elsewhere while nobody asks for them.

    Attributes:
        notes: what is worth knowing about how it runs, as sentences.
        costs: TensorFlow's RunMetadata of the last loop that it measured op by op; None where it measured none.
        writes_files: whether this process writes checkpoints and event files; False for all but one of joined processes.
    """

    notes: Sequence[str]
    costs: Any
    writes_files: bool

    def attach(self, host: GraphSession) -> None:
        """Take the session of what TensorFlow runs of the graph."""

    def report(self) -> dict[str, Any]:
        """What runs the steps, for the session's report (JSON)."""

    def fitting(self, steps: int) -> int:
        """How many of so many steps the next loop has: fewer where only a part of the batches read ahead is left."""

    def train(self, loop: TrainingLoop) -> Trained:
        """Run a training loop.

        Raises:
            RunError: a step failed.
        """

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop of evaluation or prediction.

        Args:
            steps: the number of its steps.
            device: the node that is the device's part of the loop.
            fetches: the tensors of the host's part that are wanted.

        Returns:
            The value of each fetch.

        Raises:
            RunError: a step failed.
        """

    def give_back(self, fetch: Any = None) -> None:
        """Let TensorFlow have the newest values of the variables that a fetch needs; of all when None."""

    def hold_position(self) -> str:
        """See that a checkpoint holds the input's position behind the last loop; returns why it cannot, else ""."""

    def variables_changed(self) -> None:
        """Hear that TensorFlow has given variables other values."""

    def input_changed(self) -> None:
        """Hear that the input is at another position."""

    def close(self) -> None:
        """End what it has begun; the TensorFlow session is closed."""


class TensorFlowEngine:
    """An engine all of whose graph TensorFlow runs: variables and input are nowhere else."""

    writes_files = True

    def __init__(self, notes: Sequence[str] = ()) -> None:
        self.notes = notes
        self.costs: Any = None

    def attach(self, host: GraphSession) -> None:
        """Take the session of the whole graph."""
        self.host = host

    def report(self) -> dict[str, Any]:
        """Nothing beside the name of the engine."""
        return {}

    def fitting(self, steps: int) -> int:
        """All of them: nothing is read ahead."""
        return steps

    def train(self, loop: TrainingLoop) -> Trained:
        """Run a training loop."""
        wanted = [LOSSES, SUMMARIES] if loop.summaries else [LOSSES]
        losses, *summaries = self.run_loop(loop.steps, TRAIN, wanted)
        return trained(losses, loop, *summaries)

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop; see :meth:`Engine.run_loop`."""
        raise NotImplementedError

    def give_back(self, fetch: Any = None) -> None:
        """Do nothing: TensorFlow has the newest values."""

    def hold_position(self) -> str:
        """Nothing is in the way: the input is behind the last loop."""
        return ""

    def variables_changed(self) -> None:
        """Do nothing: there are no other values."""

    def input_changed(self) -> None:
        """Do nothing: nothing was read ahead."""

    def close(self) -> None:
        """Do nothing: all ended with the TensorFlow session."""


def trained(losses: Any, loop: TrainingLoop, summaries: bytes | None = None) -> Trained:
    """What a loop gave, of the losses that TensorFlow hands out: one a step, and perhaps more."""
    return Trained([float(loss) for loss in losses][: loop.steps], summaries)
