"""Symptoms: what ``--when`` can ask of a graph, looked for in this process."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace

from tpugraph import roles
from tpugraph.compiler import ConvertOptions, build_passes, convert, tpu_check
from tpugraph.ir import Graph, graphdef, text
from tpugraph.ir.file_names import rebind_files
from tpugraph.runtime import batch_search
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import PipelineError, TpuGraphError, UsageError
from tpugraph.testing.reduction import differing
from tpugraph.testing.reduction.tries import Answer, Question
from tpugraph.xla import stablehlo, topologies

KINDS = "differs, refused:CODE, crashes or xla:TEXT"
_WORDS = re.compile(r"[\w./-]+")
_NAMES = re.compile(r"'[^']*'|\d+")


def check_when(when: str) -> None:
    """Refuse what is no symptom.

    Raises:
        UsageError: it is none, or lacks its CODE or TEXT.
    """
    kind, _, detail = when.partition(":")
    if kind not in _LOOKS or (kind in ("refused", "xla")) != bool(detail):
        raise UsageError(f"--when={when} is no symptom", fix=f"--when={KINDS}")


def look(model: str, question: Question) -> Answer:
    """Whether a graph shows a symptom; whatever happens is an answer."""
    kind = question.when.partition(":")[0]
    try:
        return _LOOKS[kind](model, question)
    except TpuGraphError as error:
        if kind == "crashes" and _is_crash(error):
            return _crash(question, error.__cause__ or error)
        return Answer(shows=False, words=error.fault, nodes=_named(error))
    except Exception as error:
        if kind == "crashes":
            return _crash(question, error)
        return Answer(shows=False, words=f"{type(error).__name__}: {error}"[:300])


def of_death(question: Question, words: str) -> Answer:
    """The answer of a try that never gave one."""
    shows = question.when == "crashes" and question.signature in ("", words)
    return Answer(shows, words, words)


def warm_up() -> None:
    """Load once what takes long the first time. No shapes are inferred: that starts threads, which a child would not have."""
    graph = text.parse_graph(_SMALLEST)
    graph.roles = roles.find(graph, loss="loss", train_op="update")
    graphdef.to_graph_def(graph)
    build_passes(ConvertOptions(num_replicas=8))


_SMALLEST = """
batches = Const() {dtype: float32, value: float32[1,2][[1.0, 2.0]]}
dataset = TensorSliceDataset(batches) {Toutput_types: (float32), output_shapes: ([2])}
iterator = IteratorV2() {shared_name: "", container: "", output_types: (float32), output_shapes: ([2])}
make_iterator = MakeIterator(dataset, iterator)
next = IteratorGetNext(iterator) {output_types: (float32), output_shapes: ([2])}
size = L2Loss(next) {T: float32}
weight = VariableV2() {dtype: float32, shape: [], shared_name: "", container: ""}
one = Const() {dtype: float32, value: float32[]1.0}
assign = Assign(weight, one) {T: float32}
loss = Mul(weight, size) {T: float32}
update = ApplyGradientDescent(weight, one, size) {T: float32}
"""
"""A training graph of a few nodes."""


def _load(model: str, question: Question) -> Graph:
    graph = graphdef.load(model)
    rebind_files(graph, question.rebind)
    return graph


# --------------------------------------------------------------------------- one for each kind


def _refused(model: str, question: Question) -> Answer:
    """The conversion refuses the graph, or `check` finds what stops it, by the code that is asked for."""
    code = question.when.partition(":")[2]
    if code in tpu_check.CAUSES:
        report = tpu_check.check(_load(model, question), question.options)
        found = [(f"{f.cause} {f.op}", f.node, f.fault) for f in report.findings if f.cause == code]
    else:
        try:
            convert(_load(model, question), question.options)
        except TpuGraphError as error:
            about = error.as_dict()
            matches = code in (about["kind"], error.stage) or code in error.fault
            alike = " ".join([str(about["kind"]), error.stage or "", _NAMES.sub("", error.fault)])
            found = [(alike, (_named(error) or ("",))[0], error.fault)] if matches else []
        else:
            found = []
    found = [one for one in found if question.signature in ("", one[0])]
    if not found:
        return Answer(shows=False)
    return Answer(
        shows=True, words=found[0][2], signature=found[0][0], nodes=tuple(node for _, node, _ in found if node)
    )


def _crashes(model: str, question: Question) -> Answer:
    """The conversion, or a few steps of the emulator, end in what nobody foresaw."""
    options = replace(question.options, iterations_per_loop=question.steps)
    program = convert(_load(model, question), options)
    if options.mode == "train":
        with TPUSession(program) as session:
            session.train(question.steps)
    return Answer(shows=False)


def _xla(model: str, question: Question) -> Answer:
    """The compiler of a TPU complains in such words."""
    words = question.when.partition(":")[2]
    program = convert(_load(model, question), question.options)
    graph = graphdef.from_graph_def(program.graph_def, source=model)
    try:
        module = stablehlo.lower(batch_search.without_hints(graph))
        topologies.compile_once(module, question.topology, lambda note: None)
    except TpuGraphError as error:
        return Answer(words in error.fault, error.fault, words, _named(error))
    return Answer(shows=False)


_LOOKS: dict[str, Callable[[str, Question], Answer]] = {
    "differs": differing.look,
    "refused": _refused,
    "crashes": _crashes,
    "xla": _xla,
}


# --------------------------------------------------------------------------- errors


def _is_crash(error: TpuGraphError) -> bool:
    """Whether an error is what a user's own pass died of."""
    return isinstance(error, PipelineError) and error.__cause__ is not None


def _crash(question: Question, error: BaseException) -> Answer:
    """An unforeseen exception, told from others by its class and the line that raised it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(sys.base_prefix)]
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    signature = f"{type(error).__name__} at {place}"
    shows = question.signature in ("", signature)
    told = str(error)[:300]
    return Answer(shows, f"{signature}: {told}", signature, tuple(_WORDS.findall(told)))


def _named(error: TpuGraphError) -> tuple[str, ...]:
    """The node that an error names."""
    return (error.node.partition(" (")[0],) if error.node else ()
