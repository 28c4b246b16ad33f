"""Export: input receivers, export outputs, and the SavedModel of a trained model."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import tensorflow as tf
from tensorflow.python.saved_model.model_utils.export_utils import export_outputs_for_mode

from tpugraph.estimator.arguments import check_choice
from tpugraph.estimator.context import Batches
from tpugraph.estimator.models import PlainModel
from tpugraph.estimator.reporting import say
from tpugraph.estimator.specs import ModeKeys, flat_metrics
from tpugraph.estimator.tpu_serving import ExportSavedModelApiVersion, model_fn_inference_on_tpu
from tpugraph.estimator.tracing import Request, Traced, trace_model, trace_serving
from tpugraph.ir.session_config import guarded
from tpugraph.runtime.failures import first_words
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1
DEFAULT = tf1.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY


_Receiver = namedtuple("_Receiver", "features receiver_tensors receiver_tensors_alternatives")


class ServingInputReceiver(_Receiver):
    """What a serving input function returns.

    Args:
        features: a tensor (the model gets it under the key ``feature``) or a dict of them.
        receiver_tensors: the tensor, or dict of tensors, that is fed.
        receiver_tensors_alternatives: other tensors, or dicts, that may be fed, by a name: each gets a signature ``name:output``.
    """

    __slots__ = ()
    _named_features = True

    def __new__(cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None) -> Self:
        others = {} if receiver_tensors_alternatives is None else receiver_tensors_alternatives
        if not isinstance(others, Mapping):
            raise ArgumentTypeError(f"receiver_tensors_alternatives must be a dict, but is {others!r}")
        given = {"feature": features} if tf.is_tensor(features) and cls._named_features else features
        received, *more = (_named(fed) for fed in (receiver_tensors, *others.values()))
        fed_tensors = [pair for fed in (received, *more) for pair in fed.items()]
        for key, value in [*(("features", t) for t in tf.nest.flatten(given)), *fed_tensors]:
            if not tf.is_tensor(value):
                raise ArgumentTypeError(f"ServingInputReceiver: {key} must be a tensor, but is {value!r}")
        return super().__new__(cls, given, received, dict(zip(others, more, strict=True)))


class TensorServingInputReceiver(ServingInputReceiver):
    """A :class:`ServingInputReceiver` whose features are one tensor, which the model gets as it is."""

    __slots__ = ()
    _named_features = False

    def __new__(cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None) -> Self:
        if not tf.is_tensor(features):
            raise ArgumentTypeError(f"TensorServingInputReceiver: features must be a tensor, but is {features!r}")
        return super().__new__(cls, features, receiver_tensors, receiver_tensors_alternatives)


_Supervised = namedtuple("_Supervised", "features labels receiver_tensors")


class SupervisedInputReceiver(_Supervised):
    """What an input receiver function returns for export in the modes TRAIN and EVAL; each part is a tensor or a dict of them."""

    __slots__ = ()

    def __new__(cls, features: Any, labels: Any, receiver_tensors: Any) -> SupervisedInputReceiver:
        for name, part in (("features", features), ("labels", labels), ("receiver_tensors", receiver_tensors)):
            for value in tf.nest.flatten(part):
                if not tf.is_tensor(value):
                    raise ArgumentTypeError(f"SupervisedInputReceiver: {name} must be tensors, but has {value!r}")
        return super().__new__(cls, features, labels, _named(receiver_tensors))


def _named(fed: Any, name: str = "input") -> dict[str, Any]:
    return dict(fed) if isinstance(fed, Mapping) else {name: fed}


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A serving input function whose features are fed as they are.

    Args:
        features: example tensors, or tensor specs, by name; their first dimension is the batch.
        default_batch_size: None leaves the batch dimension open.
    """

    def receive() -> ServingInputReceiver:
        fed = _placeholders(features, "", default_batch_size)
        return ServingInputReceiver(dict(fed), fed)

    return receive


