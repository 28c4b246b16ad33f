"""Random valid training programs: sequences of ops on various dimensions; the loss is computed from the last value.

A program is a line such as ``composed rows=4 open=1 sizes=32 dense.1 transpose.5 loop.0-1 loss=variance clip=norm``. A word
is an op of ``OPS`` with a number that decides its choices (an axis, an order) and the distance to the value that it reads; or a
choice of ``CHOICES``. An op that does not fit its operand is skipped, so that any words are a program, and a program is simplified
by leaving words out. Sizes are small and often equal, so that other dimensions can be mistaken for the batch.
"""

import itertools
import math
import random
import re
from collections.abc import Iterator

from .clipping import CLIPS
from .control import STATES
from .losses import OF_ERRORS
from .optimizers import OWN
from .parts import *
from .statistics import fused

ROWS = "rows"
"""A dimension that has the rows of the batch."""

MOST_ELEMENTS = 5000  # of a value, where a core has six rows

Shape = tuple[int | str, ...]


@dataclass
class Inputs:
    """What comes in, how many rows it has as the graph and as Python knows, the variables made so far, updates to be done."""

    features: Any
    targets: Any
    kinds: Any
    count: Any
    rows: int
    numbers: Iterator[int] = field(default_factory=itertools.count)
    updates: list[Any] = field(default_factory=list)

    def variable(self, *shape):
        return variable(f"v{next(self.numbers)}", *shape)


@dataclass
class Value:
    """What an op reads: a tensor, its shape, the number of choices, and the inputs of the program beside it."""

    tensor: Any
    shape: Shape
    choice: int
    inputs: Inputs

    @property
    def rank(self):
        return len(self.shape)

    def axis(self, among: Callable[[int | str], bool] = lambda _: True) -> int | None:
        axes = [axis for axis, size in enumerate(self.shape) if among(size)]
        return axes[self.choice % len(axes)] if axes else None

    def of_model(self, least=1) -> int | None:
        return self.axis(lambda size: size != ROWS and size >= least)

    def sized(self, axis, *sizes: int | str) -> Shape:
        """The shape with other sizes in the place of one."""
        return (*self.shape[:axis], *sizes, *self.shape[axis + 1 :])

    def reshaped(self, shape: Shape) -> tuple[Any, Shape]:
        """The tensor in another shape, in which -1 or the size of a feature stands for rows."""
        rows = -1 if shape.count(ROWS) == 1 else self.inputs.count
        return tf.reshape(self.tensor, [rows if size == ROWS else size for size in shape]), shape


Made = tuple[Any, Shape] | None
OPS: dict[str, Callable[[Value], Made]] = {}
"""The ops by name: each gives a tensor and its shape, or nothing where a value does not fit it."""


def op(function: Callable[[Value], Made]) -> Callable[[Value], Made]:
    OPS[function.__name__] = function
    return function


# --------------------------------------------------------------------------- layers and numbers


@op
def dense(v: Value) -> Made:
    if not v.rank or v.shape[-1] == ROWS:
        return None
    units = 2 + v.choice % 3
    kernel = v.inputs.variable(v.shape[-1], units)
    return tf.tanh(tf.tensordot(v.tensor, kernel, 1)), (*v.shape[:-1], units)


@op
def einsum(v: Value) -> Made:
    if v.rank != 3 or v.shape[2] == ROWS:
        return None
    return tf.einsum("abc,cd->bad", v.tensor, v.inputs.variable(v.shape[2], 2)), (v.shape[1], v.shape[0], 2)


