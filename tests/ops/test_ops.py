"""Every claim of the records of op types is held against TensorFlow itself, and claims that are missing are found."""

import functools
import gzip
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import DATA
from op_examples import Case, cases
from tpugraph import ops
from tpugraph.compiler.tpu_check import kernels
from tpugraph.ir import graphdef
from tpugraph.ops.record import Call, op, records

_JOINED: dict[str | None, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "mean": lambda a, b: (a + b) / 2,  # of halves
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "all": np.logical_and,
    "any": np.logical_or,
    "norm": np.hypot,
}


def same(found: Any, expected: Any) -> bool:
    if found.shape != expected.shape:
        return False
    if found.dtype.kind in "OSb":
        return bool((found == expected).all())
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3)
    return np.allclose(found, expected, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)


def part(value: Any, axis: int, half: int, first: int) -> Any:
    return np.take(value, range(first) if half == 0 else range(first, value.shape[axis]), axis)


CRASHING = {"BlockLSTM", "BlockLSTMV2", "BlockLSTMGrad", "BlockLSTMGradV2"}
"""Ops whose kernels end the process when operands do not fit together."""

WINDOW_IS_AN_OPERAND = {"MaxPoolV2", "MaxPoolGradV2", "MaxPoolGradGradV2"}
"""Pooling that may span channels, as the example does not."""

NO_KERNEL = {"AccumulateNV2", "CTCLossV2", "TopK"}
"""Ops that the installed TensorFlow has on no CPU."""

# --------------------------------------------------------------------------- dimensions


def halves(case: Case, axes: dict[int, int], letter: str, first: int) -> list[list[Any]]:
    """The outputs for two parts of the operands, along an axis of each: the first so many elements, and the others."""
    found = []
    for half in (0, 1):
        values = case.values()
        for i, axis in axes.items():
            values[i] = part(values[i], axis, half, first)
        length = next(values[i].shape[axis] for i, axis in axes.items())
        sized = [
            case.value(i, {letter: length}) if text[0] == "[" else values[i] for i, text in enumerate(case.operands)
        ]
        found.append(case.run(sized))
    return found


