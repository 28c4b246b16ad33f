"""Writing a SavedModel: the signatures of its graphs, and its folder."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.estimator.export_types import ClassificationOutput, PredictOutput, RegressionOutput, ServingInputReceiver
from tpugraph.estimator.metric_ops import flat
from tpugraph.estimator.modes import ModeKeys
from tpugraph.estimator.plain_session import PlainModel
from tpugraph.estimator.reporting import say
from tpugraph.estimator.tracing import Traced
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1
_METHOD = {ModeKeys.EVAL: "eval", ModeKeys.TRAIN: "training"}


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


def signatures_of(mode: str, receiver: Any, traced: Traced) -> dict[str, Any]:
    """The signatures of an exported model: those of serving, or the one of training or evaluation with loss and metrics."""
    spec = traced.spec
    if mode == ModeKeys.PREDICT:
        return signatures(receiver, spec.export_outputs, spec.predictions)
    predictions = spec.predictions if isinstance(spec.predictions, Mapping) else {"predictions": spec.predictions}
    outputs = {"loss": spec.loss, **{f"predictions/{key}": value for key, value in predictions.items()}}
    for key, (value, update) in flat(spec.eval_metric_ops).items():
        outputs |= {f"metrics/{key}/value": value, f"metrics/{key}/update_op": update}
    tensors = {key: tensor for key, tensor in outputs.items() if tf.is_tensor(tensor)}
    described = [
        {key: tf1.saved_model.build_tensor_info(tensor) for key, tensor in part.items()}
        for part in (receiver.receiver_tensors, tensors)
    ]
    return {mode: tf1.saved_model.build_signature_def(*described, f"tensorflow/supervised/{_METHOD[mode]}")}


def write(
    made: Sequence[tuple[list[str], PlainModel, dict[str, Any]]], base: str, assets: Any, *, as_text: bool
) -> str:
    """Write a SavedModel into a new folder below ``base`` that has the time as its name; returns that folder.

    The folder appears under its name when it is complete.

    Args:
        made: of each graph its tags, the model, and its signatures; the first one's session has the variables' values.
        base: the folder.
        assets: files to put beside the model: name there to path here.
        as_text: write the graphs as text.
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
