"""What exporting needs: how a served model gets its input, and what it answers."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from tpugraph.estimator.plain_session import PlainModel
from tpugraph.estimator.reporting import say
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


class _Receiver(NamedTuple):
    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any = None


class ServingInputReceiver(_Receiver):
    """What a serving input function returns.

    Args:
        features: a dict of tensors for the model; it gets a tensor as a dict too, under the key ``feature``.
        receiver_tensors: the tensor, or dict of tensors, that is fed.
        receiver_tensors_alternatives: other tensors, or dicts of them, that may be fed instead, by a name: the model has
            a signature ``name:output`` for each.

    Raises:
        ArgumentTypeError: something else than tensors (a ``TypeError``).
    """

    __slots__ = ()
    _named_features = True

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> ServingInputReceiver:
        """Check the fields and make the receiver; see the class."""
        others = {} if receiver_tensors_alternatives is None else receiver_tensors_alternatives
        if not isinstance(others, Mapping):
            raise ArgumentTypeError(f"receiver_tensors_alternatives must be a dict, but is {others!r}")
        given = {"feature": features} if tf.is_tensor(features) and cls._named_features else features
        received, *more = (_named(fed) for fed in (receiver_tensors, *others.values()))
        everything = [
            *((None, t) for t in tf.nest.flatten(given)),
            *(pair for fed in (received, *more) for pair in fed.items()),
        ]
        for key, value in everything:
            if not tf.is_tensor(value):
                raise ArgumentTypeError(f"ServingInputReceiver: {key or 'features'} must be a tensor, but is {value!r}")
        return super().__new__(cls, given, received, dict(zip(others, more, strict=True)))


class TensorServingInputReceiver(ServingInputReceiver):
    """What a serving input function returns for a model whose features are one tensor, which the model gets as it is.

    Args:
        features: the tensor.
        receiver_tensors: see :class:`ServingInputReceiver`.
        receiver_tensors_alternatives: see :class:`ServingInputReceiver`.

    Raises:
        ArgumentTypeError: something else than a tensor (a ``TypeError``).
    """

    __slots__ = ()
    _named_features = False

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> TensorServingInputReceiver:
        """Check the fields and make the receiver; see the class."""
        if not tf.is_tensor(features):
            raise ArgumentTypeError(f"TensorServingInputReceiver: features must be a tensor, but is {features!r}")
        made = super().__new__(cls, features, receiver_tensors, receiver_tensors_alternatives)
        assert isinstance(made, TensorServingInputReceiver)
        return made


def _named(fed: Any) -> dict[str, Any]:
    return dict(fed) if isinstance(fed, Mapping) else {"input": fed}


class PredictOutput(NamedTuple):
    """Answers that are named tensors."""

    outputs: Any


class ClassificationOutput(NamedTuple):
    """Answers that are scores of classes, names of classes, or both."""

    scores: Any = None
    classes: Any = None


class RegressionOutput(NamedTuple):
    """Answers that are numbers."""

    value: Any


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A serving input function whose features are fed as they are.

    Args:
        features: example tensors, or tensor specs, by name; their first dimension is the batch.
        default_batch_size: its size; open when None.
    """

    def receive() -> ServingInputReceiver:
        fed = {}
        for name, example in features.items():
            shape = tf.TensorShape(example.shape).as_list()
            fed[name] = tf1.placeholder(example.dtype, [default_batch_size, *shape[1:]], name=name)
        return ServingInputReceiver(dict(fed), fed)

    return receive


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A serving input function that is fed serialised ``tf.train.Example`` protos under the name ``examples``.

    Args:
        feature_spec: what ``tf.io.parse_example`` takes.
        default_batch_size: how many are fed; open when None.
    """

    def receive() -> ServingInputReceiver:
        serialized = tf1.placeholder(tf.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(tf.io.parse_example(serialized, dict(feature_spec)), {"examples": serialized})

    return receive


# --------------------------------------------------------------------------- writing a SavedModel


def signatures(receiver: ServingInputReceiver, outputs: Any, predictions: Any) -> dict[str, Any]:
    """The signatures of a served model; the predictions are the default one where the model gives no export outputs.

    One that serving does not know, as a classification of anything but serialised examples, is left out, and a line says
    why.

    Raises:
        ArgumentError: several export outputs and none is the default, or none that can be served.
        ArgumentTypeError: an export output of another kind.
    """
    default = tf1.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    outputs = outputs or {default: PredictOutput(predictions)}
    if default not in outputs:
        if len(outputs) > 1:
            raise ArgumentError(
                f"none of the export_outputs {sorted(outputs)} is the default", fix=f"name it '{default}'"
            )
        outputs = {**outputs, default: next(iter(outputs.values()))}
    every = {name: (receiver.receiver_tensors, output) for name, output in outputs.items()}
    for other, fed in receiver.receiver_tensors_alternatives.items():
        every.update({f"{other}:{name}": (fed, output) for name, output in outputs.items()})
    refused = {name: why for name, (fed, output) in every.items() if (why := _why_not(fed, output))}
    for name, why in refused.items():
        say(f"warning: the signature '{name}' is left out: {why}")
    if len(refused) == len(every):
        raise ArgumentError(f"none of the export_outputs {sorted(outputs)} can be served", fix="add a PredictOutput")
    return {name: _signature(fed, output) for name, (fed, output) in every.items() if name not in refused}


def _why_not(fed: dict[str, Any], output: Any) -> str:
    """Why a classification or regression cannot be served; "" where it can."""
    if isinstance(output, ClassificationOutput):
        answers = {"classes": (output.classes, tf.string), "scores": (output.scores, tf.float32)}
    elif isinstance(output, RegressionOutput):
        answers = {"value": (output.value, tf.float32)}
    else:
        return ""
    kinds = [tensor.dtype for tensor in fed.values()]
    if kinds != [tf.string]:
        shown = ", ".join(f"'{key}' of {tensor.dtype.name}" for key, tensor in fed.items())
        return f"it is fed one tensor of serialised examples (string), not {shown}"
    wrong = [(key, t.dtype.name, kind.name) for key, (t, kind) in answers.items() if t is not None and t.dtype != kind]
    return "; ".join(f"its {key} are {found}, but must be {kind}" for key, found, kind in wrong)


def _signature(fed: dict[str, Any], output: Any) -> Any:
    if isinstance(output, PredictOutput):
        named = output.outputs if isinstance(output.outputs, Mapping) else {"output": output.outputs}
        return tf1.saved_model.predict_signature_def(fed, dict(named))
    examples = next(iter(fed.values()))
    if isinstance(output, ClassificationOutput):
        return tf1.saved_model.classification_signature_def(examples, output.classes, output.scores)
    if isinstance(output, RegressionOutput):
        return tf1.saved_model.regression_signature_def(examples, output.value)
    raise ArgumentTypeError(f"an export output must be a PredictOutput, ClassificationOutput or RegressionOutput, "
                            f"but is {output!r}")  # fmt: skip


def write(model: PlainModel, base: str, signature_map: dict[str, Any], assets: Any, *, as_text: bool) -> str:
    """Write a SavedModel into a new folder below ``base`` that has the time as its name; returns that folder.

    The folder appears under its name when it is complete.
    """
    stamp = int(time.time())
    while Path(base, str(stamp)).exists():
        stamp += 1
    final, temporary = os.path.join(base, str(stamp)), os.path.join(base, f"temp-{stamp}")
    with model.traced.graph.as_default():
        builder = tf1.saved_model.Builder(temporary)
        builder.add_meta_graph_and_variables(
            model.session,
            [tf1.saved_model.tag_constants.SERVING],
            signature_def_map=signature_map,
            assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            main_op=model.traced.scaffold.local_init_op,
            saver=model.traced.scaffold.saver,
            strip_default_attrs=True,
        )
        builder.save(as_text)
    for name, source in (assets or {}).items():
        target = Path(temporary, "assets.extra", name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    os.rename(temporary, final)
    return final
