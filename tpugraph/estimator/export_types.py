"""What exporting needs: how a served model gets its input, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

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


class _Supervised(NamedTuple):
    features: Any
    labels: Any
    receiver_tensors: Any


class SupervisedInputReceiver(_Supervised):
    """What an input receiver function returns for a model that is exported for training or evaluation.

    Args:
        features: a tensor or a dict of tensors for the model.
        labels: a tensor or a dict of tensors for the model.
        receiver_tensors: the tensor, or dict of tensors, that is fed.

    Raises:
        ArgumentTypeError: something else than tensors (a ``TypeError``).
    """

    __slots__ = ()

    def __new__(cls, features: Any, labels: Any, receiver_tensors: Any) -> SupervisedInputReceiver:
        """Check the fields and make the receiver; see the class."""
        for name, part in (("features", features), ("labels", labels), ("receiver_tensors", receiver_tensors)):
            for value in tf.nest.flatten(part):
                if not tf.is_tensor(value):
                    raise ArgumentTypeError(f"SupervisedInputReceiver: {name} must be tensors, but has {value!r}")
        return super().__new__(cls, features, labels, _named(receiver_tensors))


class UnsupervisedInputReceiver(ServingInputReceiver):
    """What an input receiver function returns for a model that is exported for training or evaluation without labels.

    Args:
        features: see :class:`ServingInputReceiver`.
        receiver_tensors: see :class:`ServingInputReceiver`.

    Raises:
        ArgumentTypeError: something else than tensors (a ``TypeError``).
    """

    __slots__ = ()
    _named_features = False

    def __new__(cls, features: Any, receiver_tensors: Any) -> UnsupervisedInputReceiver:
        """Check the fields and make the receiver; see the class."""
        made = super().__new__(cls, features, receiver_tensors)
        assert isinstance(made, UnsupervisedInputReceiver)
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


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """An input receiver function whose features and labels are fed as they are.

    Args:
        features: an example tensor, or examples or tensor specs by name; their first dimension is the batch.
        labels: the same of the labels.
        default_batch_size: its size; open when None.

    Raises:
        ArgumentError: a feature and a label have the same name (a ``ValueError``).
    """
    parts = [
        part if isinstance(part, Mapping) else {name: part} for name, part in (("input", features), ("label", labels))
    ]
    if shared := set(parts[0]) & set(parts[1]):
        raise ArgumentError(f"features and labels are both called {sorted(shared)}", fix="rename one of them")
    shapes = [{name: (tf.TensorShape(e.shape).as_list()[1:], e.dtype) for name, e in part.items()} for part in parts]

    def receive() -> SupervisedInputReceiver:
        fed = [
            {
                name: tf1.placeholder(kind, [default_batch_size, *shape], name=name)
                for name, (shape, kind) in part.items()
            }
            for part in shapes
        ]
        ours, theirs = (
            tensors if isinstance(part, Mapping) else next(iter(tensors.values()))
            for part, tensors in zip((features, labels), fed, strict=True)
        )
        return SupervisedInputReceiver(ours, theirs, {**fed[0], **fed[1]})

    return receive
