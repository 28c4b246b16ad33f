"""Small, valid training programs in the manner of TensorFlow 1, and the harness that judges their conversion.

Programs with names, such as ``losses/dice_2``, stand in ``PROGRAMS``, by construct in the modules here; ``COINCIDENCES`` are
transformers in which two sizes agree; ``composed`` makes random ones.
"""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from . import attention, composed
from .harness import Verdict, check, trace
from .parts import PROGRAMS, Program

__all__ = [
    "COINCIDENCES", "PROGRAMS", "REGRESSIONS", "Program", "Verdict", "check", "composed", "find", "named", "trace",
]  # fmt: skip

for construct in iter_modules(__path__):  # each enters its programs
    import_module(f"{__name__}.{construct.name}")

COINCIDENCES = attention.coincidences()
REGRESSIONS = (Path(__file__).parents[1] / "data" / "regressions.txt").read_text(encoding="utf-8").splitlines()
"""Programs that campaigns found wrong once, simplified, as a campaign prints them."""


def named(pattern: str) -> list[str]:
    """The names of programs in which a regular expression is found, and the lines of those that were wrong once."""
    return [name for name in (*PROGRAMS, *COINCIDENCES, *REGRESSIONS) if re.search(pattern, name)]


def find(source: str) -> Program:
    """The program of a name, or of the line of a random one."""
    return {**PROGRAMS, **COINCIDENCES}.get(source) or composed.made(source)