def dimension_faults(case: Case) -> Iterator[str]:
    """What is false about the signature of an example, and what it could say more."""
    signature = case.signature()
    if signature is None:
        return
    values = case.values()
    whole = case.run(values)
    if len(whole) != len(signature.outputs):
        yield f"{len(whole)} outputs, not {len(signature.outputs)}"
        return
    for dims, value in zip((*signature.operands, *signature.outputs), (*values, *whole), strict=True):
        if dims != "-" and len(dims) != value.ndim:
            yield f"{dims} for the shape {value.shape}"
            return
    yield from size_faults(case, values, whole)
    for letter in sorted(set("".join(signature.operands)) - set("*-")):
        axes = {i: dims.index(letter) for i, dims in enumerate(signature.operands) if letter in dims}
        largest = max(values[i].shape[axis] for i, axis in axes.items())
        axes = {i: axis for i, axis in axes.items() if values[i].shape[axis] == largest}  # others broadcast
        try:
            first, second = halves(case, axes, letter, largest // 2)
        except (tf.errors.OpError, ValueError) as error:
            yield f"fails on slices along {letter}: {error}"
            continue
        for i, (dims, one, two, both) in enumerate(zip(signature.outputs, first, second, whole, strict=True)):
            if dims == "-":
                continue
            axis = dims.find(letter)
            joined = np.concatenate([one, two], axis) if axis >= 0 else _JOINED[case.record.reduce_op](one, two)
            if not same(joined.astype(both.dtype), both):
                yield f"output {i} of slices along {letter} is not the slice, or the sum"
    if case.round == 0:
        yield from missing_dimensions(case, signature, values, whole)


def size_faults(case: Case, values: list[Any], whole: list[Any]) -> Iterator[str]:
    """Capital letters that do not have one size wherever they stand."""
    found = case.record.signature(case.call)
    if found is None:
        return
    for letter in sorted({c for dims in (*found.operands, *found.outputs) for c in dims if c.isupper()}):
        sizes = {
            value.shape[place - len(tail)]
            for dims, value in zip((*found.operands, *found.outputs), (*values, *whole), strict=True)
            for tail in [dims.replace("...", "")]
            for place, c in enumerate(tail)
            if c == letter
        }
        if len(sizes) > 1:
            yield f"the dimension {letter} has the sizes {sorted(sizes)}"


def missing_dimensions(case: Case, signature: Any, values: list[Any], whole: list[Any]) -> Iterator[str]:
    """Dimensions that the signature takes whole though the op is independent along them."""
    if case.record.name in (*CRASHING, *WINDOW_IS_AN_OPERAND) or case.compiled:
        return
    stars = [
        [None, *(axis for axis, c in enumerate(dims) if c == "*" and value.shape[axis] > 1)]
        for dims, value in zip(signature.operands, values, strict=True)
    ]
    for count, chosen in enumerate(itertools.product(*stars)):
        axes = {i: axis for i, axis in enumerate(chosen) if axis is not None}
        if len({values[i].shape[axis] for i, axis in axes.items()}) != 1 or len(axes) > 4:
            continue
        if count > 3000:
            return
        try:
            letter = next(case.shape(i)[axis] if case.shape(i) else "" for i, axis in axes.items())
            first, second = halves(case, axes, letter, 1)
        except (tf.errors.OpError, ValueError):
            continue
        length = {values[i].shape[axis] for i, axis in axes.items()}.pop()
        if all(_joins(*outputs, length) for outputs in zip(signature.outputs, first, second, whole, strict=True)):
            yield f"independent along {axes} (operand: dimension) too"


def _joins(dims: str, one: Any, two: Any, both: Any, length: int) -> bool:
    """Whether halves of an output make the whole along a dimension that the signature does not name, or added."""
    if dims == "-":
        return True
    if same(one, both) and same(two, both):
        return False  # no matter what is sliced
    if one.shape == two.shape and one.dtype.kind not in "OSb" and same(one + two, both):
        return True
    return any(
        c == "*"
        and (one.shape[axis], both.shape[axis]) == (1, length)
        and one.shape[:axis] + one.shape[axis + 1 :] == two.shape[:axis] + two.shape[axis + 1 :]
        and same(np.concatenate([one, two], axis), both)
        for axis, c in enumerate(dims)
    )


# --------------------------------------------------------------------------- linearity


def linear(case: Case, operands: frozenset[int]) -> bool:
    """Whether the op makes of sums of some operands the sum of what it makes of the addends, the others fixed."""
    signature = case.signature()
    made = []
    for seeds in ((1,), (2,), (1, 2)):
        values = case.values()
        for i in operands:
            addends = [case.random(i, seed) for seed in seeds]
            values[i] = functools.reduce(np.add, addends)
        made.append(case.run(values))
    silent = {i for i, dims in enumerate(signature.outputs) if dims == "-"} if signature else set()
    return all(
        same((one + two).astype(both.dtype), both)
        for i, (one, two, both) in enumerate(zip(*made, strict=True))
        if i not in silent
    )


def numeric(case: Case) -> list[int]:
    signature = case.signature()
    silent = {i for i, dims in enumerate(signature.operands) if dims == "-"} if signature else set()
    random = {i for i, text in enumerate(case.operands) if text[0] not in "=["} - silent
    return [i for i in sorted(random) if np.dtype(case.dtype(i)).kind in "fc"]


def matters(case: Case, index: int) -> bool:
    values = case.values()
    before = case.run(values)
    values[index] = case.random(index, 1)
    return not all(map(same, case.run(values), before))


def linearity_faults(case: Case) -> Iterator[str]:
    """What is false about the linearity that is claimed for an example, and what could be claimed more."""
    claimed = set(case.record.linear_in(case.call))
    for together in claimed:
        if not linear(case, together):
            yield f"not linear in {sorted(together)}"
    if case.round or not numeric(case):
        return
    if not all(value.dtype.kind in "fc" for value in case.run(case.values())) or case.record.name == "NextAfter":
        return  # comparisons, rounding
    data = [i for i in numeric(case) if matters(case, i)]
    for count in range(1, len(data) + 1):
        if count in (1, 2, len(data)):
            for some in map(frozenset, itertools.combinations(data, count)):
                if some not in claimed and not any(some < more for more in claimed) and linear(case, some):
                    yield f"linear in {sorted(some)} too"


# --------------------------------------------------------------------------- dimensions and linearity

ELSEWHERE = set("""Enter Exit Merge NextIteration Switch RefEnter RefExit RefIdentity RefMerge RefNextIteration RefSwitch
    LookupTableFind LookupTableFindV2""".split())  # fmt: skip
"""Ops that no example alone can run: tests below do. A reference form does what the other one does."""

NOWHERE = {"CrossReplicaSum", "_SwitchN", *NO_KERNEL}
"""Ops that no TensorFlow for a CPU runs, or none from Python."""

TESTABLE = sorted(name for name, record in records().items()
                if name not in ELSEWHERE | NOWHERE and (record.dims or record.linear or cases(name)))  # fmt: skip


@pytest.mark.parametrize("name", TESTABLE)
def test_dimensions_and_linearity_are_what_tensorflow_does(name: str) -> None:
    assert cases(name), "random numbers are no operands of it: give some in tests/data/op_examples.txt"
    both = [replace(case, round=number) for case in cases(name) for number in (0, 1)[: 2 - case.compiled]]
    faults = [
        f"{case.operands}: {fault}" for case in both for fault in (*dimension_faults(case), *linearity_faults(case))
    ]
    assert not faults, "\n".join(faults)


def test_control_flow_hands_on_what_it_gets() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.constant(np.arange(6.0).reshape(2, 3))
        entered = tf.raw_ops.Enter(data=value, frame_name="f")
        both = tf.raw_ops.Merge(inputs=[entered, entered])
        there, here = tf.raw_ops.Switch(data=value, pred=True)
        merged = tf.raw_ops.Merge(inputs=[tf.raw_ops.Identity(input=there), here])
        found = session.run([tf.raw_ops.Exit(data=both.output), merged.output])
        count = tf.compat.v1.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x), [0, value])
        assert all(same(one, np.arange(6.0).reshape(2, 3)) for one in [*found, session.run(count[1])])
    for name in ("Enter", "Exit", "NextIteration", "Merge", "Switch", "Identity"):
        plain, reference = ops.record(name), ops.record(f"Ref{name}")
        assert (plain.dims, plain.linear) == (reference.dims, reference.linear)


