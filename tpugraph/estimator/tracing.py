"""Traces input_fn and model_fn into one plain graph, at the global batch or as one of several replicas."""

from __future__ import annotations

import copy
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import gen_tpu_ops, resource_variable_ops
from tensorflow.python.platform import tf_logging
from tensorflow.python.tpu import feature_column, feature_column_v2, tpu_function

from tpugraph import ops
from tpugraph.analysis.step import EveryStep, InProcess
from tpugraph.estimator import inputs
from tpugraph.estimator.context import Batches, Deployment, TPUContext, WholeBatch
from tpugraph.estimator.embeddings import EmbeddingConfigSpec, active_spec, separate_tables, train_tables, with_lookups
from tpugraph.estimator.fixed_shapes import FixedShapes, is_open, measure, padded_batches, sequence_masks
from tpugraph.estimator.host_call import collect_batch_tensors, export_training_tensors, producers
from tpugraph.estimator.inputs import partitioned, to_dataset, to_tensors
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.specs import EstimatorSpec, ModeKeys, TPUEstimatorSpec, plain_spec
from tpugraph.estimator.tpu_config import InputPipelineConfig
from tpugraph.estimator.user_functions import (
    call_input_fn,
    call_model_fn,
    name_of,
    takes,
    watch_batch_size,
    with_extras,
)
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.walks import reached
from tpugraph.ops import OF_REPLICAS
from tpugraph.runtime.tpu_op_fallback import refuse_replica_ids
from tpugraph.support.errors import ArgumentError, ArgumentTypeError
from tpugraph.support.process import replaced
from tpugraph.support.wording import counted

tf1 = tf.compat.v1


def reset_layer_names() -> None:
    """Resets Keras 3's counters of layer names, which are per process, so that each trace names its variables alike."""
    reset = getattr(sys.modules.get("keras.src.utils.naming"), "reset_uids", None)
    if reset is not None:
        reset()


class OpenGraph(tf.Graph):  # type: ignore[misc]
    """A graph that Scaffold.finalize leaves open: hooks of a second training may add to it."""

    def finalize(self) -> None:
        pass


@contextmanager
def tensorflow_1_ops() -> Iterator[None]:
    """Traces TF1 control flow and resource variables, as TPUEstimator did, whatever the program has switched on.

    A variable is true, as any object is: programs ask whether there is an average of one (``ema.average(v) or v``).
    """
    functional, resources = tf1.control_flow_v2_enabled(), tf1.resource_variables_enabled()
    tf1.disable_control_flow_v2()
    tf1.enable_resource_variables()
    try:
        with replaced(resource_variable_ops.BaseResourceVariable, "__bool__", lambda self: True):
            yield
    finally:
        if functional:
            tf1.enable_control_flow_v2()
        if not resources:
            tf1.disable_resource_variables()


@contextmanager
def replica_scope(count: int) -> Iterator[None]:
    """Traces a model as one of ``count`` replicas, which ``get_tpu_context().number_of_shards`` reports.

    Of one replica, ``cross_replica_sum`` is the identity and ``xla.replica_id`` is 0. The columns of ``tf.tpu.experimental``
    look up variables of the model, as they do without a TPU.
    """
    with ExitStack() as stack:
        stack.enter_context(tpu_function.tpu_shard_context(count))
        for module in (feature_column, feature_column_v2):
            stack.enter_context(replaced(module, "_is_running_on_cpu", lambda: True))
        if count == 1:
            # every public name of the sum calls this one
            stack.enter_context(replaced(gen_tpu_ops, "cross_replica_sum", _same))
            stack.enter_context(replaced(xla, "replica_id", lambda name="replica_id": tf.constant(0, name=name)))
        yield


def _same(x: Any, group_assignment: Any = None, name: Any = None) -> Any:
    return tf.identity(x, name=name)


_DIFFER_BY_TRACE = frozenset({"metadata", "_output_shapes"})  # attributes
_QUOTED = re.compile(r'(?<=")[^"\\]+(?=")')


