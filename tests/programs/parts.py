"""What programs are made of: data, variables, layers, train ops; and the table that they enter.

The modules of programs import all of it, TensorFlow and the types of annotations too.
"""

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
mean, total = tf.reduce_mean, tf.reduce_sum

STEPS = 3


# --------------------------------------------------------------------------- programs


@dataclass(frozen=True, eq=False)
class Program:
    """A training program: ``build(rows, **sizes)`` makes its graph and gives its loss and its train op.

    Attributes:
        name: what it is called.
        build: makes the graph.
        rows: rows of a core; the graph is traced at those of all cores.
        open_batch: whether the first dimension of its batches is open.
        steps: steps to train.
        sizes: what else ``build`` is given.
        named: whether the conversion is told the loss and the train op, or has to find them.
        resource: whether its variables are resources.
    """

    name: str
    build: Callable[..., tuple[Any, Any]]
    rows: int = 2
    open_batch: bool = False
    steps: int = STEPS
    sizes: Mapping[str, Any] = field(default_factory=dict)
    named: bool = True
    resource: bool = False

    def __call__(self, rows: int) -> tuple[Any, Any]:
        before = _open.set(self.open_batch)
        try:
            return self.build(rows, **self.sizes)
        finally:
            _open.reset(before)

    def sized(self, **sizes: Any) -> Self:
        """The same program with other sizes; ``rows`` may be one of them."""
        rows = sizes.pop("rows", self.rows)
        return replace(self, rows=rows, sizes={**self.sizes, **sizes})


PROGRAMS: dict[str, Program] = {}
_open: ContextVar[bool] = ContextVar("open", default=False)


def program(
    *columns: np.ndarray[Any, Any], cases: Mapping[str, Mapping[str, Any]] | None = None, batches: str = "2 1_open 8",
    alone: bool = False, **options: Any,
) -> Callable[[Callable[..., tuple[Any, Any]]], Callable[..., tuple[Any, Any]]]:  # fmt: skip
    """Enter a function in ``PROGRAMS`` as ``construct/function_case_batch``, where its module is the construct.

    Args:
        columns: the data: the function is given the next batch of each column, or the number of rows where there is none.
        cases: by name, what else the function is given; the number of rows, where it asks for ``rows``.
        batches: rows of a core, with ``_open`` where the batch is.
        alone: whether the cases are programs by themselves, called ``construct/case_batch``.
        options: further attributes of the programs.
    """

    def enter(build: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        asks = columns and "rows" in inspect.signature(build).parameters

        def of_columns(rows: int, **sizes: Any) -> tuple[Any, Any]:
            taken = batch(rows, *columns)
            return build(*(taken if len(columns) > 1 else [taken]), **({"rows": rows} if asks else {}), **sizes)

        construct = build.__module__.rpartition(".")[2]
        for case, sizes in (cases or {"": {}}).items():
            for kind in batches.split():
                words = "" if alone else build.__name__, case, kind
                name = f"{construct}/{'_'.join(filter(None, words))}"
                rows, is_open = int(kind.partition("_")[0]), kind.endswith("_open")
                made = of_columns if columns else build
                PROGRAMS[name] = Program(name, made, rows, is_open, sizes=sizes, **options)
        return build

    return enter


def each(**choices: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A case for each choice of an argument, by the name of the choice."""
    return {name: {argument: value} for argument, named in choices.items() for name, value in named.items()}


# --------------------------------------------------------------------------- parts of programs

COUNT = 240


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """A column of the data: numbers, no two alike."""
    return (scale * np.random.default_rng(seed).normal(size=(COUNT, *shape))).astype(np.float32)


def whole(below: int, *shape: int, seed: int = 0, kind: Any = np.int32) -> np.ndarray[Any, Any]:
    """A column of the data: whole numbers below a bound."""
    return np.random.default_rng(seed).integers(0, below, (COUNT, *shape)).astype(kind)


def batch(rows: int, *columns: np.ndarray[Any, Any]) -> Any:
    data = tf1.data.Dataset.from_tensor_slices(columns).repeat().batch(rows, drop_remainder=not _open.get())
    found = tf1.data.make_initializable_iterator(data).get_next()
    return found if len(columns) > 1 else found[0]


def length(x: Any) -> Any:
    """The number of rows: Python's, or what the graph computes of an open batch."""
    return x.shape[0] or tf.shape(x)[0]


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


def regression(rows: int, *, width: int = 5, hidden: int = 3) -> tuple[Any, Any, Any]:
    """Predictions, targets and hidden values of a network with one hidden layer."""
    x, y = batch(rows, floats(width), floats(seed=1))
    h = dense(x, width, hidden, "hidden", tf.tanh)
    return column(h, hidden), y, h


def squares(rows: int, **options: Any) -> Any:
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
