"""Writes docs/collectives.md: what the cores combine in a step of known models, beside the least that is possible.

python tools/collectives.py            converts the models and writes the page
python tools/collectives.py --check    exit code 1 where the page is not current or a model combines more than the least

The least is counted in the plain graph, by what a data-parallel step of any kind has to combine, and knows nothing of
placements: a gradient for each trained variable, the statistics of each batch norm, and the bound of a loop.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

    from tpugraph.ir import Graph

ROOT = Path(__file__).absolute().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

PAGE = ROOT / "docs" / "collectives.md"
CORES = 8
LAST_LOSS = "tpugraph/device/while/Exit_1"
"""Behind the loop: the loss of the last step is summed once for each Session.run."""

HEAD = f"""# What the cores combine

<!-- Written by tools/collectives.py, which converts the models. Run it again where it says that the page is not current. -->

A step of training on {CORES} cores, with `--batch_norm=global`: how many values the cores combine, how many bytes of each core
these are, and the least number and bytes of a step that is exact.

The least is counted in the plain graph and asks no analysis of tpugraph:

- One sum for each trained variable, of the variable's size. Where the model reads only a slice of it, of the slice's size.
- Where a variable is read by rows alone, an embedding: the sum of its size, or the rows of all cores with their numbers,
  whichever is fewer bytes.
- Two statistics for each batch norm forward, a number for each channel. Its two sums backward are the gradients of offset
  and scale; they count where these are not trained.
- A number from each core where the data of the batch bound a loop: all cores go round as often as the longest row needs.
- For a gather from the batch by indices of the data, as of BERT's masked words: the gathered operand and its gradient.
  Nothing but the data says that an index stays within its example.
- A number for each sum of data that the loss is divided by, such as one of weights: backpropagation needs it whole.

The loss counts nothing: each core hands its part to the host, which adds them up. That of the last step is summed once for
each Session.run.

| model | trained variables | batch norms | collectives | bytes per step | least collectives | least bytes | equal |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


# --------------------------------------------------------------------------- models


@dataclass(frozen=True)
class Model:
    """A GraphDef to convert, and what the conversion is told of it."""

    definition: Any
    options: dict[str, Any]


def models() -> dict[str, Callable[[], Model]]:
    """The models by name, each made when it is asked for."""
    from models import corpus, family
    from tpugraph.ir import graphdef

    recorded = {
        "iris (corpus `iris_dnn`)": corpus("iris_dnn"),
        "CNN (corpus `mnist_cnn`)": corpus("mnist_cnn"),
        "CNN with batch norm (corpus `batch_norm`)": corpus("batch_norm"),
        "LSTM with an embedding (corpus `lstm_dynamic`)": corpus("lstm_dynamic"),
    }
    made: dict[str, Callable[[], Model]] = {
        name: lambda folder=folder: Model(graphdef.to_graph_def(folder.graph()), {})  # type: ignore[misc]
        for name, folder in recorded.items()
    }
    made["BERT (family `bert_small`)"] = lambda: _with_rows(family("bert_small").graph(), 4 * CORES)
    made["BERT (program `attention/bert`, Adam, 1,000 words)"] = _bert
    made["ResNet-50 (program `images/residual`)"] = _resnet
    return made


def _with_rows(graph: Graph, rows: int) -> Model:
    from tpugraph.compiler import ConvertOptions, find_roles
    from tpugraph.compiler.another_batch import another_batch
    from tpugraph.ir import graphdef

    graph.roles = find_roles(graph, ConvertOptions())
    another_batch(graph, rows)
    return Model(graphdef.to_graph_def(graph), {})


def _bert() -> Model:
    from programs.parts import adam

    sizes = {"seq": 16, "hidden": 64, "intermediate": 256, "heads": 4, "vocabulary": 1000, "positions": 32}
    return _program("attention/bert_2", rows=4, **sizes, optimizer=adam)


def _resnet() -> Model:
    """The sizes of ResNet-50, but for that of its images, which no variable and no statistic has."""
    sizes = {"blocks": (3, 4, 6, 3), "units": 64, "side": 32, "classes": 1000}
    return _program("images/residual_2", **sizes, weights=_drawn)


