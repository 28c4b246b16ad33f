"""Writes the table of docs/collectives.md: what the cores combine in a step of known models, beside the least that is possible.

python tools/collectives.py

The least is counted in the plain graph, by what a data-parallel step of any kind has to combine, and knows nothing of placements.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

ROOT = Path(__file__).absolute().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from models import corpus, family  # noqa: E402
from programs import PROGRAMS, parts, trace  # noqa: E402
from tpugraph.compiler import ConvertOptions, convert, find_roles  # noqa: E402
from tpugraph.compiler.conversion import another_batch  # noqa: E402
from tpugraph.ir import graphdef  # noqa: E402
from tpugraph.ir.walks import reached  # noqa: E402

PAGE = ROOT / "docs" / "collectives.md"
CORES = 8
HANDS_ON = ("Identity", "ReadVariableOp", "Enter")
LAST_LOSS = "tpugraph/device/while/Exit_1"
"""Behind the loop: the loss of the last step is summed once for each Session.run."""

Model = tuple[Any, dict[str, Any]]
"""A GraphDef to convert, and what the conversion is told of it."""


def models() -> dict[str, Callable[[], Model]]:
    """The models by name, each made when it is asked for."""

    def recorded(name: str) -> Model:
        return graphdef.to_graph_def(corpus(name).graph()), {}

    def with_rows(rows: int) -> Model:
        graph = family("bert_small").graph()
        graph.roles = find_roles(graph, ConvertOptions())
        another_batch(graph, rows)
        return graphdef.to_graph_def(graph), {}

    def program(name: str, **sizes: Any) -> Model:
        sized = PROGRAMS[name].sized(**sizes)
        traced = trace(sized, sized.rows * CORES)
        return traced.graph.as_graph_def(), {"loss": traced.loss, "train_op": traced.train}

    def drawn(name: str, *shape: int) -> Any:
        """A variable whose first value is drawn, so that the graph does not hold it."""
        return tf.compat.v1.get_variable(name, shape, initializer=tf.compat.v1.glorot_uniform_initializer(seed=1))

    bert = {"seq": 16, "hidden": 64, "intermediate": 256, "heads": 4, "vocabulary": 1000, "positions": 32}
    resnet = {"blocks": (3, 4, 6, 3), "units": 64, "side": 32, "classes": 1000}  # ResNet-50's, but for its images' side
    return {
        "iris (corpus `iris_dnn`)": lambda: recorded("iris_dnn"),
        "CNN (corpus `mnist_cnn`)": lambda: recorded("mnist_cnn"),
        "CNN with batch norm (corpus `batch_norm`)": lambda: recorded("batch_norm"),
        "LSTM with an embedding (corpus `lstm_dynamic`)": lambda: recorded("lstm_dynamic"),
        "BERT (family `bert_small`)": lambda: with_rows(4 * CORES),
        "BERT (program `attention/bert`, Adam, 1,000 words)": lambda: program(
            "attention/bert_2", rows=4, **bert, optimizer=parts.adam
        ),
        "ResNet-50 (program `images/residual`)": lambda: program("images/residual_2", **resnet, weights=drawn),
    }


def row(name: str, model: Model) -> str:
    """A line of the table: what a converted model combines, and the least."""
    definition, options = model
    with tf.Graph().as_default() as plain:
        tf.graph_util.import_graph_def(definition, name="")
    program = convert(graphdef.from_graph_def(definition, source=name), num_replicas=CORES, **options)
    made = [node for node in program.graph_def.node if node.op == "CrossReplicaSum" and node.input[0] != LAST_LOSS]
    trained, norms = program.report["trained"], list(_norms(plain))
    loss = plain.get_operation_by_name(program.report["loss"]["name"].partition(":")[0])
    parts = (gradients(plain, trained), statistics(norms, trained), bounds(plain), picked(plain), divisors(plain, loss))
    least = [size for part in parts for size in part]
    found = [len(made), program.report["collectives"]["bytes"]], [len(least), sum(least)]
    cells = [name, *(f"{n:,}" for n in (len(trained), len(norms), *found[0], *found[1]))]
    return f"| {' | '.join(cells)} | {'yes' if found[0] == found[1] else 'no'} |"


# --------------------------------------------------------------------------- the least


def gradients(graph: tf.Graph, trained: list[str]) -> Iterator[int]:
    """The bytes of the gradient of each trained variable."""
    for name in trained:
        value = graph.get_operation_by_name(name)
        shape = value.get_attr("shape").dim
        whole = 4 * math.prod(d.size for d in shape)
        reads = _reads(value)
        if len(reads) == 1 and reads[0].type in ("Slice", "StridedSlice"):
            yield _bytes(reads[0].outputs[0])
        elif reads and all(read.type in ("Gather", "GatherV2", "ResourceGather") for read in reads):
            numbers = sum(_bytes(read.inputs[1]) // read.inputs[1].dtype.size for read in reads)
            yield min(whole, numbers * (whole // shape[0].size + 4))
        else:
            yield whole


def _reads(variable: tf.Operation) -> list[tf.Operation]:
    """The ops of the forward step that compute with a variable: all that have a gradient's node beside them."""
    handed_on = reached([variable], lambda op: [to for to in _readers(op) if to.type in HANDS_ON])
    return [to for op in handed_on for to in _readers(op) if to.type not in HANDS_ON and _has_gradient(to)]