def fingerprint(graph_def: Any) -> bytes:
    """A digest of a GraphDef, equal for two traces of one function: functions are numbered by their first call.

    A ``py_func`` has a token of its own in each trace, so a graph with one never has the same digest twice.
    """
    bodies = {function.signature.name: function for function in graph_def.library.function}
    called: dict[str, str] = {}
    digest = hashlib.sha256()

    def number(match: re.Match[str]) -> str:
        return called.setdefault(match[0], f"function_{len(called)}") if match[0] in bodies else match[0]

    def add(nodes: Any) -> None:
        for node in nodes:
            rest = type(node)()
            rest.CopyFrom(node)
            rest.ClearField("experimental_debug_info")
            for key in sorted(node.attr):
                is_tensor = node.attr[key].HasField("tensor")
                if is_tensor:
                    digest.update(node.attr[key].SerializeToString(deterministic=True))
                if is_tensor or key in _DIFFER_BY_TRACE:
                    del rest.attr[key]
            digest.update(_QUOTED.sub(number, str(rest)).encode())

    add(graph_def.node)
    done = 0
    while done < len(called):  # a function's body may call more of them
        function = bodies[list(called)[done]]
        done += 1
        digest.update(str([(a.name, a.type) for a in function.signature.input_arg]).encode())
        add(function.node_def)
        digest.update(str(sorted(function.ret.items())).encode())
    return digest.digest()


@dataclass(frozen=True)
class Request:
    model_fn: Callable[..., Any]
    input_fn: Callable[..., Any]
    mode: str
    params: Any
    config: RunConfig
    plan: Batches  # the batch sizes
    one_program: bool = False  # trace at the global batch, which the compiler splits over the cores
    input_mode: int = InputPipelineConfig.PER_HOST_V1  # an InputPipelineConfig value
    batch_axis: Any = None  # the batch dimension of features and labels, or None
    fixed_batch_size: bool = False  # in evaluation and prediction on cores, put the batch size into the shapes
    plain: bool = False  # the functions get the user's params alone, as those of a plain Estimator do
    on_tpu: bool = False  # the estimator asks for cores in this mode: only then params have a context
    serves_on_tpu: bool = False  # export a graph for TPUs
    embeddings: EmbeddingConfigSpec | None = None  # tables kept apart on cores, or None
    # the fixed shapes of the estimator's inputs on cores, each with its function and mode; appended to
    measured: list[tuple[Any, str, FixedShapes]] = field(default_factory=list)

    @property
    def shapes(self) -> FixedShapes | None:
        """The fixed shapes of the input, where it was measured."""
        known = (shapes for of, mode, shapes in self.measured if (of, mode) == (self.input_fn, self.mode))
        return next(known, None) if self.plan.cores else None

    @property
    def rows(self) -> int | None:
        """The batch size that the model is traced with."""
        return self.plan.global_batch if self.one_program else self.plan.per_core

    @property
    def replicas(self) -> int:
        """The number of replicas that the model is traced as one of."""
        return max(self.plan.cores, 1) if self.mode == ModeKeys.TRAIN and not self.one_program else 1


