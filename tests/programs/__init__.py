"""Small, valid training programs in the manner of TensorFlow 1, and the harness that judges their conversion.

Programs with names stand in ``PROGRAMS``, by theme in the modules here; ``coincidences`` makes transformers in which two
sizes agree; ``generated`` and ``composed`` make random ones.
"""

import re

from . import (
    adversarial,
    attention,
    banks,
    chosen,
    clipping,
    composed,
    control,
    counting,
    embeddings,
    experts,
    factored,
    first_rows,
    folded,
    found,
    generated,
    host_parts,
    images,
    losses,
    made_of_rows,
    made_values,
    masked,
    matrices_of_rows,
    optimizers,
    pairs,
    recurrent,
    residual,
    row_numbers,
    shapes,
    signals,
    single_rows,
    statistics,
    strings,
    told_by_data,
    views,
)
from .doubts import constants_in_doubt, followed, judged
from .harness import Verdict, check, plain, trace, unmoved, unsteady
from .parts import PROGRAMS, Program
from .regressions import REGRESSIONS

__all__ = [
    "COINCIDENCES",
    "PROGRAMS",
    "Program",
    "Verdict",
    "check",
    "composed",
    "constants_in_doubt",
    "find",
    "followed",
    "generated",
    "judged",
    "made_of_rows",
    "matrices_of_rows",
    "named",
    "plain",
    "trace",
    "unmoved",
    "unsteady",
]

_THEMES = (
    adversarial,
    banks,
    chosen,
    clipping,
    control,
    counting,
    embeddings,
    experts,
    factored,
    first_rows,
    folded,
    found,
    host_parts,
    images,
    losses,
    made_of_rows,
    made_values,
    masked,
    matrices_of_rows,
    optimizers,
    pairs,
    recurrent,
    residual,
    row_numbers,
    shapes,
    signals,
    single_rows,
    statistics,
    strings,
    told_by_data,
    views,
)

COINCIDENCES = {
    f"{name}:{pair}": PROGRAMS[name].sized(depth=1, **sizes)
    for pair, sizes in attention.coincidences()
    for name in ("bert", "albert", "gpt2", "xlnet")
}
"""Transformers with one layer in which two sizes agree, such as ``bert:rows=hidden``."""


def named(pattern: str) -> list[str]:
    """The names of programs in which a regular expression is found, and the specs of those that were wrong once."""
    return [name for name in (*PROGRAMS, *COINCIDENCES, *REGRESSIONS) if re.search(pattern, name)]


def find(source: str) -> Program:
    """The program of a name, or of the spec of a random one."""
    known = {**PROGRAMS, **COINCIDENCES}
    if source in known:
        return known[source]
    return composed.made(source) if source.startswith("composed ") else generated.made(generated.parse(source))
