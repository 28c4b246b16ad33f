"""Verify: the plain graph against the converted one, step by step, on the user's own data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops, roles
from tpugraph.analysis import races
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.ir import Graph, Node, graphdef
from tpugraph.ir.file_names import rebind_files
from tpugraph.runtime import checkpoint
from tpugraph.runtime.session import TPUSession
from tpugraph.testing.checkpoint_pieces import Values, read_pieces
from tpugraph.testing.comparison import Comparison, Result, compare, relative
from tpugraph.testing.plain_run import PlainRun
from tpugraph.tpu.program import Program

_SEED = 20_111


@dataclass
class Verification:
    """What :func:`verify` found."""

    comparisons: list[Comparison]
    tolerance: float
    notes: list[str] = field(default_factory=list)
    batch: str = ""

    @property
    def ok(self) -> bool:
        """Whether every comparison stayed within the tolerance."""
        return all(c.within(self.tolerance) for c in self.comparisons)


def verify(
    model: str,
    steps: int,
    options: ConvertOptions,
    *,
    checkpoint_path: str | None = None,
    rebind: Mapping[str, str] | None = None,
    tolerance: float = 1e-4,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare the plain graph with the converted one.

    Args:
        model: path of a plain graph.
        steps: number of steps.
        options: how to convert; ``iterations_per_loop`` is set to ``steps``.
        checkpoint_path: where both start; None starts from the initialisers.
        rebind: file names in the graph to replace.
        tolerance: the largest difference allowed.
        progress: called with what runs next.

    Raises:
        TpuGraphError: a graph, a checkpoint or a run that fails.
    """
    with tempfile.TemporaryDirectory(prefix="tpugraph-verify-") as folder:
        work = _Verifier(model, steps, options, dict(rebind or {}), Path(folder), progress or (lambda text: None))
        comparisons = work.run(checkpoint_path)
    return Verification(comparisons, tolerance, work.notes, work.batch)


class _Verifier:
    def __init__(self, model: str, steps: int, options: ConvertOptions, rebind: dict[str, str], folder: Path,
                 progress: Callable[[str], None]) -> None:  # fmt: skip
        self.model = model
        self.steps = steps
        self.options = replace(options, iterations_per_loop=steps)
        self.rebind = rebind
        self.folder = folder
        self.progress = progress
        self.notes: list[str] = []
        self.batch = ""

    def run(self, checkpoint_path: str | None) -> list[Comparison]:
        self.progress("converting")
        one = self._convert(1)
        many = self._convert(self.options.num_replicas)
        self.batch = many.report["batch"]["line"]
        plain = self._plain(one)
        randoms = self._explain_randomness(plain)
        saved = checkpoint.keys_of(graphdef.from_graph_def(one.graph_def, source=self.model))
        start = self._start(plain, saved, checkpoint_path)
        self.progress(f"plain graph, {self.steps} steps")
        reference = Result(*plain.train(self.steps, start.values))
        if len(reference.losses) < self.steps:
            self.notes.append(f"the data of the plain graph ended after {len(reference.losses)} steps")
        k = self.steps
        single = self._train(one, start, "1 core, single steps", [1] * k)
        loop = self._train(one, start, f"1 core, one loop of {k}", [k])
        found = [
            compare("1 core, single steps, with the plain graph", reference, single),
            compare(f"1 core, one loop of {k}, with the plain graph", reference, loop),
        ]
        if self.options.num_replicas > 1:
            found += self._many_cores(plain, many, start, reference, randoms)
        plain.close()
        return found

    def _many_cores(self, plain: PlainRun, many: Program, start: _Start, reference: Result,
                    randoms: list[str]) -> list[Comparison]:  # fmt: skip
        n, k = self.options.num_replicas, self.steps
        single = self._train(many, start, f"{n} cores, single steps", [1] * k)
        loop = self._train(many, start, f"{n} cores, one loop of {k}", [k])
        found = [compare(f"{n} cores, one loop of {k}, with single steps", single, loop)]
        drawn = (
            f"the step draws random numbers ({', '.join(randoms[:3])}), which differ between cores" if randoms else ""
        )
        if self.options.batch_mode == "global":
            what = f"{n} cores, single steps, with the plain graph at the same batch"
            found.append(Comparison(what, skipped=drawn) if drawn else compare(what, reference, single))
        else:
            found.append(self._first_loss(plain, many, start, single, drawn))
        return found

    def _first_loss(self, plain: PlainRun, many: Program, start: _Start, single: Result, skip: str) -> Comparison:
        """The loss of step 1 on N cores against the plain graph's on the first N batches, at the same weights."""
        n, kind = self.options.num_replicas, many.report["reduction"]["kind"]
        what = f"{n} cores, loss of step 1, with the {kind} of the plain graph's on {n} batches"
        if not skip and kind not in ("mean", "sum"):
            skip = "each batch counts by a weight of its own"
        if not skip:
            skip = plain.why_loss_is_not_pure(kind)
        if not skip and not single.losses:
            skip = "the data ended before the first step"
        if skip:
            return Comparison(what, skipped=skip)
        losses = plain.losses(n, start.values)
        if len(losses) < n:
            return Comparison(what, skipped=f"the data holds {len(losses)} batches only")
        expected = float(np.mean(losses) if kind == "mean" else np.sum(losses))
        return Comparison(what, 1, relative(np.asarray(expected), np.asarray(single.losses[0])))

    # ------------------------------------------------------------------ parts

    def _load(self, *, closed: Sequence[str] = ()) -> Graph:
        graph = graphdef.load(self.model)
        rebind_files(graph, self.rebind)
        fix_seeds(graph)
        for name in closed:
            if drop_remainder(graph, graph[name]):
                self.notes.append(f"'{name}' drops its last partial batch, in the plain graph of this comparison too")
        return graph

    def _plain(self, converted: Program) -> PlainRun:
        graph = self._load(closed=closed_batches(converted))
        chosen = {"train_op": self.options.train_op, "loss": self.options.loss}
        found = roles.find(graph, **chosen)
        roots = [graph.tensor(found.loss.name).node, *(graph[op.name] for op in found.train_ops)]
        if raced := races.find(graph, roots):
            self.notes.append(_words_of(raced))
            if left := races.put_reads_first(graph, roots, raced):
                self.notes.append(f"'{left[0].read.name}' and '{left[0].write.name}' stay in no order, in a branch or a loop:"
                                  " a difference below may be chance")  # fmt: skip
        return PlainRun(graph, **chosen)

    def _convert(self, cores: int) -> Program:
        return convert(self._load(), replace(self.options, num_replicas=cores))

    def _explain_randomness(self, plain: PlainRun) -> list[str]:
        seeded = fix_seeds(graphdef.load(self.model))
        if seeded:
            self.notes.append(f"fixed seeds were set for this comparison: {', '.join(seeded[:4])}"
                              f"{f' and {len(seeded) - 4} more' if len(seeded) > 4 else ''} had none")  # fmt: skip
        randoms = plain.random_ops()
        if randoms:
            self.notes.append(
                f"the step draws random numbers ({', '.join(randoms[:3])}): with 1 core they are the plain graph's, "
                "with several each core has its own"
            )
        if plain.has_queues():
            self.notes.append("the input is a queue: with several threads its order can differ from run to run")
        return randoms

    def _start(self, plain: PlainRun, saved: Mapping[str, Any], checkpoint_path: str | None) -> _Start:
        """The weights that every run starts from, also as a checkpoint."""
        if checkpoint_path is None:
            values = plain.initial_values(list(saved))
        else:
            prefix = checkpoint.resolve(checkpoint_path, self.notes.append)
            if checkpoint.check(prefix, saved):
                self.notes.append("the input starts anew: the position in the checkpoint is not used")
            values = read_pieces(prefix, {name: (key, part) for name, (key, part, _) in saved.items()})
        path = self.folder / "start"
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            write = tf.raw_ops.SaveV2(prefix=str(path), tensor_names=[saved[name][0] for name in values],
                                      shape_and_slices=[saved[name][1] for name in values],
                                      tensors=list(values.values()))  # fmt: skip
            session.run(write)
        return _Start(values, path)

    def _train(self, program: Program, start: _Start, what: str, loops: Sequence[int]) -> Result:
        self.progress(what)
        losses: list[float] = []
        with TPUSession(program) as session:
            session.restore(start.path)
            for count in loops:
                found = session.train(count)
                losses += found
                if len(found) < count:
                    self.notes.append(f"{what}: the data ended after {len(losses)} steps")
                    break
            return Result(losses, session.values())