@dataclass
class Traced:
    """A plain graph with the spec of its model."""

    graph: Any  # the tf.Graph; Python functions that it calls live as long as it does
    spec: EstimatorSpec
    scaffold: Any
    plan: Batches  # the batch sizes
    reads: int  # elements of the input that a step reads
    source: str  # origin in error messages
    metrics: Any = None  # of an evaluation: the op that updates them, and their values by name
    reads_batch_size: bool = True  # whether the model function may have read params['batch_size']
    host_call: Any = None  # of training and evaluation on cores, (function, tensors)
    every_step: tuple[str, ...] = ()  # names of the summaries that export these tensors in training
    # tags and names of the tensors that export them in an evaluation
    collected: dict[str, str] = field(default_factory=dict)
    has_tables: bool = False  # whether the model has an EmbeddingConfigSpec in use
    # the placeholders of the input by name, each with what a hook fed it, or None
    feeds: dict[str, Any] = field(default_factory=dict)
    parts: Mapping[tuple[int, ...], Sequence[int]] = field(default_factory=dict)  # see TracedInput
    final: bool = False

    @property
    def loss(self) -> str:
        return str(self.spec.loss.name)

    @property
    def train_op(self) -> str:
        op = self.spec.train_op
        return str(op.name if isinstance(op, tf.Operation) else op.op.name)

    @cached_property
    def counts_steps(self) -> bool:
        """Whether the train op changes the global step."""
        run = reached((self.graph.get_operation_by_name(self.train_op),), producers)
        ends = [op.inputs[i].op for op in run if op.type in ops.WRITES for i in ops.WRITES[op.type].variables]
        step = tf1.train.get_global_step(self.graph)
        return step.op in reached(ends, lambda op: [t.op for t in op.inputs[:1]])  # behind the switches of a condition

    @property
    def keep(self) -> int:
        """How many checkpoints the saver of the finalized scaffold keeps; all when 0."""
        return int(self.scaffold.saver.saver_def.max_to_keep)

    @property
    def replicated(self) -> bool:
        """Whether the model combines its replicas itself, or asks for its replica id."""
        return any(op.type in OF_REPLICAS for op in self.graph.get_operations())

    def finalize(self) -> None:
        """Finalizes the scaffold, once; what hooks made before is initialised and saved as well."""
        if not self.final:
            with self.graph.as_default():
                self.scaffold.finalize()
        self.final = True

    def graph_def(self) -> Any:
        """The graph, with a constant in place of each placeholder of the input that a hook fed."""
        found = self.graph.as_graph_def(add_shapes=True)
        for node in found.node:
            if (value := self.feeds.get(node.name)) is not None:
                node.op = "Const"
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, node.attr["dtype"].type))
                node.attr.pop("shape")
        return found

    def to_graph(self) -> Graph:
        graph = graphdef.from_graph_def(self.graph_def(), source=self.source)
        keys = tf1.GraphKeys
        for key in (keys.TRAINABLE_VARIABLES, keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.GLOBAL_STEP):
            graph.collections[key] = [v.op.name for v in self.graph.get_collection(key)]
        graph.keep(InProcess())
        graph.keep(EveryStep(self.every_step))
        return graph


@dataclass(frozen=True)
class TracedInput:
    """A graph with the input, before the model is traced."""

    graph: Any
    features: Any
    labels: Any
    at_global: bool  # whether features and labels are the global batch, whatever was asked for
    fingerprint: bytes  # see fingerprint()
    is_dataset: bool = False  # whether the input function returned a Dataset, or tensors that became one
    ops: frozenset[str] = frozenset()  # names of the ops of the input
    placeholders: tuple[str, ...] = ()  # names of those that a hook has to feed
    # of input_partition_dims, by the shape of an example, the parts of each dimension of a batch
    parts: Mapping[tuple[int, ...], Sequence[int]] = field(default_factory=dict)


def trace_serving(request: Request) -> tuple[TracedInput, Any]:
    """Calls a serving input function in a new graph; returns the input and the receiver."""
    graph = OpenGraph()
    with graph.as_default(), tensorflow_1_ops():
        tf1.set_random_seed(request.config.tf_random_seed)
        tf1.train.create_global_step(graph)
        receiver = request.input_fn()
    if not hasattr(receiver, "receiver_tensors"):
        raise ArgumentTypeError(f"serving_input_receiver_fn returned {receiver!r}, which is no receiver",
                                fix="return tpugraph.export.ServingInputReceiver(features, receiver_tensors)")  # fmt: skip
    return TracedInput(graph, receiver.features, getattr(receiver, "labels", None), False, b""), receiver