@pytest.mark.parametrize("held", [0.5, [0.5, 1.5]], ids=["number", "vector"])
def test_tables_are_looked_up_key_by_key(held: Any) -> None:
    default = np.zeros_like(held, np.float32)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default)
    table.insert(np.int64([3]), np.float32([held]))
    keys = np.int64([[3, 1], [2, 3], [3, 3]])
    found = [
        tf.raw_ops.LookupTableFindV2(table_handle=table.resource_handle, keys=k, default_value=default).numpy()
        for k in (keys, keys[:1], keys[1:])
    ]
    assert same(np.concatenate(found[1:]), found[0])
    call = Call(lambda name, default: default, (0, 2, default.ndim))
    signature = ops.record("LookupTableFindV2").signature(call)
    assert signature is not None
    assert signature.outputs == ("..." + "*" * default.ndim,)


# --------------------------------------------------------------------------- what occurs in graphs


def recorded() -> list[Path]:
    """The files of the tests' data, but for graphs that are damaged."""
    return [path for path in sorted(DATA.rglob("*")) if DATA / "faults" not in path.parents]


@functools.cache
def occurring() -> dict[str, str]:
    """The op types in the graphs under tests/data, and a graph of each."""
    found: dict[str, str] = {}
    for path in recorded():
        if path.name.endswith(".pb.gz"):
            definition = tf.compat.v1.GraphDef.FromString(gzip.decompress(path.read_bytes()))
            types = [
                n.op for nodes in (definition.node, *(f.node_def for f in definition.library.function)) for n in nodes
            ]
        elif path.suffix in (".pb", ".meta", ".pbtxt"):
            types = [node.op for node in graphdef.load(path)]
        else:
            continue
        found.update(dict.fromkeys(types, str(path.relative_to(DATA))))
    return found