def _drawn(name: str, *shape: int) -> Any:
    """A variable whose first value is drawn, so that the graph does not hold it."""
    import tensorflow as tf

    drawn = tf.compat.v1.glorot_uniform_initializer(seed=1)
    return tf.compat.v1.get_variable(name, shape, initializer=drawn)


def _program(name: str, **sizes: Any) -> Model:
    from programs import PROGRAMS, trace

    program = PROGRAMS[name].sized(**sizes)
    traced = trace(program, program.rows * CORES)
    return Model(traced.graph.as_graph_def(), {"loss": traced.loss, "train_op": traced.train})


# --------------------------------------------------------------------------- what a step combines


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    model: str
    trained: int
    norms: int
    number: int
    size: int
    least_number: int
    least_size: int

    @property
    def equal(self) -> bool:
        """Whether the step combines no more than it has to."""
        return (self.number, self.size) == (self.least_number, self.least_size)

    def __str__(self) -> str:
        numbers = (self.trained, self.norms, self.number, self.size, self.least_number, self.least_size)
        return f"| {self.model} | {' | '.join(f'{n:,}' for n in numbers)} | {'yes' if self.equal else 'no'} |"


def row(name: str, model: Model) -> Row:
    """Convert a model, and count."""
    import tensorflow as tf

    from tpugraph.compiler import convert
    from tpugraph.ir import graphdef

    with tf.Graph().as_default() as plain:
        tf.graph_util.import_graph_def(model.definition, name="")
    program = convert(graphdef.from_graph_def(model.definition, source=name), num_replicas=CORES, **model.options)
    made = [node for node in program.graph_def.node if node.op == "CrossReplicaSum" and node.input[0] != LAST_LOSS]
    trained, norms = program.report["trained"], list(_norms(plain))
    loss = plain.get_operation_by_name(program.report["loss"]["name"].partition(":")[0])
    least = [*gradients(plain, trained), *statistics(norms, trained), *bounds(plain), *picked(plain),
             *divisors(plain, loss)]  # fmt: skip
    return Row(
        name, len(trained), len(norms), len(made), program.report["collectives"]["bytes"], len(least), sum(least)
    )


# --------------------------------------------------------------------------- the least