def trace_model(request: Request, fed: TracedInput) -> Traced:
    """Calls the model function in the graph of its input."""
    plan, config = request.plan, request.config
    reset_layer_names()
    shards = nullcontext() if request.serves_on_tpu else replica_scope(request.replicas)
    masks = sequence_masks(request.shapes.longest if request.shapes else {})
    with fed.graph.as_default(), tensorflow_1_ops(), shards, tf1.device(config.device_fn), masks:
        params = watch_batch_size(params_of(request, plan.global_batch if fed.at_global else request.rows))
        embeddings = active_spec(request.embeddings, plan.cores)
        with separate_tables(embeddings) as tables:
            features = with_lookups(embeddings, tables, fed.features)
            given = call_model_fn(request.model_fn, features, fed.labels, request.mode, params, config)
        spec, host_call = _on_cores(given, request) if plan.cores else (plain_spec(given), None)
        trains = request.mode == ModeKeys.TRAIN
        if trains and embeddings is not None:
            spec = spec._replace(train_op=train_tables(embeddings, tables, spec.loss, spec.train_op))
        every_step: list[str] = []
        if trains and host_call is not None:
            every_step, train_op = export_training_tensors(host_call, spec.train_op)
            spec = spec._replace(train_op=train_op)
        collected = collect_batch_tensors(host_call) if not trains and host_call is not None else {}
        if not plan.cores:
            refuse_replica_ids(fed.graph.get_operations())
        for name, value in (("loss", spec.loss), ("train_op", spec.train_op)):
            if value is not None and value.graph is not fed.graph:
                raise ArgumentError(f"the {name} of model_fn '{name_of(request.model_fn)}' was made in another graph",
                                    fix="make the whole model inside model_fn")  # fmt: skip
        scaffold = _scaffold(spec, config)
        summaries = [summary.op.name for summary in tf1.get_collection(tf1.GraphKeys.SUMMARIES)]
        if trains and "loss" not in summaries:
            tf1.summary.scalar("loss", spec.loss)
    source = f"model_fn '{name_of(request.model_fn)}'"
    asked = takes(request.model_fn, "params") and getattr(params, "reads_batch_size", True)
    return Traced(fed.graph, spec, scaffold, plan, request.replicas, source, reads_batch_size=asked,
                  host_call=host_call, every_step=tuple(every_step), collected=collected,
                  has_tables=embeddings is not None, feeds=dict.fromkeys(fed.placeholders), parts=fed.parts)  # fmt: skip


def _on_cores(given: EstimatorSpec | TPUEstimatorSpec, request: Request) -> tuple[EstimatorSpec, Any]:
    """The plain spec of a model for cores, and the host call, which runs beside it."""
    if not request.plain and getattr(given, "training_chief_hooks", None):
        raise ArgumentError("training_chief_hooks returned by EstimatorSpec is not supported in TPUEstimator",
                            fix="training_hooks, or tpugraph.Estimator")  # fmt: skip
    if request.mode == ModeKeys.PREDICT or not isinstance(given, TPUEstimatorSpec):
        return plain_spec(given), None
    return plain_spec(given._replace(host_call=None)), given.host_call


def params_of(request: Request, rows: int | None, deployment: Deployment | None = None) -> Any:
    """The params of a model function, or, with a deployment, of a call of an input function."""
    plan = request.plan
    if request.plain:
        return {} if request.params is None else copy.deepcopy(request.params)
    spanned = request.config.tpu_config.num_cores_per_replica or 1
    as_one = request.one_program and deployment is None
    hosts, cores = (1, 1) if as_one else (plan.hosts, max(plan.cores, 1))
    context = TPUContext(hosts, cores, deployment, spanned) if request.on_tpu or request.serves_on_tpu else None
    use_tpu = bool(plan.cores) or request.serves_on_tpu
    if deployment is None and plan.cores and rows is not None and rows == plan.global_batch:
        rows = WholeBatch(rows)
        rows.per_core = plan.per_core
    return with_extras(request.params, batch_size=rows, use_tpu=use_tpu, context=context)


def _scaffold(spec: EstimatorSpec, config: RunConfig) -> Any:
    """The user's scaffold or a new one, with a saver as the configuration says."""
    scaffold = spec.scaffold or tf1.train.Scaffold()
    if scaffold.saver is None and not tf1.get_collection(tf1.GraphKeys.SAVERS):
        saver = tf1.train.Saver(
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            defer_build=True,
            save_relative_paths=True,
        )
        tf1.add_to_collection(tf1.GraphKeys.SAVERS, saver)
    return initialising_all(scaffold)


