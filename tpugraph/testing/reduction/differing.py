"""The symptom ``differs``: a tensor of the step, the loss or a variable is otherwise on the cores than in the plain graph."""

from __future__ import annotations

import re

from tpugraph.support.wording import counted
from tpugraph.testing.reduction.tries import Answer, Question
from tpugraph.testing.tensor_comparison import compare

_ALIKE = 10.0
"""By how much a difference may grow or shrink and be the same symptom."""


def look(model: str, question: Question) -> Answer:
    """Compare each tensor of the step; with a signature that one alone, which must differ by as much.

    Args:
        model: the file of the graph.
        question: what is asked; its signature names the tensor that differed first.
    """
    tensors = f"^{re.escape(question.signature)}$" if question.signature else "all"
    compared = compare(model, question.options, tensors=tensors, steps=question.steps, tolerance=question.tolerance,
                    checkpoint=question.checkpoint, rebind=question.rebind)  # fmt: skip
    found = compared.first
    if found is None:
        return Answer(shows=False)
    words = f"'{found.tensor}' differs by {found.difference:.1e} on {counted(compared.cores, 'core')}"
    if question.signature and not question.difference / _ALIKE <= found.difference <= question.difference * _ALIKE:
        return Answer(shows=False, words=f"{words}, which is another fault")
    nodes = tuple(name.partition(":")[0] for name in (found.tensor, found.reader, *found.reads, *found.unseen) if name)
    return Answer(shows=True, words=words, signature=found.tensor, nodes=nodes, difference=found.difference)