BY_VALUES = set(
    """DiagPart DynamicPartition DynamicStitch GatherNd GatherV2 ParallelDynamicStitch Reshape SparseToDense""".split()
)
"""Ops whose dimensions no signature describes: their rules are functions of the graph."""

NO_DATA = set("""BroadcastGradientArgs ConcatOffset Const Fill Range Shape ShapeN Size SparseFillEmptyRows SparseReshape
    Unique Where""".split())  # fmt: skip
"""Ops that make numbers of shapes, or whose output is as long as the data say."""


def test_what_occurs_in_graphs_has_a_record_that_says_all() -> None:
    unknown = {name: graph for name, graph in occurring().items() if name not in records()}
    assert not unknown
    silent = {
        name
        for name in occurring()
        if ops.record(name).dims is None
        and not ops.record(name).host_only
        and ops.record(name).family not in ("control_flow", "container", "host", "input", "random", "tpu", "variable")
    }
    assert silent == BY_VALUES | NO_DATA


def test_signatures_fit_the_nodes_of_real_graphs() -> None:
    for path in [path for path in recorded() if path.suffix in (".pb", ".meta")]:
        for node in graphdef.load(path):
            shapes = [tensor.shape if tensor.node.outputs else None for tensor in node.inputs]
            call = Call(node.attr, tuple(None if shape is None else len(shape) for shape in shapes))
            record = ops.record(node.op)
            assert all(together <= set(range(len(shapes))) for together in record.linear_in(call)), node
            assert set(record.constant_operands(len(shapes))) <= set(range(len(shapes))), node
            told = [node.inputs[i] for i in record.size_operands(len(node.inputs))]
            assert all(t.node.outputs is None or t.dtype.name in ("int32", "int64") for t in told), node
            signature = record.signature(call)
            if signature is not None:
                assert len(signature.operands) == len(shapes), node
                assert node.outputs is None or len(signature.outputs) == len(node.outputs), node
                for dims, rank in zip(signature.operands, call.ranks, strict=True):
                    assert dims == "-" or "..." in dims or rank in (None, len(dims)), node


# --------------------------------------------------------------------------- effects


def test_an_op_has_one_record() -> None:
    with pytest.raises(ValueError, match="MatMul has a record already, on the page matrix"):
        op("MatMul", family="matrix")


def test_a_role_that_no_record_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no op has the role swich"):
        ops.with_role("merge", "swich")


def test_every_record_is_of_an_op_that_tensorflow_knows() -> None:
    assert [name for name in records() if ops.op_def(name) is None] == []
    forms = {form for r in records().values() for form in (r.resource_op, r.dense_op, r.stateless_op) if form}
    assert forms <= set(records())


def test_ops_with_a_signature_have_no_state() -> None:
    stateful = {name for name, record in records().items() if (record.dims or record.linear) and ops.is_stateful(name)}
    assert stateful == {"CheckNumerics", "CheckNumericsV2", "CrossReplicaSum", "LookupTableFindV2"}


def test_effects_are_denied_where_tensorflow_claims_them() -> None:
    harmless = [name for name, record in records().items() if record.effects is False]
    assert [name for name in harmless if not ops.is_stateful(name) or name in ops.WRITES] == []


@pytest.mark.parametrize("name", sorted(ops.WRITES))
def test_writes_are_of_the_operands_that_tensorflow_names(name: str) -> None:
    write, operands = ops.WRITES[name], list(ops.op_def(name).input_arg)
    handles = [i for i, arg in enumerate(operands) if arg.is_ref or tf.as_dtype(arg.type or 1) == tf.resource]
    assert list(write.variables) == handles
    assert operands[write.value].name in ("value", "grad", "gradient", "delta", "alpha", "updates")
    assert [i for i, arg in enumerate(operands) if arg.name == "indices"] == (
        [] if write.rows is None else [write.rows]
    )


