"""Serving on TPUs: the computation of an exported model as one call that a TPU runs."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.tpu import functional
from tensorflow.python.tpu.ops import tpu_ops

from tpugraph.estimator.specs import EstimatorSpec, plain_spec
from tpugraph.estimator.user_functions import takes

tf1 = tf.compat.v1


class ExportSavedModelApiVersion(enum.Enum):
    """V1: the estimator puts all of the model function on TPUs.

    V2: the model function does it itself, by :func:`inference_on_tpu` or :func:`model_fn_inference_on_tpu`.
    """

    V1 = 1
    V2 = 2


class BatchConfig(NamedTuple):
    """How requests are batched.

    Attributes:
        num_batch_threads: batches that are computed at the same time.
        max_batch_size: the largest batch size.
        batch_timeout_micros: microseconds after which a batch is computed that is not full.
        allowed_batch_sizes: the sizes that batches are padded to, in order, ``max_batch_size`` last; any when None.
        max_enqueued_batches: the most batches that wait.
    """

    num_batch_threads: int
    max_batch_size: int
    batch_timeout_micros: int
    allowed_batch_sizes: Sequence[int] | None = None
    max_enqueued_batches: int = 100


def call_on_tpu(computation: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """Calls a computation on one core of a TPU, round robin; returns tensors on the host."""

    @function.Defun(capture_resource_var_by_value=False)  # type: ignore[untyped-decorator]
    def compute() -> Any:
        return tf1.tpu.rewrite(computation, list(inputs))

    kinds = [argument.type for argument in compute.definition.signature.output_arg]
    found = functional.TPUPartitionedCall(
        args=compute.captured_inputs, device_ordinal=tpu_ops.tpu_ordinal_selector(), Tout=kinds, f=compute
    )
    return list(found)


def inference_on_tpu(computation: Callable[..., Any], inputs_to_tpu: Sequence[Any], num_batch_threads: int,
                     max_batch_size: int | None, batch_timeout_micros: int,
                     allowed_batch_sizes: Sequence[int] | None = None, max_enqueued_batches: int = 100) -> Any:  # fmt: skip
    """The result of a computation on TPUs, for batched requests.

    Args:
        computation: called with the inputs; returns a tensor or a list of tensors.
        inputs_to_tpu: tensors whose first dimension is the batch.
        num_batch_threads, batch_timeout_micros, allowed_batch_sizes, max_enqueued_batches: see :class:`BatchConfig`.
        max_batch_size: None and 0 do not batch.

    Returns:
        A tensor where there is one, else a list.
    """
    if not max_batch_size:
        found = call_on_tpu(computation, inputs_to_tpu)
    else:
        batched = tf.nondifferentiable_batch_function(
            num_batch_threads, max_batch_size, batch_timeout_micros, allowed_batch_sizes, max_enqueued_batches
        )
        found = list(tf.nest.flatten(batched(lambda *inputs: call_on_tpu(computation, inputs))(*inputs_to_tpu)))
    return found[0] if len(found) == 1 else found


def model_fn_inference_on_tpu(model_fn: Callable[..., Any], features: Any, labels: Any = None, config: Any = None,
                              params: Any = None, batch_config: BatchConfig | None = None) -> EstimatorSpec:  # fmt: skip
    """The spec of a model function in mode PREDICT whose predictions and export outputs are computed on TPUs.

    ``batch_config`` batches requests; each is computed by itself when None.
    """
    every = {"labels": labels, "mode": "infer", "params": params, "config": config}
    given = {name: value for name, value in every.items() if takes(model_fn, name)}
    kept: list[tuple[EstimatorSpec, Any]] = []

    def compute(*inputs: Any) -> list[Any]:
        spec = plain_spec(model_fn(features=tf.nest.pack_sequence_as(features, inputs), **given))
        exports = spec.export_outputs or {}
        outputs = {"predictions": spec.predictions, "exports": {name: vars(output) for name, output in exports.items()}}
        kept.append((spec, outputs))
        return [tensor for tensor in tf.nest.flatten(outputs) if tensor is not None]

    inputs = tf.nest.flatten(features)
    found = tf.nest.flatten(inference_on_tpu(compute, inputs, *(batch_config or BatchConfig(1, 0, 0))))
    spec, outputs = kept[-1]
    values = iter(found)
    served = tf.nest.map_structure(lambda tensor: None if tensor is None else next(values), outputs)
    exports = {name: copy.copy(output) for name, output in (spec.export_outputs or {}).items()}
    for name, output in exports.items():
        vars(output).update(served["exports"][name])
    return spec._replace(predictions=served["predictions"], export_outputs=exports or None)
