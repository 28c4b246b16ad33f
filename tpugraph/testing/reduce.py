"""Reduce: from a graph that shows a fault to the smallest one that still does, with a pytest that holds it.

A try is a training graph of a part of the step, with values recorded from the plain graph in place of the rest.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import networkx

from tpugraph.compiler import ConvertOptions, convert, tpu_check
from tpugraph.compiler.options import given
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.side_effects import rebind_files
from tpugraph.runtime import batch_search
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import PipelineError, TpuGraphError, UsageError
from tpugraph.support.files import write_together
from tpugraph.support.process import without_garbage_collection
from tpugraph.support.tensorflow_log import stderr_held_back
from tpugraph.support.wording import counted
from tpugraph.testing.cut_graph import Subject, Unit
from tpugraph.testing.tensor_comparison import compare
from tpugraph.xla import stablehlo, topologies

_MEMORY = 8 << 30  # bytes of data that one try may hold
_ALIKE = 10.0  # by how much a difference may grow or shrink and be the same fault
_ASKED = ("steps", "tolerance", "topology", "checkpoint", "rebind")


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
        topologies.compile_for(module, question.topology)
    except TpuGraphError as error:
        return Answer(question.detail in error.fault, error.fault, question.detail, _named(error))
    return Answer(shows=False)


_LOOKS = {"differs": _differs, "refused": _refused, "crashes": _crashes, "xla": _xla}


# --------------------------------------------------------------------------- tries


def attempt(model: Graph | str | os.PathLike[str], question: Question, seconds: float) -> Answer:
    """Look for a fault in a child of a server that has all imports; what ends the child is an answer too."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    reader, writer = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="tpugraph-reduce-") as folder, reader:
        if isinstance(model, Graph):
            graphdef.save(model, file := Path(folder, "candidate.pb"))
            model = file
        child = context.Process(target=_answer, args=(writer, os.fspath(model), question), daemon=True)
        with _without_script(), stderr_held_back(), writer:
            child.start()
        words = "there was no end in time"
        try:
            if reader.poll(seconds):
                answer: Answer = reader.recv()
                return answer
        except EOFError:
            child.join()
            code = child.exitcode or 0
            words = f"the process died of signal {-code}" if code < 0 else "the process ended"
        finally:
            child.kill()
            child.join()
    return Answer(question.when == "crashes" and question.signature in ("", words), words, words)


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Start a process that does not run the script of this one again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@without_garbage_collection()
def _answer(writer: Connection, model: str, question: Question) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    writer.send(look(model, question))
    os._exit(0)  # skips Python's shutdown, where threads of TensorFlow may hang


# --------------------------------------------------------------------------- the search


def smallest(units: Sequence[Unit], shows: Callable[[Sequence[Unit]], bool], hints: Iterable[str]) -> list[Unit]:
    """The fewest units that still show a fault, which points to the nodes ``hints``.

    Units far from these are dropped before delta debugging, which would keep either of two paths at random; then what comes
    after the fault in topological order, and what comes before it.
    """
    tried: dict[tuple[int, ...], bool] = {}

    def shown(numbers: Iterable[int]) -> bool:
        key = tuple(sorted(numbers))
        if key not in tried:
            tried[key] = shows([units[number] for number in key])
        return tried[key]

    kept = list(range(len(units)))
    for order in (_by_distance(units, hints), kept, kept[::-1]):
        inside = set(kept)
        order = [number for number in order if number in inside]
        kept = sorted(order[: _fewest(order, shown)]) if order else kept
    return [units[number] for number in _without_parts(kept, shown)]


def _by_distance(units: Sequence[Unit], hints: Iterable[str]) -> list[int]:
    """All units by their distance from some nodes along edges; none where no node is named."""
    of = {node: number for number, unit in enumerate(units) for node in unit}
    edges = networkx.Graph(
        (number, of[other]) for node, number in of.items() for other in node.producers() if other in of
    )
    edges.add_nodes_from(range(len(units)))
    named = {node.name: number for node, number in of.items()}
    layers = networkx.bfs_layers(edges, [named[name] for name in hints if name in named])
    near = dict.fromkeys(number for layer in layers for number in layer)
    return [*near, *(number for number in edges if number not in near)] if near else []


def _fewest(order: Sequence[int], shown: Callable[[Iterable[int]], bool]) -> int:
    """How many of the first units show the fault, where all do: ever more are tried, then halves of the last step."""
    low, high = 0, 1
    while high < len(order) and not shown(order[:high]):
        low, high = high, high * 3
    return bisect_left(range(min(high, len(order))), True, low + 1, key=lambda count: shown(order[:count]))


def _without_parts(kept: list[int], shown: Callable[[Iterable[int]], bool]) -> list[int]:
    """Delta debugging: leaves out the parts without which the fault shows, in ever smaller parts."""
    size = len(kept)
    while size > 1:
        size = -(-size // 2)
        for part in [kept[at : at + size] for at in range(0, len(kept), size)]:
            rest = [number for number in kept if number not in part]
            kept = rest if rest and shown(rest) else kept
    return kept


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
    say(f"{counted(len(graph), 'node')}: does it show?")
    fault = attempt(model, question, try_seconds)
    if not fault.shows:
        raise UsageError(f"the graph does not show '{when}'{f': {fault.words}' if fault.words else ''}",
                         origin=graph.source, fix="give the flags of the command that showed it, --passes too")  # fmt: skip
    say(fault.words)
    chosen = replace(question.options, num_replicas=fault.cores or question.options.num_replicas)
    best = Reduction(graph, replace(question, options=chosen), fault.words, graph.source, len(graph), tries=1)
    rebind_files(graph, question.rebind)
    subject = Subject(graph, chosen, question.steps if when in ("differs", "crashes") else 1, question.checkpoint)

    def shows(units: Sequence[Unit]) -> bool:
        """Whether some units show the same fault."""
        if time.monotonic() > started + seconds:
            raise TimeoutError
        cut, names = subject.cut(units)
        its = replace(question, options=replace(chosen, **names), checkpoint=None, rebind={})
        answer = attempt(cut, replace(its, signature=fault.signature, difference=fault.difference), try_seconds)
        best.tries += 1
        if answer.shows and (best.graph is graph or len(cut) <= best.nodes):
            best.graph, best.question, best.words = cut, its, answer.words
            say(f"{counted(len(cut), 'node')} after {best.tries:,} tries: {answer.words}")
        return answer.shows

    try:
        units, before = subject.units, ""
        while fault.shows and fault.signature != before:  # of a small graph an earlier tensor can be compared
            units, before = smallest(units, shows, fault.nodes), fault.signature
            fault = attempt(best.graph, best.question, try_seconds)
            best.tries += 1
    except TimeoutError:
        subject.notes.append("the time was over before the search was")
    finally:
        subject.close()
    best.seconds, best.notes = time.monotonic() - started, subject.notes
    return best


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
    answer = attempt(model, question, seconds)
    return answer.words or when if answer.shows else None
