"""Reduce: from a graph that shows a fault to the smallest one that still does, with a pytest that holds it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tpugraph.analysis import shapes
from tpugraph.compiler import find_roles
from tpugraph.compiler.options import ConvertOptions, given
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.file_names import rebind_files
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.testing.checkpoint_pieces import checkpoint_values
from tpugraph.testing.comparable import fix_seeds
from tpugraph.testing.reduction import symptoms
from tpugraph.testing.reduction.candidate import Candidate, Subject
from tpugraph.testing.reduction.recorded_values import RecordedValues
from tpugraph.testing.reduction.search import Bypasses, Search
from tpugraph.testing.reduction.tries import Answer, Question, Tries
from tpugraph.testing.reduction.units import Unit, units_of


@dataclass(repr=False)
class Reduction:
    """What :func:`reduce` found.

    Attributes:
        graph: the smallest graph that shows the symptom, a plain training graph.
        question: what was asked of it, with the options that show it: its own loss and train op, the number of cores.
        words: what was seen of it.
        source: the file of the graph that was reduced.
        nodes_before: how many nodes that had.
        tries: how many graphs were tried.
        seconds: how long it took.
        notes: what is worth knowing.
    """

    graph: Graph
    question: Question
    words: str
    source: str
    nodes_before: int
    tries: int
    seconds: float
    notes: list[str]

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


def reduce(
    model: str | os.PathLike[str] | Graph,
    when: str,
    options: ConvertOptions | None = None,
    *,
    steps: int = 1,
    tolerance: float = 1e-4,
    topology: str = "v5e:2x4",
    checkpoint: str | None = None,
    rebind: Mapping[str, str] | None = None,
    try_seconds: float = 120.0,
    seconds: float = 300.0,
    progress: Callable[[str], None] | None = None,
    **fields: Any,
) -> Reduction:
    """Find the smallest graph that still shows a fault.

    Whole loops and conditionals are kept or cut. Where the graph is cut, values that were recorded from the plain graph stand
    instead. Each try runs in a child process.

    Args:
        model: a plain training graph, or its file.
        when: the fault: ``differs`` (the converted graph trains otherwise than the plain one), ``refused:CODE`` (the conversion
            or ``check`` refuses it; CODE is a cause of ``check``, a class of errors, a pass or words of the refusal),
            ``crashes``, or ``xla:TEXT`` (the TPU compiler complains in such words).
        options: how the graph is converted; or give the fields of :class:`ConvertOptions` as keyword arguments.
        steps: steps of ``differs`` and ``crashes``.
        tolerance: of ``differs``: the largest difference that is none.
        topology: of ``xla``: the TPU that is compiled for.
        checkpoint: where training starts; the graph's own first values when None.
        rebind: file names in the graph to replace.
        try_seconds: how long one try may take; one that takes longer hangs, which is a crash.
        seconds: how long the search may take; the smallest graph of that time is given.
        progress: called with what was found so far.
        **fields: see ``options``.

    Raises:
        UsageError: no such symptom, or the graph does not show it.
        LoadError: the graph cannot be read.
    """
    question = Question(when, given(options, fields), steps, tolerance, topology, checkpoint, dict(rebind or {}))
    return _reduced(model, question, try_seconds, seconds, progress or (lambda text: None))


def _reduced(model: str | os.PathLike[str] | Graph, question: Question, try_seconds: float, seconds: float,
             progress: Callable[[str], None]) -> Reduction:  # fmt: skip
    symptoms.check_when(question.when)
    with Tries(try_seconds) as tries:
        return _Reducer(model, question, tries, time.monotonic() + seconds, progress).run()


class _OutOfTime(Exception):
    """The search has to end with what it has."""


class _Reducer:
    def __init__(self, model: str | os.PathLike[str] | Graph, question: Question, tries: Tries, deadline: float,
                 progress: Callable[[str], None]) -> None:  # fmt: skip
        self.model = model
        self.question = question
        self.tries = tries
        self.deadline = deadline
        self.progress = progress
        self.started = time.monotonic()
        self.best: tuple[Candidate, Answer] | None = None
        self.units: Sequence[Unit] = ()

    def run(self) -> Reduction:
        graph = self.model if isinstance(self.model, Graph) else graphdef.load(self.model)
        self.progress(f"{counted(len(graph), 'node')}: does it show?")
        whole = self.tries.ask(self.model, self.question)
        if not whole.shows:
            said = f": {whole.words}" if whole.words else ""
            raise UsageError(f"the graph does not show '{self.question.when}'{said}", origin=graph.source,
                             fix="give the flags of the command that showed it, --passes too")  # fmt: skip
        self.progress(whole.words)
        self._narrow(whole)
        notes = self._search(graph, whole)
        candidate, answer = self.best or (None, whole)
        found = graph if candidate is None else candidate.graph
        question = self.question if candidate is None else self._asked_of(candidate)
        question = replace(question, signature="", difference=0.0)
        return Reduction(found, question, answer.words, graph.source, len(graph), self.tries.count,
                         time.monotonic() - self.started, notes)  # fmt: skip

    def _narrow(self, whole: Answer) -> None:
        """From now on the same symptom is asked for, on as few cores as show it."""
        options = replace(self.question.options, num_replicas=whole.cores or self.question.options.num_replicas)
        self.question = replace(self.question, signature=whole.signature, difference=whole.difference, options=options)

    def _search(self, graph: Graph, whole: Answer) -> list[str]:
        """Look for smaller graphs until there is none or the time is over; returns notes."""
        options, question = self.question.options, self.question
        rebind_files(graph, question.rebind)
        fix_seeds(graph)
        shapes.infer(graph)
        found = find_roles(graph, options)
        start = {} if question.checkpoint is None else checkpoint_values(found, question.checkpoint)
        recorded = RecordedValues(graph, self._batches(), start, loss=options.loss, train_op=options.train_op)
        notes = [f"values are made up, since the graph cannot run here: {recorded.made_up}"] if recorded.made_up else []
        try:
            subject = Subject(graph, found, recorded)
            self.units = units_of(graph, graph.ancestors(graph[name] for name in found.roots))
            Search(self.units, lambda kept, bypasses: self._shows(subject, kept, bypasses)).smallest(whole.nodes)
        except _OutOfTime:
            notes.append("the time was over before the search was")
        finally:
            recorded.close()
        return notes

    def _batches(self) -> int:
        """How many batches a try reads."""
        return self.question.steps if self.question.when.partition(":")[0] in ("differs", "crashes") else 1

    def _shows(self, subject: Subject, kept: Sequence[int], bypasses: Bypasses) -> bool:
        if time.monotonic() > self.deadline:
            raise _OutOfTime
        candidate = subject.candidate((self.units[number] for number in kept), bypasses)
        answer = self.tries.ask(candidate.graph, self._asked_of(candidate))
        if answer.shows and (self.best is None or len(candidate.graph) <= len(self.best[0].graph)):
            self.best = candidate, answer
            self.progress(f"{counted(len(candidate.graph), 'node')} after {self.tries.count:,} tries: {answer.words}")
        return answer.shows

    def _asked_of(self, candidate: Candidate) -> Question:
        """The question with the candidate's own loss and train op, and no names that it lacks."""
        options = self.question.options
        names: dict[str, Any] = {
            name: tuple(n for n in getattr(options, name) if n.partition("=")[0] in candidate.graph)
            for name in ("batch_constants", "literals")
        }
        own = replace(options, loss=candidate.loss, train_op=candidate.train_op, dump_dir=None, dump_after=(), **names)
        return replace(self.question, options=own, checkpoint=None, rebind={})