def gradients(graph: tf.Graph, trained: list[str]) -> Iterator[int]:
    """The bytes of the gradient of each trained variable."""
    for name in trained:
        value = graph.get_operation_by_name(name)
        shape = value.get_attr("shape").dim
        whole = 4 * math.prod(d.size for d in shape)
        reads = list(_reads(value))
        if len(reads) == 1 and reads[0].type in ("Slice", "StridedSlice"):
            yield _bytes(reads[0].outputs[0])
        elif reads and all(read.type in ("Gather", "GatherV2", "ResourceGather") for read in reads):
            numbers = sum(_bytes(read.inputs[1]) // read.inputs[1].dtype.size for read in reads)
            yield min(whole, numbers * (whole // shape[0].size + 4))
        else:
            yield whole


def _reads(variable: tf.Operation) -> Iterator[tf.Operation]:
    """What the forward step computes with a variable: all that has a gradient's node beside it."""
    handed_on = [variable]
    for at in handed_on:  # grows while it is walked
        for reader in [op for out in at.outputs for op in out.consumers()]:
            if reader.type in ("Identity", "ReadVariableOp", "Enter"):
                handed_on.append(reader)
            elif _has_gradient(reader):
                yield reader


def _has_gradient(op: tf.Operation) -> bool:
    """Whether backpropagation goes through an op: ``tf.gradients`` names what it makes after it."""
    return f"{op.name}_grad" in _scopes(op.graph)


@functools.lru_cache(maxsize=1)
def _scopes(graph: tf.Graph) -> frozenset[str]:
    """The scopes in which backpropagation stands, without their first part."""
    names = (op.name.partition("gradients/")[2].split("/") for op in graph.get_operations())
    return frozenset("/".join(parts[:count]) for parts in names for count in range(1, len(parts)))


def statistics(norms: list[tf.Operation], trained: list[str]) -> Iterator[int]:
    """The bytes of each statistic of a batch norm that is no gradient of a trained variable."""
    for norm in norms:
        scale, offset = norm.inputs[1], norm.inputs[2]
        yield from (_bytes(scale), _bytes(scale))
        for operand in (scale, offset):
            if _source(operand).name not in trained:
                yield _bytes(operand)


def _source(tensor: tf.Tensor) -> tf.Operation:
    op = tensor.op
    while op.type in ("Identity", "ReadVariableOp", "Enter"):
        op = op.inputs[0].op
    return op


def _norms(graph: tf.Graph) -> Iterator[tf.Operation]:
    for op in graph.get_operations():
        if op.type in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3") and op.get_attr("is_training"):
            yield op


def bounds(graph: tf.Graph) -> Iterator[int]:
    """The bytes of a number from each core, for each largest value of the batch that a loop runs to."""
    inputs = [op for op in graph.get_operations() if op.type == "IteratorGetNext"]
    fed = _after(inputs)
    for op in graph.get_operations():
        if op.type == "Max" and op in fed and any(other.type == "LoopCond" for other in _after([op])):
            yield CORES * op.outputs[0].dtype.size


def picked(graph: tf.Graph) -> Iterator[int]:
    """The bytes of all rows that numbers of the data pick from, and of the gradient with respect to them."""
    fed = _after([op for op in graph.get_operations() if op.type == "IteratorGetNext"])
    for op in graph.get_operations():
        if op.type != "GatherV2" or op.get_attr("batch_dims") or not _has_gradient(op):
            continue
        if {op.inputs[0].op, op.inputs[1].op} <= fed.keys():
            yield from (_bytes(op.inputs[0]), _bytes(op.inputs[0]))


def divisors(graph: tf.Graph, loss: tf.Operation) -> Iterator[int]:
    """The bytes of each sum over the data of the batch that something on the way to the loss is divided by."""
    fed = _after([op for op in graph.get_operations() if op.type == "IteratorGetNext"])
    divisions = [op for op in _before([loss]) if op.type in ("RealDiv", "Div", "DivNoNan") and op in fed]
    numbers = _before([op.inputs[1].op for op in divisions if op.inputs[1].shape.rank == 0], scalar=True)
    for op in numbers:
        if op.type == "Sum" and op in fed and op.inputs[0].shape.rank:
            yield op.outputs[0].dtype.size


def _before(ops: list[tf.Operation], *, scalar: bool = False) -> dict[tf.Operation, None]:
    """What ops are computed from; with ``scalar`` by numbers alone."""
    found = dict.fromkeys(ops)
    pending = list(ops)
    while pending:
        inputs = pending.pop().inputs
        new = [t.op for t in inputs if t.op not in found and (not scalar or t.shape.rank == 0)]
        found.update(dict.fromkeys(new))
        pending += new
    return found


def _after(ops: list[tf.Operation]) -> dict[tf.Operation, None]:
    """The ops that data flow to, not just their shapes."""
    found = dict.fromkeys(ops)
    pending = list(ops)
    while pending:
        readers = [op for out in pending.pop().outputs for op in out.consumers()]
        new = [op for op in readers if op not in found and op.type not in ("Shape", "Size", "ZerosLike", "OnesLike")]
        found.update(dict.fromkeys(new))
        pending += new
    return found


def _bytes(tensor: tf.Tensor) -> int:
    return math.prod(tensor.shape.as_list()) * tensor.dtype.size


# --------------------------------------------------------------------------- the page


def page(rows: list[Row]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *map(str, rows)]) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; the exit code."""
    rows = [row(name, make()) for name, make in models().items()]
    print("\n".join(map(str, rows)))
    if "--check" not in arguments:
        PAGE.write_text(page(rows), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page(rows):
        print("docs/collectives.md is not current: run python tools/collectives.py")
        return 1
    return int(not all(found.equal for found in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