def initialising_all(scaffold: Any) -> Any:
    """A scaffold whose ``local_init_op`` runs the user's and initialises all other local variables, tables and inputs."""
    given = scaffold.local_init_op
    if given is None:  # that of Scaffold.finalize does
        return scaffold
    given = tf.group(given)  # it may be a tensor, or a variable that it assigns
    known = reached((given,), producers)
    others = [variable for variable in tf1.local_variables() if variable.initializer not in known]
    whole = tf.group(given, tf1.variables_initializer(others), tf1.tables_initializer())
    return tf1.train.Scaffold(local_init_op=whole, copy_from_scaffold=scaffold)


def trace_input(request: Request) -> TracedInput:
    """Calls the input function in a new graph.

    Tensors become a Dataset, unless they come from queues, which the host cannot split: then the function is called once more,
    for the batch that the model is traced with; at one core's batch, core r of step t takes batch N t + r.
    """
    plan = request.plan
    found = _trace_input(request, plan.per_host) or _trace_input(request, request.rows)
    assert found is not None
    dims = request.config.tpu_config.input_partition_dims
    if plan.cores and dims is not None:
        spanned = request.config.tpu_config.num_cores_per_replica
        found = replace(found, parts=partitioned(dims, found.features, found.labels, spanned))
    return found


def trace_training(request: Request, fed: TracedInput) -> Traced:
    """Traces a model for training on cores: at the global batch, unless it combines its replicas itself.

    A model function is called as one of several replicas first, as its programs are written. If it neither combines replicas
    nor asks for its replica id, it is called again, for the global batch.
    """
    plan = request.plan
    request = replace(request, one_program=request.one_program or fed.at_global)
    try:
        traced = trace_model(request, fed)
    except Exception as error:
        if request.replicas > 1:
            error.add_note(
                f"model_fn was given {counted(request.rows or 0, 'row')}, those of one core: a program for TPUEstimator may combine "
                f"its replicas itself, so that each of the {plan.cores} cores has its part of the {plan.global_batch} rows. One that "
                "needs all of them in one place, as a grid of images does, trains with TPUConfig(num_shards=1) or use_tpu=False"
            )
        raise
    if request.one_program or request.replicas == 1 or traced.replicated:
        return traced
    if (plan.global_batch or 0) % plan.cores:  # the same batch for each core, which one of them computes
        plan = replace(plan, cores=1)
    request = replace(request, one_program=True, plan=plan)
    return trace_model(request, trace_input(request))


def _trace_input(request: Request, rows: int | None) -> TracedInput | None:
    """None where the input is tensors of queues, which the host would have to split."""
    plan, config = request.plan, request.config
    graph = OpenGraph()
    with graph.as_default(), tensorflow_1_ops(), tf1.device(config.device_fn):
        tf1.set_random_seed(config.tf_random_seed)
        tf1.train.create_global_step(graph)
        with padded_batches(request.shapes, measures=bool(plan.cores)) as noted:
            returned, is_dataset = _call_for_hosts(request, rows)
        if plan.cores and is_dataset and _measure_if_open(request, returned, noted):
            return _trace_input(request, rows)
        at_global = False
        if is_dataset:
            open_rows = bool(plan.cores) and request.mode != ModeKeys.TRAIN and not request.fixed_batch_size
            closed = returned if request.shapes is None else request.shapes.close(returned)
            returned = inputs.next_element(_for_cores(request, closed), open_rows=open_rows)
        elif plan.cores:
            if plan.cores > 1 and rows != request.rows:
                return None
            at_global = plan.cores > 1 and inputs.batch_size_of(returned) == plan.global_batch
        features, labels = inputs.split_labels(returned)
        if request.mode == ModeKeys.PREDICT:
            labels = None
    names = frozenset(op.name for op in graph.get_operations())
    digest = fingerprint(graph.as_graph_def())
    placeholders = tuple(op.name for op in graph.get_operations() if op.type in ops.PLACEHOLDERS)
    if placeholders or graph.get_collection(tf1.GraphKeys.QUEUE_RUNNERS):
        digest += os.urandom(8)  # a hook feeds tensors of this very graph, or its queues end with their first reading
    return TracedInput(graph, features, labels, at_global, digest, is_dataset, names, placeholders)


