"""The symptom ``differs``: a tensor of the step, the loss or a variable is otherwise on the cores than in the plain graph."""

from __future__ import annotations

import re
from dataclasses import replace

from tpugraph.support.wording import counted
from tpugraph.testing.reduction.tries import Answer, Question
from tpugraph.testing.tensor_comparison import compare

_ALIKE = 10.0
"""By how much a difference may grow or shrink and be the same symptom."""


def look(model: str, question: Question) -> Answer:
    """Compare each tensor of the step, on one core and then on all; with a signature that tensor alone, on all.

    Args:
        model: the file of the graph.
        question: what is asked; its signature names the tensor that differed first, which must differ by as much.
    """
    cores = question.options.num_replicas
    if not question.signature and cores != 1:
        found = look(model, replace(question, options=replace(question.options, num_replicas=1)))
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
    return Answer(
        shows=True, words=words, signature=first.tensor, nodes=nodes, cores=compared.cores, difference=first.difference
    )