def _readers(op: tf.Operation) -> list[tf.Operation]:
    return [to for out in op.outputs for to in out.consumers()]


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
    while op.type in HANDS_ON:
        op = op.inputs[0].op
    return op


def _norms(graph: tf.Graph) -> Iterator[tf.Operation]:
    for op in graph.get_operations():
        if op.type in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3") and op.get_attr("is_training"):
            yield op


def bounds(graph: tf.Graph) -> Iterator[int]:
    """The bytes of a number from each core, for each largest value of the batch that a loop runs to."""
    fed = _fed(graph)
    for op in graph.get_operations():
        if op.type == "Max" and op in fed and any(other.type == "LoopCond" for other in _after([op])):
            yield CORES * op.outputs[0].dtype.size


def picked(graph: tf.Graph) -> Iterator[int]:
    """The bytes of all rows that numbers of the data pick from, and of the gradient with respect to them."""
    fed = _fed(graph)
    for op in graph.get_operations():
        if op.type != "GatherV2" or op.get_attr("batch_dims") or not _has_gradient(op):
            continue
        if {op.inputs[0].op, op.inputs[1].op} <= fed.keys():
            yield from (_bytes(op.inputs[0]), _bytes(op.inputs[0]))


def divisors(graph: tf.Graph, loss: tf.Operation) -> Iterator[int]:
    """The bytes of each sum over the data of the batch that something on the way to the loss is divided by."""
    fed = _fed(graph)
    divisions = [op for op in _before([loss]) if op.type in ("RealDiv", "Div", "DivNoNan") and op in fed]
    numbers = _before([op.inputs[1].op for op in divisions if op.inputs[1].shape.rank == 0], scalar=True)
    for op in numbers:
        if op.type == "Sum" and op in fed and op.inputs[0].shape.rank:
            yield op.outputs[0].dtype.size


def _before(ops: list[tf.Operation], *, scalar: bool = False) -> dict[tf.Operation, None]:
    """What ops are computed from; with ``scalar`` by numbers alone."""
    return reached(ops, lambda op: [t.op for t in op.inputs if not scalar or t.shape.rank == 0])


def _after(ops: list[tf.Operation]) -> dict[tf.Operation, None]:
    """The ops that data flow to, not just their shapes."""
    shapes = ("Shape", "Size", "ZerosLike", "OnesLike")
    return reached(ops, lambda op: [to for to in _readers(op) if to.type not in shapes])


def _fed(graph: tf.Graph) -> dict[tf.Operation, None]:
    """The ops that the batch flows to."""
    return _after([op for op in graph.get_operations() if op.type == "IteratorGetNext"])


def _bytes(tensor: tf.Tensor) -> int:
    return math.prod(tensor.shape.as_list()) * tensor.dtype.size


if __name__ == "__main__":
    rows = [row(name, make()) for name, make in models().items()]
    head, separator, _ = PAGE.read_text(encoding="utf-8").partition(f"|{' --- |' * 8}\n")
    PAGE.write_text("\n".join([head + separator + rows[0], *rows[1:], ""]), encoding="utf-8")
    sys.exit(int(not all(line.endswith("yes |") for line in rows)))
