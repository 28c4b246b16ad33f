"""Reduce: from a graph that shows a fault to the smallest one that still does, with a pytest that holds it.

A try is a training graph of a part of the step, in which values that were recorded from the plain graph stand in for the rest.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from networkx.utils import UnionFind

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, shapes
from tpugraph.analysis.batched_input import commonest
from tpugraph.compiler import ConvertOptions, convert, find_roles, tpu_check
from tpugraph.compiler.options import given
from tpugraph.ir import Graph, Node, Tensor, attrs, graphdef
from tpugraph.ir.builder import Builder
from tpugraph.ir.conditionals import NONE, side, sides
from tpugraph.ir.loops import frame_chain, frames_around
from tpugraph.ir.side_effects import rebind_files
from tpugraph.ir.walks import reached, variable_of
from tpugraph.runtime import batch_search
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import PipelineError, RunError, TpuGraphError, UsageError
from tpugraph.support.files import write_together
from tpugraph.support.process import without_garbage_collection
from tpugraph.support.wording import counted
from tpugraph.testing.plain_run import PlainRun, Values, checkpoint_values, fix_seeds
from tpugraph.testing.tensor_comparison import compare
from tpugraph.xla import stablehlo, topologies

_MEMORY = 8 << 30  # bytes of data that one try may hold
_ALIKE = 10.0  # by how much a difference may grow or shrink and be the same fault
_ASKED = ("steps", "tolerance", "topology", "checkpoint", "rebind")
_SCOPE, _FLOAT = "recorded", attrs.dtype("float32")

Unit = tuple[Node, ...]
"""Nodes that are kept or cut together, in topological order."""

Bypasses = Mapping[Node, Tensor]
"""What is read instead of the output of a node that is cut."""


@dataclass(frozen=True)
class Question:
    """A fault that is looked for, and how: the arguments of :func:`reduce`, and what the fault has to look like ("" takes any)."""

    when: str
    options: ConvertOptions = field(default_factory=ConvertOptions)
    steps: int = 1
    tolerance: float = 1e-4
    topology: str = "v5e:2x4"
    checkpoint: str | None = None
    rebind: Mapping[str, str] = field(default_factory=dict)
    signature: str = ""
    difference: float = 0.0  # of differs with a signature: the size that the difference has to be like

    def __post_init__(self) -> None:
        kind, _, detail = self.when.partition(":")
        if kind not in _LOOKS or (kind in ("refused", "xla")) != bool(detail):
            raise UsageError(
                f"--when={self.when} is no symptom", fix="--when=differs, refused:CODE, crashes or xla:TEXT"
            )

    @property
    def detail(self) -> str:
        return self.when.partition(":")[2]

    @classmethod
    def of(cls, when: str, options: ConvertOptions | None, fields: Mapping[str, Any]) -> Question:
        own = {name: value for name, value in fields.items() if name in _ASKED and value is not None}
        return cls(when, given(options, {n: v for n, v in fields.items() if n not in _ASKED}), **own)

    def changed(self) -> dict[str, Any]:
        """The arguments of :func:`symptom` that have not their default."""
        own, usual = ({n: getattr(q, n) for n in _ASKED} | vars(q.options) for q in (self, Question("differs")))
        return {name: value for name, value in own.items() if value != usual[name]}


@dataclass(frozen=True)
class Answer:
    """Whether a graph shows a fault, in words, its signature and its nodes; for ``differs`` also the cores and the difference."""

    shows: bool
    words: str = ""
    signature: str = ""
    nodes: tuple[str, ...] = ()
    cores: int = 0
    difference: float = 0.0


# --------------------------------------------------------------------------- faults


def look(model: str, question: Question) -> Answer:
    """Look for a fault in this process; whatever happens is an answer."""
    kind = question.when.partition(":")[0]
    try:
        return _LOOKS[kind](model, question)
    except Exception as error:
        own = isinstance(error, PipelineError) and error.__cause__ is not None  # what a user's own pass died of
        if isinstance(error, TpuGraphError) and not (kind == "crashes" and own):
            return Answer(shows=False, words=error.fault, nodes=_named(error))
        found = error.__cause__ or error if own else error
        frames = [f for f in traceback.extract_tb(found.__traceback__) if not f.filename.startswith(sys.base_prefix)]
        place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
        signature, told = f"{type(found).__name__} at {place}", str(found)[:300]
        shows = kind == "crashes" and question.signature in ("", signature)
        return Answer(shows, f"{signature}: {told}", signature, tuple(re.findall(r"[\w./-]+", told)))


def _load(model: str, question: Question) -> Graph:
    graph = graphdef.load(model)
    rebind_files(graph, question.rebind)
    return graph


def _named(error: TpuGraphError) -> tuple[str, ...]:
    return (error.node.partition(" (")[0],) if error.node else ()


def _differs(model: str, question: Question) -> Answer:
    """Compares each tensor of the step on one core, then on all cores; with a signature that tensor alone, on all cores."""
    if not question.signature and question.options.num_replicas != 1:
        found = _differs(model, replace(question, options=replace(question.options, num_replicas=1)))
        if found.shows:
            return found
    tensors = f"^{re.escape(question.signature)}$" if question.signature else "all"
    compared = compare(model, question.options, tensors=tensors, steps=question.steps, tolerance=question.tolerance,
                       checkpoint=question.checkpoint, rebind=question.rebind)  # fmt: skip
    first = compared.first
    if first is None:
        return Answer(shows=False)
    words = f"'{first.tensor}' differs by {first.difference:.1e} on {counted(compared.cores, 'core')}"
    if question.signature and not question.difference / _ALIKE <= first.difference <= question.difference * _ALIKE:
        return Answer(shows=False, words=f"{words}, which is another fault")
    nodes = tuple(name.partition(":")[0] for name in (first.tensor, first.reader, *first.reads, *first.unseen) if name)
    return Answer(True, words, first.tensor, nodes, compared.cores, first.difference)


def _refused(model: str, question: Question) -> Answer:
    """The conversion refuses the graph, or `check` finds what stops it, by the code that is asked for."""
    code, graph, found = question.detail, _load(model, question), list[tuple[str, str, str]]()
    if code in tpu_check.CAUSES:
        report = tpu_check.check(graph, question.options)
        found = [(f"{f.cause} {f.op}", f.node, f.fault) for f in report.findings if f.cause == code]
    else:
        try:
            convert(graph, question.options)
        except TpuGraphError as error:
            kind, stage = type(error).__name__, error.stage or ""
            if code in (kind, stage) or code in error.fault:
                alike = re.sub(r"'[^']*'|\d+", "", error.fault)  # without names and numbers
                found = [(f"{kind} {stage} {alike}", "".join(_named(error)), error.fault)]
    found = [one for one in found if question.signature in ("", one[0])]
    nodes = tuple(node for _, node, _ in found if node)
    return Answer(True, found[0][2], found[0][0], nodes) if found else Answer(shows=False)


def _crashes(model: str, question: Question) -> Answer:
    """The conversion or the training dies of an exception, which :func:`look` catches, or takes the process with it."""
    program = convert(_load(model, question), replace(question.options, iterations_per_loop=question.steps))
    if question.options.mode == "train":
        with TPUSession(program) as session:
            session.train(question.steps)
    return Answer(shows=False)


def _xla(model: str, question: Question) -> Answer:
    """The TPU compiler complains in such words."""
    program = convert(_load(model, question), question.options)
    graph = graphdef.from_graph_def(program.graph_def, source=model)
    try:
        module = stablehlo.lower(batch_search.without_hints(graph))
        topologies.compile_once(module, question.topology, lambda note: None)
    except TpuGraphError as error:
        return Answer(question.detail in error.fault, error.fault, question.detail, _named(error))
    return Answer(shows=False)


_LOOKS = {"differs": _differs, "refused": _refused, "crashes": _crashes, "xla": _xla}


# --------------------------------------------------------------------------- tries


class Tries:
    """Looks for faults in children of a server that has all imports, so that a crash is an answer; a context manager."""

    def __init__(self, seconds: float = 120.0) -> None:
        self._seconds, self.count = seconds, 0
        self._folder = tempfile.TemporaryDirectory(prefix="tpugraph-reduce-")
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._server = subprocess.Popen([sys.executable, "-c", "from tpugraph.testing import reduce; reduce.serve()"],
                                        env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)  # fmt: skip

    def __enter__(self) -> Tries:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()  # its input ends, and so does it
        self._folder.cleanup()

    def ask(self, model: Graph | str | os.PathLike[str], question: Question) -> Answer:
        """The answer for a graph, or for its file; a RunError where the server itself cannot run."""
        self.count += 1
        if isinstance(model, Graph):
            candidate = Path(self._folder.name, "candidate.pb")
            graphdef.save(model, candidate)
            model = candidate
        try:
            pickle.dump((os.fspath(model), question, self._seconds), self._server.stdin)  # type: ignore[arg-type]
            self._server.stdin.flush()  # type: ignore[union-attr]
            answer: Answer = pickle.load(self._server.stdout)  # type: ignore[arg-type]
        except (EOFError, BrokenPipeError) as error:
            code = self._server.wait()
            raise RunError(f"the server of tries has ended with code {code}", fix="is there enough memory?") from error
        return answer


def serve() -> None:
    """Answer the questions on stdin, each in a child, until they end."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else goes where the answers go
    while True:
        try:
            model, question, seconds = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answers.write(_attempt(model, question, seconds))
        answers.flush()


