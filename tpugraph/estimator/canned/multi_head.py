"""MultiHead: several heads behind one model, whose losses are added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.canned.heads import DEFAULT, Head, Reduction
from tpugraph.estimator.export_types import PredictOutput
from tpugraph.estimator.modes import ModeKeys
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1


class MultiHead(Head):
    """Several heads: the loss is the sum of theirs, and what each predicts and measures has its name.

    Labels are a dict by the heads' names. Logits are such a dict, or one tensor ``[batch, sum of all logits_dimension]`` with
    those of the first head first. Predictions are keyed by ``(name, key)``.

    Args:
        heads: the heads; each has a name of its own.
        head_weights: a number for each head, by which its loss counts; 1 for all when None.

    Raises:
        ArgumentError: no heads, a head without a name, two of one name, or another number of weights (a ``ValueError``).
    """

    def __init__(self, heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> None:
        if not heads:
            raise ArgumentError(f"Must specify heads. Given: {heads}", fix="MultiHead([head1, head2])")
        names = [head.name for head in heads]
        if not all(names):
            raise ArgumentError(
                f"All given heads must have name set. Given: {names}", fix="a head with name='of its own'"
            )
        if len(set(names)) < len(names):
            raise ArgumentError(
                f"All given heads must have unique names. Given: {names}", fix="another name for one of them"
            )
        if head_weights and len(head_weights) != len(heads):
            raise ArgumentError("heads and head_weights must have the same size. "
                                f"Given len(heads): {len(heads)}. Given len(head_weights): {len(head_weights)}.",
                                fix="a weight for each head")  # fmt: skip
        super().__init__(None, Reduction.SUM_OVER_BATCH_SIZE, "_".join(map(str, names)))
        self._heads = {str(head.name): head for head in heads}
        self._head_weights = list(head_weights or [1.0] * len(heads))
        self.logits_dimension = sum(head.logits_dimension for head in heads)

    def predictions(self, logits: Any) -> dict[Any, Any]:
        """What each head predicts, by its name and the key of the prediction."""
        each = self._logits_of(logits)
        return {
            (name, key): value
            for name, head in self._heads.items()
            for key, value in head.predictions(each[name]).items()
        }

    def graded(
        self, features: Any, mode: str, logits: Any, labels: Any, predictions: dict[Any, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The weighted sum of the losses, and of EVAL the metrics of all heads, the loss of each among them."""
        metrics: dict[str, Any] = {}
        each, total = self._logits_of(logits), []
        own = self._by_head(predictions)
        for (name, head), weight in zip(self._heads.items(), self._head_weights, strict=True):
            loss, found = head.graded(features, mode, each[name], self._of("labels", labels, name), own[name])
            total.append(weight * loss)
            if mode == ModeKeys.EVAL:
                metrics.update(found, **{f"loss/{name}": tf1.metrics.mean(loss)})
        return tf.add_n(total), metrics

    def export_outputs(self, predictions: dict[Any, Any]) -> dict[str, Any]:
        """The answers of each head under ``name/key``, its default under ``name``; that of the first head is the default."""
        answers: dict[str, Any] = {}
        for name, mine in self._by_head(predictions).items():
            for key, answer in self._heads[name].export_outputs(mine).items():
                answers[name if key == DEFAULT else f"{name}/{key}"] = answer
        merged = {f"{name}/{key}": value for (name, key), value in predictions.items()}
        return {DEFAULT: answers[next(iter(self._heads))], **answers, "predict": PredictOutput(merged)}

    def _by_head(self, predictions: dict[Any, Any]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {name: {} for name in self._heads}
        for (name, key), value in predictions.items():
            found[name][key] = value
        return found

    def _logits_of(self, logits: Any) -> dict[str, Any]:
        """The logits of each head."""
        if isinstance(logits, Mapping):
            return {name: self._of("logits", logits, name) for name in self._heads}
        sizes = [head.logits_dimension for head in self._heads.values()]
        width = logits.shape.as_list()[-1]
        if width != sum(sizes):
            raise ArgumentError(f"the logits have {width} columns, and the heads take {sum(sizes)}: {sizes}",
                                fix="as many units as MultiHead(...).logits_dimension")  # fmt: skip
        return dict(zip(self._heads, tf.split(logits, sizes, -1), strict=True))

    def _of(self, what: str, given: Any, name: str) -> Any:
        """What a dict by names has for a head."""
        if not isinstance(given, Mapping) or name not in given:
            raise ArgumentError(f"{what} of the head '{name}' are missing; there are {sorted(given) if given else None}",
                                fix=f"{what} as a dict by the names of the heads")  # fmt: skip
        return given[name]
