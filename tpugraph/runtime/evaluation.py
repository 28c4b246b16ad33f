"""Evaluates and predicts with a converted graph, loop by loop until the data end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph.ir import Graph
from tpugraph.support.errors import RunError
from tpugraph.tpu.program import DEVICE_PARTS, USER_NAME, mode_of

Run = Callable[[int, str, list[str]], list[Any]]
"""Runs a loop of some steps with a device node; returns fetches of the host's part."""


class Evaluated(dict[str, float]):
    """The value of each metric by name, and ``loss``, the mean of the batches' losses.

    Attributes:
        steps: global batches that had rows.
        examples: the total number of rows; each example of the data counts once.
        last_loss: the loss of the last batch; None without a loss.
        collected: by name, the values of the tensors that are collected from each batch, concatenated over the last loop.
    """

    steps: int = 0
    examples: int = 0
    last_loss: float | None = None

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self.collected: dict[str, Any] = {}


@dataclass(frozen=True)
class EntryPoints:
    """The entry points of a graph for evaluation or prediction."""

    device: str = ""  # the device node of a loop, "" for a training graph
    metrics: dict[str, str] = field(default_factory=dict)  # the tensor of each metric's value, by the metric's name
    # the tensor of each prediction's rows, by the prediction's name
    predictions: dict[str, str] = field(default_factory=dict)
    has_loss: bool = False  # whether the loop outputs losses


def entry_points(graph: Graph) -> EntryPoints:
    device = "" if mode_of(graph) == "train" else DEVICE_PARTS[mode_of(graph)]
    named: dict[str, dict[str, str]] = {"tpugraph/metrics/": {}, "tpugraph/predictions/": {}}
    for node in graph if device else ():
        scope = next((scope for scope in named if node.name.startswith(scope) and node.has_attr(USER_NAME)), None)
        if scope is not None:
            named[scope][node.attr(USER_NAME)] = f"{node.name}:0"
    metrics, predictions = named.values()
    return EntryPoints(device, metrics, predictions, "tpugraph/losses" in graph)


def evaluate(
    found: EntryPoints, run: Run, read: Callable[[list[str]], list[Any]], steps: int | None, loop: int
) -> Iterator[Evaluated]:
    """Evaluate ``steps`` global batches, or all data when None, with metrics and input that are initialised; the result so far
    after each loop."""
    batches, rows = 0, 0
    losses: list[float] = []
    fetches = ["tpugraph/dequeue:0", *found.predictions.values(), *(["tpugraph/losses:0"] if found.has_loss else [])]
    while steps is None or batches < steps:
        count = loop if steps is None else min(loop, steps - batches)
        (done, examples), *values = run(count, found.device, fetches)
        collected, stacked = values[: len(found.predictions)], values[len(found.predictions) :]
        batches, rows = batches + int(done), rows + int(examples)
        losses.extend(float(loss) for loss in (stacked[0] if stacked else ()))
        if not batches:
            raise RunError("there are no examples to evaluate: the data ended at once", fix="check the input files")
        if done:
            values_of = read(list(found.metrics.values()))
            result = Evaluated({name: _number(value) for name, value in zip(found.metrics, values_of, strict=True)})
            result.steps, result.examples = batches, rows
            if losses:
                result.setdefault("loss", float(np.mean(losses, dtype=np.float64)))
                result.last_loss = losses[-1]
            result.collected = dict(zip(found.predictions, collected, strict=True))
            yield result
        if done < count:
            return


def _number(value: Any) -> Any:
    """A number where the metric is one, a text's bytes, else the array (a confusion matrix, say)."""
    if isinstance(value, bytes):
        return value
    array = np.asarray(value)
    return float(array) if array.shape == () and array.dtype.kind in "fiub" else array


def predict(found: EntryPoints, run: Run, loop: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """For each loop of ``loop`` global batches the number of examples, and the rows of each prediction."""
    fetches = ["tpugraph/dequeue:0", *found.predictions.values()]
    while True:
        (done, examples), *values = run(loop, found.device, fetches)
        if examples:
            yield int(examples), dict(zip(found.predictions, values, strict=True))
        if done < loop:
            return


def by_example(loops: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """The predictions as one dict per example, in the order of the data."""
    for examples, arrays in loops:
        for name, rows in arrays.items():
            if len(rows) != examples:
                raise RunError(f"the prediction '{name}' has {len(rows):,} rows for {examples:,} examples",
                               fix="name a tensor whose dimension 0 is the batch with --predictions=NAME=TENSOR")  # fmt: skip
        for row in range(examples):
            yield {name: rows[row] for name, rows in arrays.items()}
