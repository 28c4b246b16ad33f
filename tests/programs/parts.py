"""What programs are made of: data, variables, layers, train ops; and the table that they enter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

STEPS = 3


# --------------------------------------------------------------------------- programs


@dataclass(frozen=True, eq=False)  # each is itself alone, so that what is made of one can be kept by it
class Program:
    """A training program: ``build(rows, **sizes)`` makes its graph and gives its loss and its train op.

    Attributes:
        name: what it is called.
        build: makes the graph.
        rows: rows per core.
        steps: steps to train.
        sizes: what else ``build`` is given.
        doubtful: whether a constant may be a size of the batch or not, so that a refusal is right as well, and a result that is
            right where the flag that the report names settles it.
        named: whether the conversion is told the loss and the train op, or has to find them.
        resource: whether its variables are resources.
    """

    name: str
    build: Callable[..., tuple[Any, Any]]
    rows: int = 4
    steps: int = STEPS
    sizes: Mapping[str, Any] = field(default_factory=dict)
    doubtful: bool = False
    named: bool = True
    resource: bool = False

    def __call__(self, rows: int) -> tuple[Any, Any]:
        return self.build(rows, **self.sizes)

    def sized(self, **sizes: Any) -> Program:
        """The same program with other sizes; ``rows`` may be one of them."""
        rows = sizes.pop("rows", self.rows)
        return replace(self, rows=rows, sizes={**self.sizes, **sizes})


PROGRAMS: dict[str, Program] = {}


def program(*, variants: Mapping[str, Mapping[str, Any]] | None = None, **options: Any) -> Any:
    """Enter a function in ``PROGRAMS`` under its name; with ``variants`` once for each, as ``name_variant``."""

    def enter(build: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        for variant, sizes in (variants or {"": {}}).items():
            name = f"{build.__name__}_{variant}" if variant else build.__name__
            assert name not in PROGRAMS, f"two programs are called {name}"
            own = {key: sizes[key] for key in ("rows", "doubtful", "named", "resource") if key in sizes}
            others = {key: value for key, value in sizes.items() if key not in own}
            PROGRAMS[name] = Program(name, build, sizes=others, **{**options, **own})
        return build

    return enter


def closed_and_open(
    *rows: int, of: Mapping[str, Any] | None = None, doubtful: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Variants of a program with so many rows a core, each with a static batch and with an open one.

    Args:
        rows: rows per core.
        of: by name, what the program is given as ``of``: there is a variant for each.
        doubtful: the variants that are, by name.
    """
    kinds: dict[str, dict[str, Any]] = {"": {}} if of is None else {f"{name}_": {"of": one} for name, one in of.items()}
    made = {
        f"{kind}{count}{'_open' * opened}": {**given, "rows": count, "drop_remainder": not opened}
        for kind, given in kinds.items()
        for count in rows
        for opened in (False, True)
    }
    return {name: {**sizes, "doubtful": name in doubtful} for name, sizes in made.items()}


# --------------------------------------------------------------------------- parts of programs

COUNT = 240


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """A column of the data: numbers, no two alike."""
    return (scale * np.random.default_rng(seed).normal(size=(COUNT, *shape))).astype(np.float32)


def whole(below: int, *shape: int, seed: int = 0, kind: Any = np.int32) -> np.ndarray[Any, Any]:
    """A column of the data: whole numbers below a bound."""
    return np.random.default_rng(seed).integers(0, below, (COUNT, *shape)).astype(kind)


def batch(rows: int, *columns: np.ndarray[Any, Any], drop_remainder: bool = True) -> Any:
    """The next batch of some columns; without ``drop_remainder`` its first dimension is open."""
    data = tf1.data.Dataset.from_tensor_slices(columns).repeat().batch(rows, drop_remainder=drop_remainder)
    found = tf1.data.make_initializable_iterator(data).get_next()
    return found if len(columns) > 1 else found[0]