def _attempt(model: str, question: Question, seconds: float) -> bytes:
    """The pickled answer of a try in a child; what ends the child is an answer too."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            with without_garbage_collection(), os.fdopen(writer, "wb") as pipe:
                pickle.dump(look(model, question), pipe)
        finally:
            os._exit(0)  # without what Python does at its end: threads of TensorFlow may hang there
    os.close(writer)
    late = not select.select([reader], [], [], seconds)[0]
    if late:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer and not late:
        return answer
    words = f"the process died of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "the process ended"
    words = "there was no end in time" if late else words
    return pickle.dumps(Answer(question.when == "crashes" and question.signature in ("", words), words, words))


# --------------------------------------------------------------------------- the search


class Search:
    """The search for the fewest units that still show a fault: neighbourhoods, halves, delta debugging, bypasses.

    ``shows`` tries a selection of units, by their numbers in ascending order, with bypasses round some that are cut.
    """

    def __init__(self, units: Sequence[Unit], shows: Callable[[Sequence[int], Bypasses], bool]) -> None:
        self._units, self._shows = units, shows
        self._bypasses: dict[Node, Tensor] = {}
        self._tried: dict[tuple[frozenset[Node], tuple[int, ...]], bool] = {}
        self._of = {node: number for number, unit in enumerate(units) for node in unit}

    def smallest(self, hints: Iterable[str]) -> list[int]:
        """A selection that shows the fault, from which the search can remove nothing; the fault points to the nodes ``hints``.

        Units far from one of them are dropped before delta debugging, which would keep either of two paths at random; then what
        comes before the fault in topological order, and what comes after it.
        """
        kept, named = list(range(len(self._units))), {node.name: number for node, number in self._of.items()}
        for start in list(dict.fromkeys(named[name] for name in hints if name in named))[:4]:
            near = self._nearest(start)
            if (count := self._fewest(near, 1)) < len(near):
                kept = sorted(near[:count])
                break
        for _ in range(2):
            kept = kept[::-1]
            kept = kept[: self._fewest(kept)]
        kept = self._ddmin(kept)
        shorter = self._bypassed(kept)
        return kept if len(shorter) == len(kept) else self._ddmin(shorter)

    def _try(self, kept: Iterable[int]) -> bool:
        numbers = tuple(sorted(kept))
        key = frozenset(self._bypasses), numbers
        if numbers and key not in self._tried:
            self._tried[key] = self._shows(numbers, self._bypasses)
        return bool(numbers) and self._tried[key]

    def _fewest(self, units: Sequence[int], first: int = 0) -> int:
        """How many of the first units show it, where all do; ``first`` are tried, then ever more, or else halves of all."""
        low, high = 0, first or len(units)
        while high < len(units) and not self._try(units[:high]):
            low, high = high, high * 3
        high = min(high, len(units))
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._try(units[:middle]) else (middle, high)
        return high

    def _nearest(self, start: int) -> list[int]:
        """All units, by their distance along edges."""
        near = {start: None}
        for number in (order := [start]):  # grows while it is walked
            beside = (other for node in self._units[number] for other in (*node.producers(), *node.consumers()))
            new = {self._of[node]: None for node in beside if node in self._of and self._of[node] not in near}
            near |= new
            order += new
        return order

    def _bypassed(self, kept: list[int]) -> list[int]:
        """Bypasses nodes whose readers can read one of their operands instead: all such nodes, then halves of them."""
        inside = {node for number in kept for node in self._units[number]}
        ways = {number: found for number in kept if (found := _bypass(self._units[number], inside)) is not None}
        groups = [list(ways)] if ways else []
        while groups:
            group = groups.pop()
            before, rest = dict(self._bypasses), [number for number in kept if number not in group]
            self._bypasses |= {self._units[number][0]: ways[number] for number in group}
            if self._try(rest):
                kept = rest
                continue
            self._bypasses, half = before, len(group) // 2
            groups += [group[half:], group[:half]] if half else []
        return kept

    def _ddmin(self, kept: list[int]) -> list[int]:
        """Zeller's delta debugging: tries each part and each complement, in ever smaller parts."""
        parts = 2
        while len(kept) > 1:
            size = -(-len(kept) // parts)
            chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
            rests = [[n for n in kept if n not in chunk] for chunk in chunks]
            smaller = next((c for c in (*chunks, *rests) if len(c) < len(kept) and self._try(c)), None)
            if smaller is not None:
                parts = 2 if len(smaller) <= size else max(parts - 1, 2)
                kept = smaller
            elif size == 1:
                break
            else:
                parts = min(parts * 2, len(kept))
        return kept


def _bypass(unit: Unit, inside: set[Node]) -> Tensor | None:
    """An operand of a unit's only node that its readers can read instead, from inside where there is one."""
    node, *others = unit
    if others or len(node.outputs or ()) != 1 or node.op in ops.VARIABLES or node.out().dtype.is_handle:
        return None
    alike = [t for t in node.inputs if t.node.output(t.port) == node.output(0) and shapes.is_static(t.shape)]
    return min(alike, key=lambda tensor: tensor.node not in inside, default=None)


# --------------------------------------------------------------------------- cut graphs


def units_of(graph: Graph, nodes: NodeSet) -> list[Unit]:
    """The units that the nodes of a step fall into, in topological order.

    Together stay: a loop with the loops inside of it; what stands between the Switches of a predicate and their Merges, forward
    and backward; whoever hands on a handle (a stack, a list, an iterator) with who reads it. Variables are units of their own.
    """
    order = graph.topological_order(nodes)
    joined: UnionFind[object] = UnionFind(order)
    for one, other in _together(graph, order, nodes):
        joined.union(one, other)
    found: dict[object, list[Node]] = {}
    for node in order:
        found.setdefault(joined[node], []).append(node)
    return [tuple(unit) for unit in found.values()]


def _together(graph: Graph, order: Iterable[Node], nodes: NodeSet) -> Iterator[tuple[object, object]]:
    frame_of, around, on = analysis.frames(graph), frames_around(graph), sides(graph)
    for node in order:
        if frame_of[node]:
            yield node, ("loop", frame_chain(around, frame_of[node])[-2])
        decided = on.get(node, NONE).union(*(on.get(t.node, NONE) | side(t) for t in node.inputs), side(node.out()))
        yield from ((node, ("if", predicate)) for predicate, _ in decided)
        for tensor in node.inputs:
            if tensor.node in nodes and tensor.node.op not in ops.VARIABLES and tensor.dtype.is_handle:
                yield tensor.node, node


class Subject:
    """The plain graph, which is edited, with values of its tensors at its first batches; no variable is trained.

    ``notes`` say why values are made up from the shapes, as where files are not here.
    """

    def __init__(self, graph: Graph, options: ConvertOptions, batches: int, checkpoint: str | None) -> None:
        fix_seeds(graph)
        shapes.infer(graph)
        self.graph, self.options, self.batches, self.notes = graph, options, batches, list[str]()
        self.roles = find_roles(graph, options)
        self.units = units_of(graph, graph.ancestors(graph[name] for name in self.roles.roots))
        takes = [graph[finding.name] for finding in self.roles.inputs]
        self.rows = commonest(shape[0] for node in takes for _, shape in node.outputs or () if shape)
        self.varying = graph.descendants([*takes, *graph.of_type(*ops.RANDOM)], data_only=True)
        self.fills = [graph[name] for name in (*self.roles.table_initializers, *self.roles.iterator_initializers)]
        self.variables: Values = {}
        self._values: dict[Tensor, list[Any]] = {}
        self._plain: PlainRun | None = None
        made = [node.out(port) for node in takes for port in range(len(node.outputs or ()))]
        self._inputs = [tensor for tensor in made if not tensor.dtype.is_handle]
        try:
            if not self._inputs or any(node.op in ops.PLACEHOLDERS for node in takes):
                raise TpuGraphError("the graph is fed from outside")
            self._plain = PlainRun(graph, loss=options.loss, train_op=options.train_op)
            self._plain.open({} if checkpoint is None else checkpoint_values(self.roles, checkpoint))
            self.variables = self._plain.values(
                list(self._plain.roles.variables)
            )  # what is computed later may write them
            found = self._plain.batches([str(tensor) for tensor in self._inputs], batches)
            if not found:
                raise TpuGraphError("the data hold no batch")
            self.batches = len(found)
            self._values = {tensor: [batch[i] for batch in found] for i, tensor in enumerate(self._inputs)}
        except TpuGraphError as error:
            self.notes.append(f"values are made up, since the graph cannot run here: {error.fault}")
            self.close()

    def close(self) -> None:
        if self._plain is not None:
            self._plain.close()
            self._plain = None

    def values(self, tensors: Iterable[Tensor]) -> Mapping[Tensor, list[Any]]:
        self._compute([tensor for tensor in dict.fromkeys(tensors) if tensor not in self._values])
        return self._values

    def _compute(self, wanted: list[Tensor]) -> None:
        if self._plain is None or not wanted:
            self._values |= {tensor: [_made_up(tensor)] * self.batches for tensor in wanted}
            return
        try:
            feeds = ({str(t): self._values[t][number] for t in self._inputs} for number in range(self.batches))
            rows = [self._plain.compute([str(tensor) for tensor in wanted], feed) for feed in feeds]
            self._values |= {tensor: [np.asarray(row[i]) for row in rows] for i, tensor in enumerate(wanted)}
        except TpuGraphError:  # one of them fails by itself: the others are asked for alone
            half = len(wanted) // 2
            for part in (wanted[:half], wanted[half:]) if half else ():
                self._compute(part)
            if not half:
                self._values[wanted[0]] = [_made_up(wanted[0])] * self.batches

    def cut(self, units: Sequence[int], bypasses: Bypasses) -> tuple[Graph, dict[str, Any]]:
        """A training graph of some units, and the options of its conversion that name nodes."""
        cut = _Cut(self, [node for number in units for node in self.units[number]], bypasses)
        loss, train_ops = cut.ends()
        lists = {key: tuple(n for n in getattr(self.options, key) if n.partition("=")[0] in cut.graph)
                 for key in ("batch_constants", "literals")}  # fmt: skip
        return cut.graph, {"loss": loss, "train_op": ",".join(train_ops), "dump_dir": None, "dump_after": (), **lists}


def _made_up(tensor: Tensor) -> Any:
    """Some value of a tensor's dtype and shape; an open dimension has one element."""
    shape = [1 if dim is None else dim for dim in tensor.shape or ()]
    if tensor.dtype.name == "string":
        return np.full(shape, b"text", object)
    count = np.arange(int(np.prod(shape))).reshape(shape)
    return (np.cos(count) if tensor.dtype.floating else count % 2).astype(tensor.dtype.name)


class _Cut:
    """A graph of the kept nodes: what else they read is recorded, and a loss depends on all that they compute."""

    def __init__(self, subject: Subject, kept: Sequence[Node], bypasses: Bypasses) -> None:
        self.subject, self.kept, self.bypasses = subject, kept, bypasses
        self.graph = Graph()
        self.graph.library, self.graph.versions = subject.graph.library, subject.graph.versions
        self.graph.source = _SCOPE
        self.build = Builder(self.graph, scope=_SCOPE)
        self.constants: dict[object, Tensor] = {}
        nodes = reached(kept, self._behind_handles)
        self.new: dict[Node, Node] = {}
        for node in nodes:
            own = {key: value for key, value in node.raw_attrs.items() if key != "_class"}  # no colocation
            self.new[node] = self.graph.add(node.op, node.name, attrs=own, device=node.device, outputs=node.outputs)
        recorded = self._record(dict.fromkeys(t for node in nodes for t in self._reads(node) if t.node not in nodes))
        for node in nodes:
            inputs = [recorded.get(t) or Tensor(self.new[t.node], t.port) for t in self._reads(node)]
            self.graph.set_inputs(self.new[node], inputs)
            self.graph.set_controls(self.new[node], [self.new[c] for c in node.controls if c in nodes])
        for variable in [node for node in nodes if node.op in ops.VARIABLES]:
            kind, shape = variable.attr("dtype"), variable.attr("shape") or ()
            value = subject.variables.get(variable.name, np.zeros([dim or 1 for dim in shape], kind.name))
            op = "AssignVariableOp" if variable.op in ops.RESOURCE_VARIABLES else "Assign"
            self.build.node(op, [self.new[variable].out(), self._constant(variable.name, value)], name="assign")

    def _reads(self, node: Node) -> list[Tensor]:
        """What a node reads, round the nodes that are bypassed."""
        found = list(node.inputs)
        for index, tensor in enumerate(found):
            while tensor.node in self.bypasses:
                found[index] = tensor = self.bypasses[tensor.node]
        return found

    def _behind_handles(self, node: Node) -> list[Node]:
        """The nodes behind the handles that a node reads, with what fills an iterator or a table."""
        if node.op in ops.VARIABLES:
            return []
        if node in self.subject.fills or ops.is_dataset(node.op):
            return node.producers()
        fills = [f for f in self.subject.fills if node in (f.inputs[-1].node, f.inputs[0].node)]
        return [*(t.node for t in node.inputs if t.dtype.is_handle), *fills]

    def _record(self, wanted: Mapping[Tensor, None]) -> dict[Tensor, Tensor]:
        """Recorded values instead of tensors: rows of the batch come from an input, the rest is constant."""
        values, varying = self.subject.values(wanted), [t for t in wanted if t.node in self.subject.varying]
        rows = [t for t in varying if t.dtype.size is not None and t.shape and t.shape[0] in (self.subject.rows, None)]
        fed = rows or [t for t in varying if t.dtype.size][:1] or [t for t in wanted if t.dtype.floating][:1]
        batches = [_stacked(values[tensor]) for tensor in fed] or [np.zeros((1, 1), np.float32)]
        kinds, forms = [attrs.dtype(b.dtype.name) for b in batches], [tensor.shape for tensor in fed] or [(1,)]
        typed: dict[str, Any] = {"output_types": kinds, "output_shapes": forms}
        sources, add = [self._constant("batches", batch) for batch in batches], self.build.add
        dataset = add("TensorSliceDataset", sources, (), name="dataset", output_shapes=forms, Toutput_types=kinds)
        iterator = add("IteratorV2", [], (), name="iterator", shared_name="", container="", **typed)
        self.build.node("MakeIterator", [dataset, iterator], name="make_iterator")
        self.next = self.build.node("IteratorGetNext", [iterator], name="next", shapes=forms, **typed)
        found = {tensor: self.next.out(port) for port, tensor in enumerate(fed)}
        return found | {t: self._constant(t.node.name, values[t][0]) for t in wanted if t not in found}

    def ends(self) -> tuple[str, list[str]]:
        """The loss and the train ops: those of the graph where all that is kept leads to them, else made here."""
        loss = self.subject.graph.tensor(self.subject.roles.loss.name)
        writes = [node for node in self.kept if node.op in ops.WRITES]
        names, trained = [node.name for node in writes], [v for v in map(self._trained_by, writes) if v is not None]
        made, waits = self._unread()
        behind_loss = reached([loss.node] if loss.node in self.new else [],
                              lambda node: [t.node for t in self._reads(node) if t.node in self.new])  # fmt: skip
        if not waits and {t.node for t in made} <= {self.new.get(loss.node)} and behind_loss.keys() & trained:
            return str(Tensor(self.new[loss.node], loss.port)), names
        fed = self.next.out()
        if trained and not made and not waits:  # a loss of the fed value and of a variable that an optimizer trains
            value, shape = self.new[trained[0]].out(), trained[0].attr("shape")
            if trained[0].op in ops.RESOURCE_VARIABLES:
                value = self.build.add("ReadVariableOp", [value], shape, name="read", dtype=_FLOAT)
            if fed.dtype == _FLOAT and fed.shape == shape:  # a gradient, say: one node less
                return self._half_square(self.build.add("Mul", [fed, value], shape, name="product")).node.name, names
            halves = [self._half_square(value), self._half_square(fed)]
            return self.build.node("Mul", halves, name="loss").name, names
        # half the square of all that is made, times a weight, and the weight's update by gradient descent
        parts = [self._half_square(tensor) for tensor in made or [fed]]
        size = parts[0] if len(parts) == 1 else self.build.add("AddN", parts, (), name="sum")
        own: dict[str, Any] = {"dtype": _FLOAT, "shape": (), "shared_name": "", "container": ""}
        weight, one = self.build.node("VariableV2", name="weight", **own).out(), self._constant("one", np.float32(1))
        self.build.node("Assign", [weight, one], name="assign")
        total = self.build.node("Mul", [weight, size], name="loss", shapes=((),), controls=waits)
        update = self.build.node("ApplyGradientDescent", [weight, one, size], name="update")
        return total.name, [*names, update.name]

    def _trained_by(self, update: Node) -> Node | None:
        """The kept variable of floats that an optimizer op trains."""
        fact = ops.WRITES[update.op]
        variable = variable_of(update.inputs[fact.variables[0]]) if fact.kind == "apply" else None
        return variable if variable in self.new and variable.attr("dtype") == _FLOAT else None

    def _unread(self) -> tuple[list[Tensor], list[Node]]:
        """An output of each kept node that nothing kept reads, and the nodes that have none."""
        read = {other for node in self.kept for other in (*(t.node for t in self._reads(node)), *node.controls)}
        made, waits = [], []
        for node in self.kept:
            if node not in read and node.op not in ops.WRITES:
                outputs = [node.out(port) for port in node.used_ports() or [0] if port < len(node.outputs or ())]
                numbers = [tensor for tensor in outputs if tensor.dtype.size and not tensor.dtype.is_handle]
                chosen = min(numbers, key=lambda tensor: not tensor.dtype.floating, default=None)
                made += [] if chosen is None else [Tensor(self.new[node], chosen.port)]
                waits += [self.new[node]] if chosen is None else []
        return made, waits

    def _half_square(self, tensor: Tensor) -> Tensor:
        if tensor.dtype.name != "float32":
            tensor = self.build.cast(tensor, _FLOAT, name="float")
        return self.build.add("L2Loss", [tensor], (), name="half_square")

    def _constant(self, near: str, value: Any) -> Tensor:
        """A constant; one for all that is equal."""
        array = np.asarray(value)
        alike = array.dtype.str, array.shape, array.tobytes() if array.dtype != object else repr(array.tolist())
        if alike not in self.constants:
            kind = attrs.dtype("string" if array.dtype.kind in "OSU" else array.dtype.name)
            self.constants[alike] = self.build.add("Const", [], array.shape, name=near, dtype=kind, value=array)
        return self.constants[alike]


def _stacked(values: Sequence[Any]) -> Any:
    """The values of all batches in one array; the first for all where their shapes differ."""
    alike = {np.shape(value) for value in values}
    return np.stack(values if len(alike) == 1 else [values[0]] * len(values))


# --------------------------------------------------------------------------- reduce


@dataclass(repr=False)
class Reduction:
    """What :func:`reduce` found.

    Attributes:
        graph: the smallest graph that shows the fault, a plain training graph.
        question: what was asked of it, with the options that show it: its own loss and train op, the number of cores.
        words: what was seen of it.
        nodes_before: how many nodes the graph of the file ``source`` had.
        tries: how many graphs were tried.
        notes: why values were made up, or the search ended early.
    """

    graph: Graph
    question: Question
    words: str
    source: str
    nodes_before: int
    tries: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Reduction of {self.source}: {self.nodes_before:,} nodes to {len(self.graph):,}>"

    @property
    def nodes(self) -> int:
        """How many nodes the smallest graph has."""
        return len(self.graph)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists (JSON), without the graph."""
        own = ("source", "nodes_before", "nodes", "words", "tries", "seconds", "notes")
        return {key: getattr(self, key) for key in own} | {"question": asdict(self.question)}

    def write(self, place: Path) -> Path:
        """Write the graph, and beside it a pytest that fails for as long as it shows the fault; returns the pytest's path.

        Raises:
            LoadError: they cannot be written; neither is.
        """
        test = place.with_name(f"test_{re.sub(r'[^0-9A-Za-z_]', '_', place.stem)}.py")
        words = " ".join(self.words.replace("\\", "/").split()).replace('"""', "'''")
        arguments = [repr(self.question.when), *(f"{key}={value!r}" for key, value in self.question.changed().items())]
        text = _TEST.format(before=self.nodes_before, source=Path(self.source).name, nodes=self.nodes, words=words,
                            model=place.name, name=test.stem.removeprefix("test_"), arguments=", ".join(arguments))  # fmt: skip
        write_together({place: graphdef.serialize(graphdef.to_graph_def(self.graph)), test: text.encode()})
        return test


_TEST = '''"""A fault that `tpugraph reduce` cut down: {before:,} nodes of {source} became {nodes:,}.

It showed: {words}
"""

from pathlib import Path

from tpugraph import testing

MODEL = Path(__file__).with_name("{model}")


def test_{name}() -> None:
    """Passes once the graph no longer shows it."""
    assert testing.symptom(MODEL, {arguments}) is None
'''


def reduce(model: str | os.PathLike[str] | Graph, when: str, options: ConvertOptions | None = None, *,
           seconds: float = 300.0, try_seconds: float = 120.0, progress: Callable[[str], None] | None = None,
           **fields: Any) -> Reduction:  # fmt: skip
    """Find the smallest graph that still shows a fault.

    Whole loops and conditionals are kept or cut. Where the graph is cut, values that were recorded from the plain graph stand
    instead. Each try runs in a child process.

    Args:
        model: a plain training graph, or its file.
        when: the fault: ``differs`` (the converted graph trains otherwise than the plain one), ``refused:CODE`` (the conversion
            or ``check`` refuses it; CODE is a cause of ``check``, a class of errors, a pass or words of the refusal),
            ``crashes``, or ``xla:TEXT`` (the TPU compiler complains in such words).
        options: how the graph is converted; or give the fields of :class:`ConvertOptions` as keyword arguments.
        seconds: how long the search may take; the smallest graph of that time is given.
        try_seconds: how long one try may take; one that takes longer hangs, which is a crash.
        progress: called with what was found so far.
        **fields: fields of ``options``; ``steps`` of ``differs`` and ``crashes``; ``tolerance``, the largest difference that is
            none; ``topology`` of ``xla``; ``checkpoint``, where training starts; ``rebind``, file names to replace.

    Raises:
        UsageError: no such fault, or the graph does not show it.
        LoadError: the graph cannot be read.
    """
    question, say, started = Question.of(when, options, fields), progress or (lambda text: None), time.monotonic()
    graph = model if isinstance(model, Graph) else graphdef.load(model)
    with Tries(try_seconds) as tries:
        say(f"{counted(len(graph), 'node')}: does it show?")
        whole = tries.ask(model, question)
        if not whole.shows:
            raise UsageError(f"the graph does not show '{when}'{f': {whole.words}' if whole.words else ''}",
                             origin=graph.source, fix="give the flags of the command that showed it, --passes too")  # fmt: skip
        say(whole.words)
        chosen = replace(question.options, num_replicas=whole.cores or question.options.num_replicas)
        question = replace(question, options=chosen)
        best = Reduction(graph, question, whole.words, graph.source, len(graph))
        rebind_files(graph, question.rebind)
        subject = Subject(graph, chosen, question.steps if when in ("differs", "crashes") else 1, question.checkpoint)

        def shows(kept: Sequence[int], bypasses: Bypasses) -> bool:
            nonlocal best
            if time.monotonic() > started + seconds:
                raise _OutOfTime
            cut, names = subject.cut(kept, bypasses)
            its = replace(question, options=replace(chosen, **names), checkpoint=None, rebind={})
            answer = tries.ask(
                cut, replace(its, signature=whole.signature, difference=whole.difference)
            )  # the same fault
            if answer.shows and (best.graph is graph or len(cut) <= best.nodes):
                best = replace(best, graph=cut, question=its, words=answer.words)
                say(f"{counted(len(cut), 'node')} after {tries.count:,} tries: {answer.words}")
            return answer.shows

        try:
            Search(subject.units, shows).smallest(whole.nodes)
        except _OutOfTime:
            subject.notes.append("the time was over before the search was")
        finally:
            subject.close()
        return replace(best, tries=tries.count, seconds=time.monotonic() - started, notes=subject.notes)


class _OutOfTime(Exception):
    """The search has to end with what it has."""


def symptom(model: str | os.PathLike[str], when: str, *, seconds: float = 120.0, **fields: Any) -> str | None:
    """Describe the fault that a graph shows in a sentence; None where it shows none. A child process looks for it.

    Args:
        model: the file of a plain training graph.
        when: the fault, as of :func:`tpugraph.reduce`.
        seconds: how long it may take.
        **fields: as of :func:`tpugraph.reduce`.

    Example:
        >>> symptom("model_reduced.pb", "differs", loss="recorded/loss")  # doctest: +SKIP
        "the loss differs by 1.7e+00 on 1 core"

    Raises:
        UsageError: no such fault.
    """
    question = Question.of(when, None, fields)
    with Tries(seconds) as tries:
        answer = tries.ask(model, question)
    return answer.words or when if answer.shows else None
