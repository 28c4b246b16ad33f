"""A training graph split over N cores against the same graph run by TensorFlow alone.

Nothing here asks the compiler what a graph means: the loss and the train op are the program's own, so that a wrong
analysis cannot hide behind its own answer.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.analysis.trip_counts import UnboundedLoop
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import ConversionError, RolesError, UsageError
from tpugraph.tpu import program
from tpugraph.xla.bridge import Refused
from tpugraph.xla.jax_client import CompilerRefusal
from tpugraph.xla.mesh import Layout, Mesh

from .parts import Program, tf1

RELATIVE, ABSOLUTE = 1e-3, 1e-5
"""Allowed difference of a tensor: relative to its largest element, and beside that."""
MOVED = 2e-2
"""Allowed difference of how far a variable has moved since the start, relative to the largest such move."""
ROUNDING = 2e-6
"""What float32 rounds away of a move, relative to the variable's largest element."""
NOISE = 1e-4
"""What rounding may move a variable whose gradient is zero, as a share of the farthest move of any variable."""

Values = Mapping[str, np.ndarray[Any, Any]]


# --------------------------------------------------------------------------- running


@dataclass(frozen=True)
class Traced:
    """A graph with the names of its loss and its train op, and of its variables."""

    graph: tf.Graph
    loss: str
    train: str
    variables: list[str]
    trained: list[str]


@dataclass(frozen=True)
class Training:
    """The loss of each step, the variables afterwards, what they were at the start, and the session's report."""

    losses: np.ndarray[Any, Any]
    variables: Values
    start: Values = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)


def trace(build: Callable[[int], tuple[Any, Any]], rows: int, *, resource: bool = False, seed: int = 7) -> Traced:
    """The graph of a program at so many rows, under TensorFlow 1 rules, old control flow among them."""
    new_control_flow = tf1.control_flow_v2_enabled()
    tf1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph, tf1.variable_scope("", use_resource=resource):
            tf1.set_random_seed(seed)
            loss, train = build(rows)
            kept = [*tf1.global_variables(), *tf1.local_variables()]
            trained = [v.op.name for v in tf1.trainable_variables()]
            tf1.train.Saver(tf1.global_variables())
    finally:
        if new_control_flow:
            tf1.enable_control_flow_v2()
    return Traced(graph, loss.name, getattr(train, "op", train).name, [v.op.name for v in kept], trained)


def run_plain(traced: Traced, steps: int, *, nudged: bool = False) -> Training:
    """Train a graph with TensorFlow itself, as it stands: what optimizes graphs takes longer than these run.

    Args:
        traced: the graph.
        steps: how many.
        nudged: whether elements of variables begin one rounding off, by chance.
    """
    config = tf1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0
    with traced.graph.as_default(), tf1.Session(graph=traced.graph, config=config) as session:
        variables = {v.op.name: v for v in [*tf1.global_variables(), *tf1.local_variables()]}
        session.run(list({v.initializer.name: v.initializer for v in variables.values()}.values()))
        session.run([op for op in traced.graph.get_operations() if op.type == "MakeIterator"])
        start = session.run(variables)
        for variable in variables.values() if nudged else ():
            if variable.dtype.is_floating and variable.shape.rank:
                variable.load(_nudged(start[variable.op.name]), session)
        train = traced.graph.get_operation_by_name(traced.train)
        losses = [session.run([traced.loss, train])[0] for _ in range(steps)]
        return Training(np.asarray(losses), session.run(variables), start)


