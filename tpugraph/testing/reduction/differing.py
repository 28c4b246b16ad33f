"""The symptom ``differs``: the converted graph trains otherwise than the plain one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tpugraph.compiler import convert
from tpugraph.runtime.session import TPUSession
from tpugraph.testing.checkpoint_pieces import Values
from tpugraph.testing.comparable import fix_seeds
from tpugraph.testing.comparison import Comparison, Result, compare
from tpugraph.testing.plain_reference import Load, first_values, plain_run
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.reduction.tries import Answer, Question
from tpugraph.testing.tensor_comparison import first_difference
from tpugraph.tpu.program import Program


def look(load: Load, question: Question) -> Answer:
    """Train both, on one core and then on all, and say what differs.

    One core takes the batches of the plain graph. Several take its batches too where they split them; where each core takes
    a batch of its own, the first loss is compared with those of the plain graph on as many batches.

    Args:
        load: gives the graph.
        question: what is asked; its signature names the number of cores that showed it.
    """
    counts = dict.fromkeys([1, question.options.num_replicas])
    for cores in counts:
        words = f"on {cores} core{'s' if cores > 1 else ''}"
        if question.signature not in ("", words):
            continue
        found = _compared(load, question, cores)
        if not found.within(question.tolerance):
            nodes = () if question.signature else _nodes(load, question, cores)
            return Answer(shows=True, words=f"{_worst(found)} {words}", signature=words, nodes=nodes, cores=cores)
    return Answer(shows=False)


def _nodes(load: Load, question: Question, cores: int) -> tuple[str, ...]:
    """The node that makes the first tensor that differs, and those that make what it reads: the fault is between them."""
    options = replace(question.options, num_replicas=cores)
    found = first_difference(load, options, question.steps, question.tolerance, question.checkpoint)
    if found is None:
        return ()
    return tuple(name.partition(":")[0] for name in (found.tensor, *found.reads, *found.unseen))


def _worst(found: Comparison) -> str:
    if found.difference >= found.loss:
        return f"'{found.variable}' differs by {found.difference:.1e}"
    return f"the loss differs by {found.loss:.1e}"


def _compared(load: Load, question: Question, cores: int) -> Comparison:
    options = replace(question.options, num_replicas=cores, iterations_per_loop=1)
    graph = load()
    fix_seeds(graph)
    program = convert(graph, options)
    plain = plain_run(load, options, program)
    try:
        start = first_values(plain, question.checkpoint)
        apart = cores > 1 and options.batch_mode == "per_replica"
        expected = (
            Result([_of_several(plain, program, start, cores)], {}) if apart else _plain(plain, start, question.steps)
        )
        return compare("", expected, _trained(program, start, len(expected.losses)))
    finally:
        plain.close()


def _plain(plain: PlainRun, start: Values, steps: int) -> Result:
    return Result(*plain.train(steps, start))


def _of_several(plain: PlainRun, program: Program, start: Values, cores: int) -> float:
    """What the plain graph says of the first loss of several cores: the mean or the sum of those of as many batches."""
    kind = program.report["reduction"]["kind"]
    losses = plain.losses(cores, start)
    return float(np.sum(losses) if kind == "sum" else np.mean(losses))


def _trained(program: Program, start: Values, steps: int) -> Result:
    with TPUSession(program) as session:
        session.initialize()
        known = set(session.variable_names())
        session.assign({name: value for name, value in start.items() if name in known})
        losses = session.train(steps)
        return Result(losses, session.values())