def _measure_if_open(request: Request, dataset: Any, noted: Any) -> bool:
    """Measures an input of open shapes, unless that was done before; returns whether it did."""
    graph = tf1.get_default_graph()
    fed = request.batch_axis is not None or any(op.type in ops.PLACEHOLDERS for op in graph.get_operations())
    if fed or request.shapes is not None or not (noted or is_open(dataset)):
        return False
    if request.mode != ModeKeys.TRAIN and not noted:
        # what the first batches have in common, another reading of an endless input may not
        inputs.check_static(dataset)
    config = request.config
    found = measure(dataset, noted, config.tpu_config.max_ids, config.session_config)
    request.measured.append((request.input_fn, request.mode, found))
    return True


def _for_cores(request: Request, dataset: Any) -> Any:
    """The Dataset of the batches that are read: global ones, or those of core after core."""
    plan = request.plan
    if not plan.cores:
        return dataset
    if request.mode != ModeKeys.TRAIN:
        inputs.check_static(dataset)
        fixed = request.fixed_batch_size
        shares = inputs.evaluation_batches(dataset, plan, fixed=fixed, drop=fixed and request.mode == ModeKeys.EVAL)
    elif request.input_mode == InputPipelineConfig.BROADCAST and not request.one_program:
        shares = inputs.repeat_per_core(dataset, plan)
    else:
        shares = inputs.rebatch(dataset, request.rows, plan, request.batch_axis)
    return shares.prefetch(2 if request.one_program else 2 * plan.cores)


def _call_for_hosts(request: Request, rows: int | None) -> tuple[Any, bool]:
    """Calls the input function; returns a Dataset of what it returned if possible, and whether it is one.

    The function is called once per core or host as the input mode says; for further hosts only if it asks for its host, or
    returns tensors.
    """
    plan = request.plan
    calls = plan.hosts
    if request.input_mode == InputPipelineConfig.BROADCAST:
        calls = 1
    elif request.input_mode == InputPipelineConfig.PER_SHARD_V1:
        calls = plan.cores

    def call(index: int) -> tuple[Any, bool]:
        count = max(calls, 1)
        host, cores_of_call = index * plan.hosts // count, max(plan.cores // count, 1)
        params = params_of(request, rows, Deployment(host, index, count, cores_of_call))
        found = call_input_fn(request.input_fn, request.mode, params, request.config)
        inputs.check_returned(found, request.input_mode)
        asked = getattr(params, "context", None) or (params.get("context") if isinstance(params, dict) else None)
        return found, bool(asked and asked.asked)

    returned, asked = call(0)
    if not plan.cores:
        return returned, inputs.is_dataset(returned)
    is_dataset = inputs.is_dataset(returned)
    ends = is_dataset or any(op.type in ops.INPUTS for op in tf1.get_default_graph().get_operations())
    first = _dataset(returned) if ends or request.mode != ModeKeys.PREDICT else None  # predictions end with their data
    if first is None:
        if tf1.get_collection(tf1.GraphKeys.QUEUE_RUNNERS):
            tf_logging.warn("Input pipeline contains one or more QueueRunners. It could be slow and not scalable. "
                            "Please consider converting your input pipeline to use `tf.data` instead.")  # fmt: skip
        return to_tensors(returned), False
    if calls == 1 or (is_dataset and not asked):
        return first, True
    every = [first, *(_dataset(call(index)[0]) for index in range(1, calls))]
    return tf.data.Dataset.choose_from_datasets(every, tf.data.Dataset.range(calls).repeat()), True


def _dataset(returned: Any) -> Any:
    """A Dataset of what the input function returned; None for tensors of a queue."""
    if inputs.is_dataset(returned):
        return returned
    features, labels = inputs.split_labels(to_tensors(returned))
    return to_dataset(features if labels is None else (features, labels))