def _words_of(raced: Sequence[races.Race]) -> str:
    """What is said of races."""
    variables = list(dict.fromkeys(race.variable.name for race in raced))
    more = f" and {len(variables) - 1} more" if len(variables) > 1 else ""
    return (
        f"the plain graph leaves to chance whether '{raced[0].read.name}' reads '{variables[0]}'{more} before or after"
        f" '{raced[0].write.name}' writes it; here it runs with the reads first, as a converted graph does"
    )


@dataclass(frozen=True)
class _Start:
    """Weights to start from: values by variable, and the prefix of a checkpoint that holds them."""

    values: Values
    path: Path


def fix_seeds(graph: Graph) -> list[str]:
    """Give every random op and every shuffle without a seed a fixed one, the same in each copy of the graph."""
    seeded = []
    for position, node in enumerate(graph):
        if node.op in ops.RANDOM and node.has_attr("seed2") and not (node.attr("seed") or node.attr("seed2")):
            graph.set_attr(node, "seed", _SEED)
            graph.set_attr(node, "seed2", position + 1)
            seeded.append(node.name)
        elif ops.is_dataset(node.op) and _seed_dataset(graph, node):
            seeded.append(node.name)
    return seeded


def _seed_dataset(graph: Graph, node: Node) -> bool:
    """Give a dataset op that takes seeds, both of them zero, others; returns whether it did."""
    names = [argument.name for argument in ops.op_def(node.op).input_arg]
    places = [names.index(name) for name in ("seed", "seed2") if name in names]
    if len(places) != 2 or len(names) != len(node.inputs):
        return False
    constants = [node.inputs[place].node for place in places]
    if any(constant.op != "Const" or constant.attr("value").any() for constant in constants):
        return False
    for place, constant in zip(places, constants, strict=True):
        attributes = {"dtype": constant.attr("dtype"), "value": np.int64(_SEED + place)}
        own = graph.add("Const", f"{node.name}/seed", attrs=attributes, device=constant.device)
        graph.set_input(node, place, own.out())
    return True


def closed_batches(program: Program) -> list[str]:
    """The dataset ops that the conversion said something about: those whose partial batches it drops."""
    return [note["node"] for note in program.report["why"] if note["stage"] == "static-shapes"]


def drop_remainder(graph: Graph, node: Node) -> bool:
    """Let a batch op drop its last partial batch; returns whether it did not before."""
    names = [argument.name for argument in ops.op_def(node.op).input_arg]
    if not ops.is_dataset(node.op) or "drop_remainder" not in names:
        return False
    place = names.index("drop_remainder")
    kind = node.inputs[place].node.attr("dtype")
    own = graph.add("Const", f"{node.name}/drop_remainder", attrs={"dtype": kind, "value": np.asarray(True)})
    graph.set_input(node, place, own.out())
    return True