def test_no_op_that_writes_variables_is_left_out() -> None:
    names = [name for name in dir(tf.raw_ops) if re.match("(Resource)?(Sparse)?(Apply|Scatter|Assign)", name)]
    handles = {
        name: [a for a in ops.op_def(name).input_arg if a.is_ref or a.type == tf.resource.as_datatype_enum]
        for name in names
    }
    assert {name for name in names if handles[name]} - set(ops.WRITES) <= {"AssignVariableXlaConcatND"}


CHANGED_BY_ROWS = sorted(
    name
    for name, write in ops.WRITES.items()
    if name.startswith("Resource") and write.rows is not None and "Div" not in name
)


@pytest.mark.parametrize("name", ["AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", *CHANGED_BY_ROWS])
def test_a_zero_changes_nothing_where_the_record_says_so(name: str) -> None:
    write, operands = ops.WRITES[name], ops.op_def(name).input_arg
    variables = [
        tf.Variable(np.linspace(-0.9, 0.9, 6, dtype=np.float32).reshape(3, 2) + (i > 0)) for i in write.variables
    ]
    before = [variable.numpy() for variable in variables]
    values: list[Any] = [v.handle for v in variables] + [tf.constant(0.5)] * (len(operands) - len(variables))
    for i, arg in enumerate(operands):
        if arg.name == "global_step":
            values[i] = tf.constant(3, tf.int64)
        if arg.name == "lr_power":
            values[i] = tf.constant(-0.5)
    values[write.value] = tf.zeros([3, 2] if write.rows is None else [1, 2])
    if write.rows is not None:
        values[write.rows] = tf.constant([[1]] if write.places else [1])
    getattr(tf.raw_ops, name)(**dict(zip([arg.name for arg in operands], values, strict=True)))
    assert all(same(v.numpy(), old) for v, old in zip(variables, before, strict=True)) == write.additive


@pytest.mark.parametrize("name", [name for name in CHANGED_BY_ROWS if ops.WRITES[name].kind == "scatter"])
def test_writing_once_more_changes_nothing_where_the_record_says_so(name: str) -> None:
    write, variable = ops.WRITES[name], tf.Variable([[1.0, -2.0], [3.0, 4.0]])
    rows = tf.constant([[1]] if write.places else [1])

    def written() -> np.ndarray:
        getattr(tf.raw_ops, name)(**{arg.name: value for arg, value in zip(
            ops.op_def(name).input_arg, (variable.handle, rows, tf.constant([[2.5, 5.5]])), strict=True)})  # fmt: skip
        return np.asarray(variable.numpy())

    assert same(written(), written()) == write.idempotent


# --------------------------------------------------------------------------- numbers


NOT_OF_WHOLE_NUMBERS = {"RealDiv", "Round"}
"""Ops that no CPU, or no CPU rightly, runs on whole numbers though their definition takes them."""


def mixed_operands(case: Case) -> Iterator[list[Any]]:
    """Operands to compute with: those of the example, and where the op takes them whole numbers, also negative ones."""
    yield case.values()
    if case.record.name in NOT_OF_WHOLE_NUMBERS:
        return
    whole = [np.int32([[7, -7, 7], [-7, 0, 6]]), np.int32([[2, 2, -2], [-2, 3, 3]])]
    takes = [a for a in ops.op_def(case.record.name).attr if a.name in ("T", "SrcT")]
    if takes and tf.int32.as_datatype_enum in (takes[0].allowed_values.list.type or [tf.int32.as_datatype_enum]):
        yield whole[: len(case.operands)]


@pytest.mark.parametrize("name", sorted(ops.COMPUTES))
def test_an_op_computes_the_function_that_the_record_names(name: str) -> None:
    function = ops.COMPUTES[name]
    for case in cases(name):
        for values in mixed_operands(case):
            (expected,) = case.run(values)
            with np.errstate(all="ignore"):
                made = np.asarray(function(*values)).astype(expected.dtype)
            assert same(made, expected), (case.operands, [value.dtype for value in values])


ONLY_ON_EXAMPLES = {"DivNoNan", "IsInf", "IsNan", "MulNoNan", "Xdivy"}
"""Ops that compute what others do but of zeros, infinities and what is no number, of which their examples have none."""