def variable(name: str, *shape: int, scale: float = 0.5, **options: Any) -> Any:
    """A variable whose elements are all different."""
    count = int(np.prod(shape))
    values = scale * np.cos(1.7 * np.arange(1, count + 1) + sum(map(ord, name))).reshape(shape)
    with tf.control_dependencies(None):  # a first value is no part of a loop or of the step around it
        return tf1.get_variable(name, initializer=tf.constant(values.astype(np.float32)), **options)


def piece(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
    """The first values of a piece of a partitioned variable; no two pieces are alike."""
    first = partition_info.var_offset[0] if partition_info is not None else 0
    count = int(np.prod(shape))
    return tf.constant(0.5 * np.cos(1.3 * np.arange(count) + first).reshape(shape), dtype)


def state(name: str, *shape: int, value: float = 0.0, kind: Any = tf.float32) -> Any:
    """A variable that no optimizer trains."""
    with tf.control_dependencies(None):
        start = tf.constant(np.full(shape, value), kind)
        return tf1.get_variable(name, initializer=start, trainable=False)


def dense(
    x: Any, width: int, units: int, name: str, activation: Any = None, *, reuse: Any = None, scale: float = 0.5
) -> Any:
    """A layer with a bias on what has ``width`` columns."""
    with tf1.variable_scope(name, reuse=reuse):
        made = tf.matmul(x, variable("kernel", width, units, scale=scale)) + variable("bias", units, scale=0.1)
    return activation(made) if activation else made


def column(x: Any, width: int, name: str = "out") -> Any:
    """One number per row."""
    return tf.squeeze(x @ variable(name, width, 1), 1)


def regression(rows: int, *, width: int = 5, hidden: int = 3, drop_remainder: bool = True) -> tuple[Any, Any, Any]:
    """Predictions, targets and hidden values of a network with one hidden layer."""
    x, y = batch(rows, floats(width), floats(seed=1), drop_remainder=drop_remainder)
    h = dense(x, width, hidden, "hidden", tf.tanh)
    return column(h, hidden), y, h


def squares(rows: int, **options: Any) -> Any:
    """The squared error of each row."""
    p, y, _ = regression(rows, **options)
    return tf.square(p - y)


def sgd(rate: float = 0.1) -> Any:
    return tf1.train.GradientDescentOptimizer(rate)


def adam(rate: float = 0.02) -> Any:
    return tf1.train.AdamOptimizer(rate, epsilon=1e-3)


def minimise(loss: Any, optimizer: Any = None, *, clip: Any = None, variables: Any = None) -> tuple[Any, Any]:
    """The loss and a train op; ``clip`` gets the list of gradients and gives another."""
    optimizer = optimizer or sgd()
    step = tf1.train.get_or_create_global_step()
    tf1.summary.scalar("loss", loss)
    with tf.control_dependencies(None):  # a loop whose gradient waited for the loss would never end
        gradients, trained = zip(*optimizer.compute_gradients(loss, var_list=variables), strict=True)
    gradients = clip(list(gradients)) if clip else gradients
    return loss, optimizer.apply_gradients(zip(gradients, trained, strict=True), global_step=step, name="train")


def by_hand(loss: Any, update: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The loss and a train op that subtracts ``update(gradient, variable)``, all of them read before one is written."""
    variables = tf1.trainable_variables()
    with tf.control_dependencies(None):
        gradients = [tf.convert_to_tensor(g) for g in tf.gradients(loss, variables)]
    tf1.summary.scalar("loss", loss)
    with tf.control_dependencies([loss, *gradients]):
        changes = [update(g, v) for g, v in zip(gradients, variables, strict=True)]
    with tf.control_dependencies(changes):
        writes = [tf1.assign_sub(v, change) for v, change in zip(variables, changes, strict=True)]
    with tf.control_dependencies(writes):
        return loss, tf1.assign_add(tf1.train.get_or_create_global_step(), 1).op


def after(train: Any, *others: Any) -> Any:
    """A train op that is done when some more ops are."""
    return tf.group(train, *others, name="all")