def _nudged(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    directions = np.random.default_rng(7).choice([-np.inf, np.nan, np.inf], size=value.shape).astype(value.dtype)
    return np.where(np.isnan(directions), value, np.nextafter(value, directions))


def run_on_cores(traced: Traced, steps: int, cores: int, session: Mapping[str, Any] | None = None) -> Training:
    return run_converted(converted(traced, steps, cores), traced, steps, session)


def converted(traced: Traced, steps: int, cores: int, **options: Any) -> program.Program:
    """A graph whose batch is split over so many cores, with all steps in one loop."""
    given = {"iterations_per_loop": steps, "loss": traced.loss, "train_op": traced.train, "random": "plain", **options}
    graph = graphdef.from_graph_def(traced.graph.as_graph_def(), source="made.pb")
    return convert(graph, num_replicas=cores, **given)


def run_converted(
    made: program.Program, traced: Traced, steps: int, session: Mapping[str, Any] | None = None
) -> Training:
    with TPUSession(made, **(session or {})) as running:
        running.initialize()
        start = dict(running.values(traced.variables))
        losses = running.train(steps)
        values = dict(running.values())
        values.update(running.values([name for name in traced.variables if name not in values]))
        return Training(np.asarray(losses), values, start, running.report)


def layout_of(traced: Traced, mesh: str, shard_optimizer: str = "", partitioner: str = "shardy") -> Layout:
    """The largest two trained variables of the step that an axis ``model`` of the mesh divides are sharded along it."""
    pieces = Mesh.parse(mesh).axes.get("model", 1)
    fits, step = {}, tf1.graph_util.extract_sub_graph(traced.graph.as_graph_def(), [traced.train])
    read = {node.name for node in step.node}
    for variable in (v for v in traced.graph.get_collection("trainable_variables") if v.op.name in read):
        sizes = variable.shape.as_list() if variable.shape.is_fully_defined() else []
        divided = [dimension for dimension, size in enumerate(sizes) if size % pieces == 0]
        if divided and pieces > 1:
            best = max(divided, key=sizes.__getitem__)
            fits[f"{re.escape(variable.op.name)}={'-,' * best}model"] = np.prod(sizes)
    return Layout.parse(mesh, sorted(fits, key=fits.__getitem__)[-2:], shard_optimizer, partitioner)


def run_partitioned(traced: Traced, steps: int, layout: Layout | str, **options: Any) -> Training:
    """Train a graph of the whole batch on a mesh among whose devices XLA divides it."""
    return run_converted(converted(traced, steps, 1, **options), traced, steps, {"engine": "xla", "mesh": layout})


# --------------------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Verdict:
    """What became of a program: ``equal``, ``different``, ``refused``, ``unsupported``, ``crashed``, or ``invalid`` by itself.

    It is ``unsupported`` where it was converted, and XLA refuses the step, as the compiler for a TPU would.
    """

    outcome: str
    words: str = ""

    def __str__(self) -> str:
        return f"{self.outcome}: {self.words}" if self.words else self.outcome


def differences(found: Training, expected: Training, share: float = 1.0) -> Iterator[tuple[float, str]]:
    """Each loss and variable that is off, with the number of times that the tolerance, or a share of it, is exceeded."""
    if found.losses.shape != expected.losses.shape:
        yield np.inf, f"losses of shape {found.losses.shape}, not {expected.losses.shape}"
        return
    allowed = {"relative": share * RELATIVE, "absolute": share * ABSOLUTE}
    yield from _compare("the loss", found.losses, expected.losses, **allowed)
    floating = [name for name, value in expected.start.items() if value.dtype.kind == "f"]
    farthest = max((_scale(expected.variables[name] - expected.start[name]) for name in floating), default=0.0)
    for name, value in expected.variables.items():
        if name not in found.variables:
            yield np.inf, f"'{name}' is missing"
            continue
        other = np.asarray(found.variables[name])
        yield from _compare(f"'{name}'", other, value, **allowed)
        start = expected.start.get(name)
        if start is not None and value.dtype.kind == "f" and other.shape == value.shape:
            moved, wanted = other.astype(np.float64) - start, value.astype(np.float64) - start
            yield from _compare(
                f"the move of '{name}'", moved, wanted, share * MOVED,
                share * (ROUNDING * _scale(value) + NOISE * farthest),
            )  # fmt: skip


def _scale(value: Any) -> float:
    return float(np.max(np.abs(value), initial=0.0))


def _compare(what: str, found: Any, expected: Any, relative: float, absolute: float) -> Iterator[tuple[float, str]]:
    if found.shape != expected.shape:
        yield np.inf, f"{what} has the shape {found.shape}, not {expected.shape}"
    elif expected.dtype.kind not in "fc":
        if not np.array_equal(found, expected):
            yield np.inf, f"{what} is {found.ravel()[:3]}, not {expected.ravel()[:3]}"
    elif expected.size:
        off = np.abs(found.astype(np.float64) - expected)
        off = np.where(np.isnan(off), np.inf, off)
        allowed = relative * _scale(expected) + absolute
        if off.max() > allowed:
            at = np.unravel_index(int(np.argmax(off)), off.shape)
            yield float(off.max() / allowed), f"{what} is {found[at]:.6g}, not {expected[at]:.6g}"


def compare(found: Training, expected: Training) -> Verdict:
    worst = max(differences(found, expected), default=None)
    words = "" if worst is None else f"{worst[1]} ({worst[0]:.3g} times the tolerance)"
    return Verdict("different", words) if words else Verdict("equal")


def _finite(training: Training) -> bool:
    numbers = [v for v in (training.losses, *training.variables.values()) if v.dtype.kind == "f"]
    return all(np.isfinite(v).all() for v in numbers)


def unsteady(traced: Traced, steps: int) -> str:
    """What differs between runs of a program by TensorFlow alone; nothing should.

    Nor should half of the tolerance be used where variables begin a rounding off: where rows are as good as equal, which of
    them is the largest is up to the last bit.
    """
    first, *others = (run_plain(traced, steps) for _ in range(4))
    found = [fault for other in others for fault in differences(other, first)]
    found += differences(run_plain(traced, steps, nudged=True), first, share=0.5)
    return max(found, default=(0.0, ""))[1]


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def check(
    build: Program, cores: int, session: Mapping[str, Any] | None = None, layout: Mapping[str, str] | None = None
) -> Verdict:
    """Train one graph with TensorFlow and, with such options of the session, on emulated cores, or on a mesh of so many devices.

    An equal training on a mesh says what XLA made; it is ``whole`` where that is no collective.
    """
    try:
        traced = trace(build, build.rows * cores, resource=build.resource)
        expected = run_plain(traced, build.steps)
    except Exception as error:
        return Verdict("invalid", f"{type(error).__name__}: {_line(error)}")
    if not _finite(expected):
        return Verdict("invalid", "not finite")
    told = {} if build.named else {"loss": None, "train_op": None}
    try:
        if layout:
            found = run_partitioned(traced, build.steps, layout_of(traced, **layout), **told)
        else:
            found = run_converted(converted(traced, build.steps, cores, **told), traced, build.steps, session)
    except (Refused, CompilerRefusal, UnboundedLoop) as error:
        return Verdict("unsupported", f"{error.fault}: '{error.node}'")
    except (RolesError, ConversionError, UsageError) as error:
        # where TensorFlow's inference finds the fault, the partition has overlooked it
        return Verdict("crashed" if "TensorFlow refuses" in str(error) else "refused", _line(error))
    except Exception as error:
        return Verdict("crashed", f"{type(error).__name__}: {_line(error)}")
    verdict = compare(found, expected)
    if verdict.outcome == "different" and (fault := unsteady(traced, build.steps)):
        return Verdict("invalid", f"a second run differs: {fault}")
    if layout and verdict.outcome == "equal":
        made, sharded = found.report["collectives"], found.report["sharded"]
        return Verdict("equal" if made else "whole", f"{len(sharded)} variables sharded, {', '.join(made)}")
    return verdict