def test_no_function_of_an_op_is_left_unnamed() -> None:
    """No op without a function computes on its example what the record of another op names."""
    named = [function for function in set(ops.COMPUTES.values()) if isinstance(function, np.ufunc)]
    found = set()
    for name in sorted(set(TESTABLE) - set(ops.COMPUTES)):
        case = cases(name)[0]
        if case.record.dims != "elementwise":
            continue
        values, outputs = case.values(), case.run(case.values())
        numbers = all(value.dtype.kind in "fib" for value in (*values, *outputs)) and len(outputs) == 1
        for function in named if numbers else ():
            if function.nin == len(values) and computed(function, values, outputs[0]):
                found.add(name)
    assert found == ONLY_ON_EXAMPLES


def computed(function: np.ufunc, values: list[Any], expected: Any) -> bool:
    """Whether a function makes of numbers what an op makes of them, in its dtype."""
    with np.errstate(all="ignore"):
        try:
            made = np.asarray(function(*values))
        except TypeError:
            return False
    return made.dtype == expected.dtype and same(made, expected)


# --------------------------------------------------------------------------- which operand is what

NAMES_DIMENSIONS = {"axis", "reduction_indices", "reduction_axes", "dim", "concat_dim", "split_dim", "dimension"}


@pytest.mark.parametrize("name", sorted(records()))
def test_the_operand_that_names_dimensions_is_the_one_that_tensorflow_calls_so(name: str) -> None:
    operands = [argument.name for argument in ops.op_def(name).input_arg]
    found = [index for index, operand in enumerate(operands) if operand in NAMES_DIMENSIONS]
    claimed = ops.record(name).axis_operand(len(operands))
    assert found == ([] if claimed is None else [claimed])


NAMES_SHAPES = {"shape", "dims", "input_sizes", "filter_sizes", "orig_input_shape", "output_shape", "image_size"}

OF_OTHER_SHAPES = set(
    """ConcatOffset ImageProjectiveTransformV2 ImageProjectiveTransformV3 RaggedTensorToTensor RandomGamma RandomPoisson
    RandomPoissonV2 Reverse SparseSlice UnravelIndex""".split()
)
"""Ops with an operand called a shape that is not that of their output, or only a part of it."""


@pytest.mark.parametrize("name", sorted(records()))
def test_the_operand_that_shapes_the_output_is_the_one_that_tensorflow_calls_so(name: str) -> None:
    arguments = ops.op_def(name).input_arg
    found = [index for index, argument in enumerate(arguments) if argument.name in NAMES_SHAPES]
    claimed = ops.record(name).shaped_by
    assert name in OF_OTHER_SHAPES or found == ([] if claimed is None else [claimed])


def test_operands_with_elements_are_neither_sizes_nor_dimensions() -> None:
    told = {"Split": [1], "SplitV": [0], "Concat": [1, 2], "ConcatV2": [0, 1], "Reshape": [0], "GatherV2": [0, 1]}
    assert {name: ops.record(name).data_operands(2 if name == "Reshape" else 3) for name in told} == told | {
        "Split": [1, 2]}  # fmt: skip


@pytest.mark.parametrize("name", sorted(n for n, r in records().items() if r.family == "container"))
def test_what_an_op_does_to_a_container_is_what_its_operands_are_called(name: str) -> None:
    definition = ops.op_def(name)
    operands = [argument.name for argument in definition.input_arg]
    outputs = [argument.name for argument in definition.output_arg]
    held = ops.CONTENTS.get(name, ops.Contents())
    makes = operands and not any(operand.endswith("handle") for operand in operands)

    def called(*names: str) -> list[int]:
        return [index for index, operand in enumerate(operands) if operand in names]

    assert called("index") == ([] if held.index is None else [held.index])
    assert called("max_size", "size", "max_num_elements", "num_elements") == (
        [] if held.length is None else [held.length]
    )
    if held.shape is not None or name == "EmptyTensorList":
        assert (makes, called("element_shape")) == (True, [held.shape])
    if held.element_shape is not None:
        assert called("element_shape") == [held.element_shape]
    assert called("lengths") == ([] if held.lengths is None else [held.lengths])
    if held.puts is not None:
        assert called("elem", "item", "tensor", "value") == [held.puts]
    if held.takes is not None:
        assert outputs[held.takes] in ("elem", "item", "tensor", "value")
    variants = [
        index for index, argument in enumerate(definition.output_arg) if argument.type == tf.variant.as_datatype_enum
    ]
    hands_on = held.value and (held.puts is not None or held.shape is not None or held.grows)
    assert variants == ([0] if hands_on else [])
    assert held.value == ((name.startswith("TensorList") and name in ops.CONTENTS) or name == "EmptyTensorList")


