"""Tracing: input_fn and model_fn become one plain graph, at the global batch or as one replica of several."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tpugraph.analysis.step import EveryStep, InProcess
from tpugraph.estimator.context import Batches, Deployment, TPUContext
from tpugraph.estimator.embedding_lookups import with_lookups
from tpugraph.estimator.embedding_spec import EmbeddingConfigSpec
from tpugraph.estimator.embedding_tables import in_use, kept_apart, train_tables
from tpugraph.estimator.host_call import leave_batches, leave_cores
from tpugraph.estimator.modes import ModeKeys
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.specs import EstimatorSpec, TPUEstimatorSpec, plain_spec
from tpugraph.estimator.tensorflow_collectives import replicas
from tpugraph.estimator.tpu_config import InputPipelineConfig
from tpugraph.estimator.tracing_rules import OpenGraph, count_layers_anew, placed, tensorflow_1_graphs
from tpugraph.estimator.user_functions import call_model_fn, name_of, takes, watched, with_extras
from tpugraph.ir import Graph, graphdef
from tpugraph.ops import OF_REPLICAS
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


@dataclass(frozen=True)
class Request:
    """What to trace.

    Attributes:
        model_fn: the model function.
        input_fn: the input function.
        mode: a ModeKeys value.
        params: the user's params.
        config: the run configuration.
        plan: the batch sizes.
        whole: whether the model is traced at the global batch, for as many cores as the compiler splits it over.
        input_mode: an InputPipelineConfig value.
        batch_axis: of each part of the input the dimension of its batch, or None.
        fixed_rows: of evaluation and prediction on cores: whether the batch has a fixed number of rows in the graph.
        serves_on_tpu: whether the model is traced for an export whose computation a TPU runs.
        embeddings: the tables that are kept apart on cores, or None.
        plain: whether the functions get the user's params alone, as those of a plain Estimator do.
    """

    model_fn: Callable[..., Any]
    input_fn: Callable[..., Any]
    mode: str
    params: Any
    config: RunConfig
    plan: Batches
    whole: bool = False
    input_mode: int = InputPipelineConfig.PER_HOST_V1
    batch_axis: Any = None
    fixed_rows: bool = False
    plain: bool = False
    serves_on_tpu: bool = False
    embeddings: EmbeddingConfigSpec | None = None

    @property
    def rows(self) -> int | None:
        """The rows of the batch that the model is traced with."""
        return self.plan.whole if self.whole else self.plan.core

    @property
    def replicas(self) -> int:
        """As one of how many replicas the model is traced: replicas combine what they hold in training."""
        return max(self.plan.cores, 1) if self.mode == ModeKeys.TRAIN and not self.whole else 1


@dataclass
class Traced:
    """A plain graph with the spec of its model.

    Attributes:
        graph: the ``tf.Graph``; Python functions that it calls live as long as it does.
        spec: loss, train op and the rest.
        scaffold: the user's, or one of ours.
        plan: the batch sizes.
        reads: how many elements of the input are read in a step.
        source: where the graph comes from, for messages.
        metrics: of an evaluation: the op that updates them, and their values by name.
        asked_rows: whether the model function may know the batch size from its params.
        host_call: of training and evaluation on cores the function that runs on the host in each step, and its tensors.
        every_step: the names of the summaries by which these tensors leave the cores in training.
        collected: of an evaluation by tag the names of the tensors by which they do.
        has_tables: whether the model has tables of an EmbeddingConfigSpec.
    """

    graph: Any
    spec: EstimatorSpec
    scaffold: Any
    plan: Batches
    reads: int
    source: str
    metrics: Any = None
    asked_rows: bool = True
    host_call: Any = None
    every_step: tuple[str, ...] = ()
    collected: dict[str, str] = field(default_factory=dict)
    has_tables: bool = False

    @property
    def loss(self) -> str:
        """Name of the loss tensor."""
        return str(self.spec.loss.name)

    @property
    def train_op(self) -> str:
        """Name of the train op."""
        op = self.spec.train_op
        return str(op.name if isinstance(op, tf.Operation) else op.op.name)

    @property
    def keep(self) -> int:
        """How many of the newest checkpoints the saver of the finalized scaffold keeps; all when 0."""
        return int(self.scaffold.saver.saver_def.max_to_keep)

    @property
    def replicated(self) -> bool:
        """Whether the model combines its replicas itself, or asks which of them it is."""
        return any(op.type in OF_REPLICAS for op in self.graph.get_operations())

    def to_graph(self) -> Graph:
        """The graph for the compiler."""
        graph = graphdef.from_graph_def(self.graph.as_graph_def(add_shapes=True), source=self.source)
        keys = tf1.GraphKeys
        for key in (keys.TRAINABLE_VARIABLES, keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.GLOBAL_STEP):
            graph.collections[key] = [v.op.name for v in self.graph.get_collection(key)]
        graph.keep(InProcess())
        graph.keep(EveryStep(self.every_step))
        return graph


@dataclass(frozen=True)
class Fed:
    """A graph that holds the input, and no model yet.

    Attributes:
        graph: the ``tf.Graph``.
        features: what the input function gave as features.
        labels: what it gave as labels, or None.
        at_global: whether these are the rows of all cores, whatever was asked for.
        fingerprint: equal for two inputs that read the same in the same way.
        is_dataset: whether the input function returned a Dataset, or tensors that became one.
        ops: the names of the ops of the input.
    """

    graph: Any
    features: Any
    labels: Any
    at_global: bool
    fingerprint: bytes
    is_dataset: bool = False
    ops: frozenset[str] = frozenset()


def trace_serving(request: Request) -> tuple[Fed, Any]:
    """Call a serving input function in a new graph; returns the input, and the receiver that it gave.

    Raises:
        ArgumentTypeError: it gave no receiver.
    """
    graph = OpenGraph()
    with graph.as_default(), tensorflow_1_graphs():
        tf1.set_random_seed(request.config.tf_random_seed)
        tf1.train.create_global_step(graph)
        receiver = request.input_fn()
    if not hasattr(receiver, "receiver_tensors"):
        raise ArgumentTypeError(
            f"serving_input_receiver_fn returned {receiver!r}, which is no receiver",
            fix="return tpugraph.export.ServingInputReceiver(features, receiver_tensors)",
        )
    return Fed(graph, receiver.features, getattr(receiver, "labels", None), False, b""), receiver


def trace_model(request: Request, fed: Fed) -> Traced:
    """Call the model function on an input, in the graph of that input.

    Raises:
        ArgumentError, ArgumentTypeError: what the function takes or returns cannot be used.
    """
    plan, config = request.plan, request.config
    count_layers_anew()
    shards = nullcontext() if request.serves_on_tpu else replicas(request.replicas)
    with fed.graph.as_default(), tensorflow_1_graphs(), shards, placed(config):
        params = watched(params_of(request, plan.whole if fed.at_global else request.rows))
        embeddings = in_use(request.embeddings, plan.cores)
        with kept_apart(embeddings) as tables:
            features = with_lookups(embeddings, tables, fed.features)
            given = call_model_fn(request.model_fn, features, fed.labels, request.mode, params, config)
        spec, host_call = _on_cores(given, request) if plan.cores else (plain_spec(given), None)
        trains = request.mode == ModeKeys.TRAIN
        if trains and embeddings is not None:
            spec = spec._replace(train_op=train_tables(embeddings, tables, spec.loss, spec.train_op))
        every_step = leave_cores(host_call) if trains and host_call is not None else []
        collected = leave_batches(host_call) if not trains and host_call is not None else {}
        _check_here(spec, fed.graph, request)
        scaffold = _scaffold(spec, config)
        summaries = [summary.op.name for summary in tf1.get_collection(tf1.GraphKeys.SUMMARIES)]
        if trains and "loss" not in summaries:
            tf1.summary.scalar("loss", spec.loss)
    source = f"model_fn '{name_of(request.model_fn)}'"
    asked = takes(request.model_fn, "params") and getattr(params, "asked_rows", True)
    return Traced(fed.graph, spec, scaffold, plan, request.replicas, source, asked_rows=asked,
                  host_call=host_call, every_step=tuple(every_step), collected=collected,
                  has_tables=embeddings is not None)  # fmt: skip


def _on_cores(given: EstimatorSpec | TPUEstimatorSpec, request: Request) -> tuple[EstimatorSpec, Any]:
    """The plain spec of a model for cores, and the host call of training or evaluation, which runs beside them."""
    if not request.plain and getattr(given, "training_chief_hooks", None):
        raise ArgumentError(
            "training_chief_hooks returned by EstimatorSpec is not supported in TPUEstimator",
            fix="training_hooks, or tpugraph.Estimator",
        )
    if request.mode == ModeKeys.PREDICT or not isinstance(given, TPUEstimatorSpec):
        return plain_spec(given), None
    return plain_spec(given._replace(host_call=None)), given.host_call


def params_of(request: Request, rows: int | None, deployment: Deployment | None = None) -> Any:
    """The params of an input function, whose call the deployment tells, or of a model function."""
    plan = request.plan
    if request.plain:
        return {} if request.params is None else copy.deepcopy(request.params)
    spanned = request.config.tpu_config.num_cores_per_replica or 1
    seen = (1, 1) if request.whole and deployment is None else (plan.hosts, max(plan.cores, 1))
    context = TPUContext(*seen, deployment, spanned)
    return with_extras(
        request.params, batch_size=rows, use_tpu=bool(plan.cores) or request.serves_on_tpu, context=context
    )


def _check_here(spec: EstimatorSpec, graph: Any, request: Request) -> None:
    for name in ("loss", "train_op"):
        value = getattr(spec, name)
        if value is not None and value.graph is not graph:
            raise ArgumentError(
                f"the {name} of model_fn '{name_of(request.model_fn)}' was made in another graph",
                fix="make the whole model inside model_fn",
            )


def _scaffold(spec: EstimatorSpec, config: RunConfig) -> Any:
    """The user's scaffold or a new one, with a saver that keeps as many checkpoints as the configuration says."""
    scaffold = spec.scaffold or tf1.train.Scaffold()
    if scaffold.saver is None and not tf1.get_collection(tf1.GraphKeys.SAVERS):
        saver = tf1.train.Saver(
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            defer_build=True,
            save_relative_paths=True,
        )
        tf1.add_to_collection(tf1.GraphKeys.SAVERS, saver)
    return scaffold