@op
def embedding(v: Value) -> Made:
    """Rows of a table, gathered or by a product with one-hot rows; what was made before is left aside."""
    table, kinds = v.inputs.variable(3, 2 + v.choice // 2 % 3), v.inputs.kinds
    return tf.one_hot(kinds, 3) @ table if v.choice % 2 else tf.gather(table, kinds), (ROWS, table.shape[1])


@op
def likeness(v: Value) -> Made:
    return None if v.rank != 2 else (tf.matmul(v.tensor, v.tensor, transpose_b=True), (v.shape[0], v.shape[0]))


@op
def covariance(v: Value) -> Made:
    if v.rank != 2:
        return None
    summed = tf.matmul(v.tensor, v.tensor, transpose_a=True)
    return summed / tf.cast(tf.shape(v.tensor)[0], tf.float32), (v.shape[1], v.shape[1])


@op
def pairs(v: Value) -> Made:
    if v.shape[:1] != (ROWS,) or v.shape.count(ROWS) > 1 or v.rank > 3:
        return None
    return v.tensor[:, None] - v.tensor[None], (ROWS, *v.shape)


# --------------------------------------------------------------------------- along an axis


@op
def reduce(v: Value) -> Made:
    if not v.rank:
        return None
    function = (tf.reduce_mean, tf.reduce_sum, tf.reduce_max, tf.reduce_logsumexp)[v.choice // 8 % 4]
    axis, kept = v.choice % v.rank, v.choice // 4 % 2 == 1
    return function(v.tensor, axis, keepdims=kept), v.sized(axis, *[1] * kept)


def _along(name, function: Callable[[Any, int], Any]) -> None:
    """Enter an op that keeps the shape and works along one axis."""

    def made(v: Value) -> Made:
        return (function(v.tensor, v.choice % v.rank), v.shape) if v.rank else None

    OPS[name] = made


def _normalised(x, axis):
    middle, variance = tf.nn.moments(x, [axis], keepdims=True)
    return (x - middle) * tf.math.rsqrt(variance + 0.1)


_along("centre", lambda x, axis: x - tf.reduce_mean(x, axis, keepdims=True))
_along("norm", _normalised)
_along("softmax", tf.nn.softmax)
_along("cumsum", lambda x, axis: 0.5 * tf.cumsum(x, axis))
_along("cumsum_back", lambda x, axis: 0.5 * tf.cumsum(x, axis, exclusive=True, reverse=True))
_along("sort", tf.sort)
_along("reverse", lambda x, axis: tf.reverse(x, [axis]))
_along("roll", lambda x, axis: tf.roll(x, 1, axis))


# --------------------------------------------------------------------------- shapes


@op
def transpose(v: Value) -> Made:
    orders = list(itertools.permutations(range(v.rank)))
    order = orders[v.choice % len(orders)]
    return tf.transpose(v.tensor, order), tuple(v.shape[axis] for axis in order)


@op
def merge(v: Value) -> Made:
    if v.rank < 2 or ROWS in v.shape[(axis := v.choice % (v.rank - 1)) : axis + 2]:
        return None
    return v.reshaped((*v.shape[:axis], v.shape[axis] * v.shape[axis + 1], *v.shape[axis + 2 :]))


@op
def split(v: Value) -> Made:
    axis = v.axis(lambda size: size != ROWS and size > 3 and size % 2 == 0)
    if axis is None:
        return None
    half = v.shape[axis] // 2
    return v.reshaped(v.sized(axis, *((2, half), (half, 2))[v.choice // 4 % 2]))


@op
def fold(v: Value) -> Made:
    """A layer on what is folded into the rows, which are unfolded behind it."""
    if v.rank < 3 or v.shape[0] != ROWS or v.shape.count(ROWS) != 1:
        return None
    units = 2 + v.choice % 2
    flat = tf.reshape(v.tensor, [-1, *v.shape[2:]])
    shape = (*v.shape[:-1], units)
    return tf.reshape(tf.tanh(tf.tensordot(flat, v.inputs.variable(v.shape[-1], units), 1)), [-1, *shape[1:]]), shape


@op
def expand(v: Value) -> Made:
    axis = v.choice % (v.rank + 1)
    return tf.expand_dims(v.tensor, axis), (*v.shape[:axis], 1, *v.shape[axis:])


@op
def stack(v: Value) -> Made:
    axis = v.choice % (v.rank + 1)
    return tf.stack([v.tensor, tf.tanh(v.tensor)], axis), (*v.shape[:axis], 2, *v.shape[axis:])


@op
def concat(v: Value) -> Made:
    axis = v.of_model()
    return None if axis is None else (tf.concat([v.tensor, tf.tanh(v.tensor)], axis), v.sized(axis, 2 * v.shape[axis]))


@op
def tile(v: Value) -> Made:
    axis = v.of_model()
    if axis is None:
        return None
    times = [2 if place == axis else 1 for place in range(v.rank)]
    return tf.tile(v.tensor, times), v.sized(axis, 2 * v.shape[axis])


@op
def pad(v: Value) -> Made:
    axis = v.of_model()
    if axis is None:
        return None
    return tf.pad(v.tensor, [[int(place == axis), 0] for place in range(v.rank)]), v.sized(axis, v.shape[axis] + 1)


@op
def cut(v: Value) -> Made:
    axis = v.of_model(2)
    if axis is None:
        return None
    part = slice(1, None) if v.choice // 4 % 2 else slice(None, -1)
    return v.tensor[(*[slice(None)] * axis, part)], v.sized(axis, v.shape[axis] - 1)


@op
def pick(v: Value) -> Made:
    axis = v.of_model()
    if axis is None:
        return None
    return v.tensor[(*[slice(None)] * axis, v.choice // 4 % v.shape[axis])], v.sized(axis)


@op
def unstack(v: Value) -> Made:
    axis = v.of_model()
    if axis is None:
        return None
    made, *rest = tf.unstack(v.tensor, v.shape[axis], axis)
    for following in rest:
        made = tf.tanh(0.5 * made + following)
    return made, v.sized(axis)


# --------------------------------------------------------------------------- what keeps the shape


def _kept(name, fits: Callable[[Value], bool], function: Callable[[Value], Any]) -> None:
    """Enter an op that keeps the shape of what it fits."""
    OPS[name] = lambda v: (function(v), v.shape) if fits(v) else None


def _has_rows(v: Value):
    return v.shape[:1] == (ROWS,)


def _of_rows(v: Value):
    """Whether the rows of the batch are its first dimension alone."""
    return _has_rows(v) and ROWS not in v.shape[1:]


def _looked_up(v: Value):
    found = tf.gather(v.inputs.variable(3), v.inputs.kinds)
    return v.tensor * tf.reshape(found, [-1] + [1] * (v.rank - 1))


def _attended(v: Value):
    return tf.matmul(tf.nn.softmax(tf.matmul(v.tensor, v.tensor, transpose_b=True)), v.tensor)


def _halves(v: Value):
    half = v.inputs.count // 2
    return tf.concat([v.tensor[half:], v.tensor[:half]], 0)


def _convolved(v: Value):
    """Where it is dilated, TensorFlow computes it by SpaceToBatchND."""
    kernel = v.inputs.variable(2, v.shape[2], v.shape[2])
    return tf.tanh(tf1.nn.convolution(v.tensor, kernel, "SAME", dilation_rate=[1 + v.choice % 2]))


def _fused_norm(v: Value):
    x = tf.reshape(v.tensor, [-1, 1, math.prod(v.shape[1:-1]), v.shape[-1]])
    made = fused(x, v.shape[-1], f"norm{next(v.inputs.numbers)}", v.inputs.updates)
    return tf.tanh(tf.reshape(made, tf.shape(v.tensor)))


def _beside(v: Value):
    """The rows and their negatives behind one another through one layer."""
    kernel = v.inputs.variable(v.shape[-1], v.shape[-1])
    one, other = tf.split(tf.nn.softplus(tf.tensordot(tf.concat([v.tensor, -v.tensor], 0), kernel, 1)), 2)
    return one * other


def _regrouped(v: Value):
    """Neighbouring rows share a layer."""
    width = 2 * v.shape[1]
    wide = tf.tanh(tf.reshape(v.tensor, [-1, width]) @ v.inputs.variable(width, width))
    return tf.reshape(wide, [-1, v.shape[1]])


def _clustered(v: Value):
    sums = tf1.unsorted_segment_sum(v.tensor, v.inputs.kinds, 3)
    return v.tensor + 0.2 * tf.gather(sums, v.inputs.kinds)


def _best(v: Value):
    """The best row of the batch is added to each."""
    long = tf.reduce_sum(tf.square(v.tensor), range(1, v.rank))
    return v.tensor + 0.5 * tf.gather(v.tensor, tf.nn.top_k(tf.stop_gradient(long), 1).indices)


def _settled(v: Value):
    """How often it turns, the whole batch decides."""
    far = (lambda x: tf.reduce_max(tf.abs(x)) > 0.3) if v.choice % 2 else lambda x: tf.reduce_mean(tf.square(x)) > 0.05
    return tf1.while_loop(lambda i, x: tf.logical_and(i < 4, far(x)), lambda i, x: (i + 1, 0.7 * x), [0, v.tensor])[1]


def _branched(v: Value):
    return tf1.cond(tf.reduce_mean(v.inputs.targets) > 0, lambda: tf.tanh(v.tensor), lambda: 0.5 * v.tensor)


def _placed(v: Value):
    places = tf.gather(v.inputs.variable(v.shape[1] + 1, v.shape[2]), tf.range(v.shape[1]))
    return tf.tanh(v.tensor + places)


def _looped(v: Value):
    return tf1.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, tf.tanh(x + v.tensor)), [0, v.tensor])[1]


_kept("gate", lambda v: True, lambda v: v.tensor * tf.sigmoid(tf.reduce_mean(v.tensor)))
_kept("table", _has_rows, _looked_up)
_kept("attend", lambda v: v.rank in (2, 3), _attended)
_kept("by_target", _has_rows, lambda v: tf.gather(v.tensor, tf.argsort(v.inputs.targets[:, 0])))
_kept("halves", _has_rows, _halves)
_kept("convolve", lambda v: v.rank == 3 and _of_rows(v), _convolved)
_kept("fused_norm", lambda v: v.rank > 1 and _of_rows(v), _fused_norm)
_kept("beside", lambda v: v.rank > 1 and _of_rows(v), _beside)
_kept("regroup", lambda v: v.rank == 2 and _of_rows(v) and v.inputs.rows % 2 == 0, _regrouped)
_kept("cluster", _has_rows, _clustered)
_kept("best", _has_rows, _best)
_kept("settle", lambda v: True, _settled)
_kept("branch", lambda v: True, _branched)
_kept("places", lambda v: v.rank == 3 and _of_rows(v), _placed)
_kept("loop", lambda v: True, _looped)
_kept("scan", lambda v: v.rank > 1, lambda v: tf.scan(lambda before, x: 0.5 * before + x, v.tensor))
_kept("map_rows", lambda v: v.rank > 1, lambda v: tf.map_fn(lambda x: x * tf.reduce_max(x), v.tensor))


# --------------------------------------------------------------------------- losses

PAIRED: dict[str, Callable[[Any, Any], Any]] = {
    "tiled": lambda p, y: tf.reshape(tf.tile(p[:, None], [1, length(p)]), [-1]) - tf.tile(y, [length(p)]),
    "repeated": lambda p, y: tf.repeat(p, length(p)) - tf.tile(y, [length(p)]),
    "of_two": lambda p, y: tf.boolean_mask(tf.tanh(p[:, None] - y[None]), tf.eye(length(p)) < 0.5),
    "sorted": lambda p, y: tf.sort(p) - tf.sort(y),
    "best": lambda p, y: tf.nn.top_k(tf.square(p - y), (length(p) + 1) // 2).values,
    "softmax": lambda p, y: tf.nn.softmax(p) * (p - y),
}
"""What is made of the numbers of all rows and of their targets, and squared."""

LOSSES = OF_ERRORS | {name: lambda p, y, h, rows, of=of: mean(tf.square(of(p, y))) for name, of in PAIRED.items()}
CHOICES: dict[str, Mapping[str, Any]] = {
    "loss": LOSSES, "clip": CLIPS, "optimizer": OWN, "written": STATES, "resource": {"yes": True},
}  # fmt: skip
"""The loss of the last value per row, the processing of gradients, and further writes of a step."""


# --------------------------------------------------------------------------- programs


def _fits(shape: Shape):
    few = len(shape) <= 4 and shape.count(ROWS) <= 2
    return few and math.prod(6 if size == ROWS else int(size) for size in shape) <= MOST_ELEMENTS


def _build(rows, sizes: tuple[int, int], words: list[str], chosen: dict[str, Any]):
    """Beside the chosen loss, the squares of the last three values and of a layer on the features, so that something is trained."""
    columns = (floats(*sizes), floats(sizes[0], seed=1), whole(3, seed=2), floats(3, seed=4))
    features, targets, kinds, beside = batch(rows, *columns)
    inputs = Inputs(features, targets, kinds, tf.shape(features)[0], rows)
    values: list[tuple[Any, Shape]] = [(tf.tensordot(features, inputs.variable(sizes[1], 3), 1), (ROWS, sizes[0], 3))]
    for word in words:
        name, choice, before = re.fullmatch(r"(\w+)\.(\d+)(?:-(\d+))?", word).groups(default="0")
        tensor, shape = values[-1 - int(before) % len(values)]
        made = OPS[name](Value(tensor, shape, int(choice), inputs))
        if made is not None and _fits(made[1]):
            values.append(made)
    loss = sum(mean(tf.square(tensor)) for tensor, _ in [values[0], *values[1:][-3:]])
    if "loss" in chosen:
        tensor, shape = next((t, s) for t, s in reversed(values) if s[:1] == (ROWS,) and ROWS not in s[1:])
        h = tf.tanh(tf.reshape(tensor, [-1, math.prod(shape[1:])]))
        h = tf.concat([h, features[:, 0]], 1)
        loss += chosen["loss"](column(h, int(h.shape[1])), targets[:, 0], h, rows)
    if "written" in chosen:
        start, write = chosen["written"]
        held = tf1.get_variable("held", initializer=start, trainable=False)
        inputs.updates.append(write(held, beside, targets[:, 0]))
    with tf.control_dependencies([*inputs.updates, loss]):
        optimizer = chosen["optimizer"]() if "optimizer" in chosen else sgd(0.02)
        return minimise(tf.identity(loss), optimizer, clip=chosen.get("clip"))


def made(source) -> Program:
    _, rows, is_open, sizes, *words = source.split()
    number, open_batch = int(rows.partition("=")[2]), is_open == "open=1"
    first, second = map(int, sizes.partition("=")[2])
    fields = dict(word.split("=") for word in words if "=" in word)
    chosen = {field: CHOICES[field][name] for field, name in fields.items()}
    words, resource = [word for word in words if "=" not in word], chosen.pop("resource", False)

    def build(rows):
        return _build(rows, (first, second), words, chosen)

    return Program(source, build, number, open_batch, resource=resource)


def draw(source: random.Random):
    words = [f"{source.choice(list(OPS))}.{source.randrange(96)}" for _ in range(source.choice([2, 4, 6, 8]))]
    words = [word if source.random() < 0.8 else f"{word}-{source.randrange(1, 3)}" for word in words]
    words += [f"{field}={source.choice(list(names))}" for field, names in CHOICES.items() if source.random() < 0.4]
    rows, sizes = source.choice([1, 2, 3, 4]), f"{source.randrange(2, 6)}{source.randrange(2, 6)}"
    return " ".join(["composed", f"rows={rows}", f"open={source.randrange(2)}", f"sizes={sizes}", *words])


def shrunk(source, fails: Callable[[str], bool], tries=60):
    """A simpler program that fails too: word by word is left out, until no more can be."""
    kept, again = source.split(), True
    while again:
        again = False
        for place in range(len(kept) - 1, 3, -1):
            simpler = kept[:place] + kept[place + 1 :]
            if tries > 0 and fails(" ".join(simpler)):
                kept, again = simpler, True
            tries -= 1
    return " ".join(kept)