# --------------------------------------------------------------------------- gradients


def test_xla_has_a_kernel_of_what_the_emulator_may_fuse() -> None:
    assert ops.FUSED - kernels().keys() == set()
    steps = {name for name, write in ops.WRITES.items() if write.kind == "apply" and write.rows is None}
    lacked = {name for name in steps if name.startswith("Resource")} - ops.FUSED
    assert lacked == {"ResourceApplyAdamWithAmsgrad"} - kernels().keys()


@pytest.mark.parametrize("name", sorted(ops.CALLS))
def test_what_calls_functions_names_them_in_attributes(name: str) -> None:
    attributes = ops.op_def(name).attr
    functions = sum(attribute.type in ("func", "list(func)") for attribute in attributes)
    assert functions == {"while": 2, "if": 2, "case": 1, "call": 1}[ops.record(name).role or ""]
    assert any(attribute.name == "output_shapes" for attribute in attributes) == (
        name in ops.with_role("while", "if", "case")
    )


@pytest.mark.parametrize("name", sorted(ops.REF_CONTROL_FLOW))
def test_control_flow_of_references_is_that_of_values_behind_a_prefix(name: str) -> None:
    assert ops.record(name.removeprefix("Ref")).role == ops.record(name).role
    assert ops.op_def(name).output_arg[0].is_ref
    assert not ops.op_def(name.removeprefix("Ref")).output_arg[0].is_ref


@pytest.mark.parametrize("name", sorted(ops.NO_GRADIENT & set(TESTABLE)))
def test_no_gradient_flows_where_the_record_says_so(name: str) -> None:
    for case in cases(name):
        operands = [tf.constant(value) for value in case.values()]
        watched = [operand for operand in operands if operand.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            outputs = [t for t in tf.nest.flatten(case.apply(operands)) if t.dtype.is_floating]
        gradients = tape.gradient(outputs, watched) if outputs else []
        assert all(gradient is None or not gradient.numpy().any() for gradient in gradients)


# --------------------------------------------------------------------------- XLA


def compile_time_constants(case: Case) -> set[int]:
    """The operands of which XLA says that it must know them when it compiles."""
    small = [i for i, value in enumerate(case.values()) if value.ndim < 2 or value.dtype.kind in "ib"]
    return {i for i in small if _refused(case, i)}


def _refused(case: Case, index: int) -> bool:
    @tf.function(jit_compile=True)
    def compiled() -> Any:
        operands = [tf.constant(value) for value in case.values()]
        unknown = tf.raw_ops.RandomUniformInt(shape=tf.constant([], tf.int32), minval=0, maxval=1)
        if operands[index].dtype == tf.bool:
            operands[index] = tf.logical_or(operands[index], unknown > 0)
        else:
            operands[index] += tf.cast(unknown, operands[index].dtype)
        outputs = [t for t in tf.nest.flatten(case.apply(operands)) if t.dtype not in (tf.resource, tf.variant)]
        return [*outputs, unknown]

    try:
        compiled.experimental_get_compiler_ir()(stage="hlo")
    except (tf.errors.OpError, ValueError) as error:
        return "must be a compile-time constant" in str(error)
    return False


@pytest.mark.parametrize(
    "name", sorted(ops.having(lambda record: bool(record.constants)) | (occurring().keys() & set(TESTABLE)))
)
def test_xla_must_know_the_operands_that_the_record_says(name: str) -> None:
    case = cases(name)[0]
    claimed = set(ops.record(name).constant_operands(len(case.operands)))
    assert compile_time_constants(case) == claimed
