"""Tracing of inputs: what an input function returns becomes the input of a step, in a graph without a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf
from tensorflow.python.platform import tf_logging

from tpugraph.estimator import inputs
from tpugraph.estimator.context import Deployment
from tpugraph.estimator.fingerprint import fingerprint
from tpugraph.estimator.input_partition import check_partition
from tpugraph.estimator.modes import ModeKeys
from tpugraph.estimator.tensor_inputs import as_tensors, dataset_of
from tpugraph.estimator.tpu_config import InputPipelineConfig
from tpugraph.estimator.tracing import Fed, Request, Traced, params_of, trace_model
from tpugraph.estimator.tracing_rules import OpenGraph, placed, tensorflow_1_graphs
from tpugraph.estimator.user_functions import call_input_fn
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1


def trace_input(request: Request) -> Fed:
    """Call the input function in a new graph, as often and for as many rows as the input mode says.

    Tensors become a Dataset, unless they come from queues: those cannot be split by the host, so that the function is called
    once more, for the batch that the model is traced with; of one core's, core r of step t takes batch N t + r.

    Raises:
        ArgumentError, ArgumentTypeError: what the function takes or returns cannot be used.
    """
    plan = request.plan
    found = _trace_input(request, plan.host)
    if found is None:
        found = _trace_input(request, request.rows)
    assert found is not None
    dims = request.config.tpu_config.input_partition_dims
    if plan.cores and dims is not None:
        check_partition(dims, found.features, found.labels, request.config.tpu_config.num_cores_per_replica)
    return found


def trace_training(request: Request, fed: Fed) -> Traced:
    """Trace a model for training on cores: at the global batch, unless it combines its replicas itself.

    A model function of TPUEstimator is called as one replica of several first, as its programs are written. Where it neither
    combines the replicas nor asks which of them it is, it is called again, for the whole batch.

    Args:
        request: what to trace.
        fed: its input.
    """
    plan = request.plan
    request = replace(request, whole=request.whole or fed.at_global)
    traced = trace_model(request, fed)
    if request.whole or request.replicas == 1 or traced.replicated:
        return traced
    if (plan.whole or 0) % plan.cores:  # the same batch for each core, which one of them computes
        plan = replace(plan, cores=1)
    whole = replace(request, whole=True, plan=plan)
    return trace_model(whole, trace_input(whole))


def _trace_input(request: Request, rows: int | None) -> Fed | None:
    """The input for ``rows``; None where it consists of queues' tensors that the host would have to split."""
    plan, config = request.plan, request.config
    graph = OpenGraph()
    with graph.as_default(), tensorflow_1_graphs(), placed(config):
        tf1.set_random_seed(config.tf_random_seed)
        tf1.train.create_global_step(graph)
        returned, is_dataset = _call_for_hosts(request, rows)
        at_global = False
        if is_dataset:
            open_rows = bool(plan.cores) and request.mode != ModeKeys.TRAIN and not request.fixed_rows
            returned = inputs.next_of(_for_cores(request, returned), open_rows=open_rows)
        elif plan.cores:
            if plan.cores > 1 and rows != request.rows:
                return None
            at_global = plan.cores > 1 and inputs.rows_of(returned) == plan.whole
        features, labels = inputs.split(returned)
        if request.mode == ModeKeys.PREDICT:
            labels = None
    names = frozenset(op.name for op in graph.get_operations())
    return Fed(graph, features, labels, at_global, fingerprint(graph.as_graph_def()), is_dataset, names)


def _for_cores(request: Request, dataset: Any) -> Any:
    """The Dataset whose elements are the batches that are read: whole, or of core after core; as it is without cores."""
    plan = request.plan
    if not plan.cores:
        return dataset
    if request.mode != ModeKeys.TRAIN:
        _check_shapes(dataset)
        fixed = request.fixed_rows
        shares = inputs.every_row(dataset, plan, fixed=fixed, drop=fixed and request.mode == ModeKeys.EVAL)
    elif request.input_mode == InputPipelineConfig.BROADCAST and not request.whole:
        shares = inputs.same_for_all(dataset, plan)
    else:
        shares = inputs.of_rows(dataset, request.rows, plan, request.batch_axis)
    return shares.prefetch(2 if request.whole else 2 * plan.cores)


def _check_shapes(dataset: Any) -> None:
    """Refuse open shapes where nothing else can be done: without cores, an input without an end is not evaluated."""
    try:
        inputs.check_static(dataset.element_spec)
    except ArgumentError:
        if inputs.is_endless(dataset):
            raise


def _call_for_hosts(request: Request, rows: int | None) -> tuple[Any, bool]:
    """What the input function returns, and whether that is a Dataset, which tensors become for cores.

    It is called once for each core or host where the input mode says so; for hosts it is called again only where it asks
    which host it is called for, or returns tensors.
    """
    plan, per_core = request.plan, request.input_mode == InputPipelineConfig.PER_SHARD_V1
    calls = 1 if request.input_mode == InputPipelineConfig.BROADCAST else plan.cores if per_core else plan.hosts

    def call(index: int) -> tuple[Any, bool]:
        where = Deployment(
            index * plan.hosts // max(calls, 1), index, max(calls, 1), max(plan.cores // max(calls, 1), 1)
        )
        params = params_of(request, rows, where)
        found = call_input_fn(request.input_fn, request.mode, params, request.config)
        inputs.check_kind(found, request.input_mode)
        asked = getattr(params, "context", None) or (params.get("context") if isinstance(params, dict) else None)
        return found, bool(asked and asked.asked)

    returned, asked = call(0)
    if not plan.cores:
        return returned, inputs.is_dataset(returned)
    is_dataset = inputs.is_dataset(returned)
    first = None if request.mode == ModeKeys.PREDICT and not is_dataset else _dataset(returned)
    if first is None:
        _warn_of_queues()
        return as_tensors(returned), False
    if calls == 1 or (is_dataset and not asked):
        return first, True
    every = [first, *(_dataset(call(index)[0]) for index in range(1, calls))]
    return tf.data.Dataset.choose_from_datasets(every, tf.data.Dataset.range(calls).repeat()), True


def _warn_of_queues() -> None:
    """Say, where the input is fed by threads of Python, what the original says of that."""
    if tf1.get_collection(tf1.GraphKeys.QUEUE_RUNNERS):
        tf_logging.warn(
            "Input pipeline contains one or more QueueRunners. It could be slow and not scalable. "
            "Please consider converting your input pipeline to use `tf.data` instead."
        )


def _dataset(returned: Any) -> Any:
    """What an input function returned as a Dataset; None where it is tensors of a queue."""
    if inputs.is_dataset(returned):
        return returned
    features, labels = inputs.split(as_tensors(returned))
    return dataset_of(features if labels is None else (features, labels))