def _placeholders(given: Any, name: str, rows: int | None) -> Any:
    """A placeholder for an example tensor or tensor spec, or one for each of a dict; their first dimension is the batch."""
    if isinstance(given, Mapping):
        return {key: _placeholders(part, key, rows) for key, part in given.items()}
    return tf1.placeholder(given.dtype, [rows, *tf.TensorShape(given.shape).as_list()[1:]], name=name)


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A serving input function that is fed serialised ``tf.train.Example`` protos under the name ``examples``.

    Args:
        feature_spec: what ``tf.io.parse_example`` takes.
        default_batch_size: None leaves the batch dimension open.
    """

    def receive() -> ServingInputReceiver:
        serialized = tf1.placeholder(tf.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(tf.io.parse_example(serialized, dict(feature_spec)), {"examples": serialized})

    return receive


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """An input receiver function whose features and labels are fed as they are; arguments as for serving.

    Raises:
        ArgumentError: a feature and a label have the same name (a ``ValueError``).
    """
    if shared := _named(features).keys() & _named(labels, "label").keys():
        raise ArgumentError(f"features and labels are both called {sorted(shared)}", fix="rename one of them")

    def receive() -> SupervisedInputReceiver:
        x, y = _placeholders(features, "input", default_batch_size), _placeholders(labels, "label", default_batch_size)
        return SupervisedInputReceiver(x, y, {**_named(x), **_named(y, "label")})

    return receive


def signatures_of(mode: str, receiver: Any, traced: Traced) -> dict[str, Any]:
    """The signatures of a mode; one that serving does not support is left out with a warning."""
    spec = traced.spec
    metrics = flat_metrics(spec.eval_metric_ops)
    try:
        outputs = export_outputs_for_mode(
            mode, dict(spec.export_outputs or {}) or None, spec.predictions, spec.loss, metrics
        )
    except TypeError as error:
        raise ArgumentTypeError(str(error)) from error
    except ValueError as error:
        raise ArgumentError(str(error), fix=f"name it '{DEFAULT}'") from error
    others = getattr(receiver, "receiver_tensors_alternatives", {})
    fed = {"": receiver.receiver_tensors, **{f"{other}:": tensors for other, tensors in others.items()}}
    found = {}
    for start, (name, output) in itertools.product(fed, outputs.items()):
        try:
            found[start + name] = output.as_signature_def(fed[start])
        except ValueError as error:
            say(f"warning: the signature '{start}{name}' is left out: {str(error).splitlines()[0]}")
    if not found:
        raise ArgumentError(f"none of the export_outputs {sorted(outputs)} can be served", fix="add a PredictOutput")
    return found


def write_saved_model(
    made: Sequence[tuple[list[str], PlainModel, dict[str, Any]]], base: str, assets: Any, *, as_text: bool
) -> str:
    """Writes a SavedModel into a new folder below ``base``, which gets its name when it is complete.

    ``made`` has tags, model and signatures of each graph; the first one's session has the variables' values.
    """
    stamp = int(time.time())
    while Path(base, str(stamp)).exists():
        stamp += 1
    final, temporary = os.path.join(base, str(stamp)), os.path.join(base, f"temp-{stamp}")
    builder = tf1.saved_model.Builder(temporary)
    for tags, model, signature_map in made:
        with model.traced.graph.as_default():
            given = {
                "signature_def_map": signature_map,
                "assets_collection": tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
                "main_op": model.traced.scaffold.local_init_op,
                "saver": model.traced.scaffold.saver,
                "strip_default_attrs": True,
            }
            if model is made[0][1]:
                builder.add_meta_graph_and_variables(model.session, tags, **given)
            else:
                builder.add_meta_graph(tags, **given)
    builder.save(as_text)
    for name, source in (assets or {}).items():
        target = Path(temporary, "assets.extra", name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    os.rename(temporary, final)
    return final


_TAGS = {ModeKeys.PREDICT: "serve", ModeKeys.EVAL: "eval", ModeKeys.TRAIN: "train"}


@dataclass(frozen=True)
class Exports:
    """The graphs of an exported model."""

    cpu: bool = True  # a plain one
    tpu: bool = False  # for serving, one with the tags serve and tpu
    by_model: bool = False  # the model function calls inference_on_tpu itself (version V2)


def exports_of(cpu: bool, tpu: bool, version: Any) -> Exports:
    """The graphs that the ``export_*`` arguments of an estimator ask for."""
    name = getattr(version or ExportSavedModelApiVersion.V1, "name", None)
    check_choice("export_saved_model_api_version", name, ("V1", "V2"), why="see ExportSavedModelApiVersion")
    if not tpu and not cpu:
        raise ArgumentError("export_to_tpu and export_to_cpu are both False", fix="leave one of them True")
    return Exports(cpu, tpu, name == "V2")


def export_trained(request: Request, exports: Exports, checkpoint: str, base: str | os.PathLike[str],
                   assets: dict[str, str] | None, *, as_text: bool) -> str:  # fmt: skip
    """Traces the model behind its input receiver, restores a checkpoint and writes it."""
    request = replace(request, plan=Batches(0, None, None, None))  # the rows of a request are not known
    tag, wanted = _TAGS[request.mode], exports.tpu and request.mode == ModeKeys.PREDICT
    made: list[tuple[list[str], PlainModel, dict[str, Any]]] = []
    try:
        if exports.cpu or not wanted:
            made.append(([tag], *_model(request)))
        if wanted:
            found = _for_tpus(request, exports, alone=not made)
            made.extend([([tag, "tpu"], *found)] if found is not None else [])
        made[0][1].start(checkpoint)
        return write_saved_model(made, os.fsdecode(base), assets, as_text=as_text)
    finally:
        for _, model, _ in made:
            model.close()


def _model(request: Request) -> tuple[PlainModel, dict[str, Any]]:
    fed, receiver = trace_serving(request)
    # what is for TPUs alone has no place on this machine
    model = PlainModel(trace_model(request, fed), guarded(request.config.session_config, parts=True))
    model.traced.finalize()
    with model.traced.graph.as_default():
        return model, signatures_of(request.mode, receiver, model.traced)


def _for_tpus(request: Request, exports: Exports, *, alone: bool) -> tuple[PlainModel, dict[str, Any]] | None:
    """The graph for TPUs; None, with a warning, if the model cannot run there and is exported as a plain graph too."""
    model_fn = request.model_fn if exports.by_model else partial(model_fn_inference_on_tpu, request.model_fn)
    try:
        return _model(replace(request, model_fn=model_fn, serves_on_tpu=True))
    except (TypeError, ValueError, NotImplementedError, tf.errors.OpError) as error:
        words = first_words(error)[:200] or type(error).__name__
        if alone:
            raise ArgumentError(f"the model cannot be exported for TPUs: {words}", fix="export_to_cpu=True") from error
        say(f"warning: the exported model has no graph for TPUs: {words}")
        return None
