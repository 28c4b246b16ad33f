"""Which of many alike cases the suite runs: the gate, which runs the suite too, runs the others."""

import os
from collections.abc import Sequence
from typing import TypeVar

_RUN = os.environ.get("TPUGRAPH_TEST_PROGRAMS", "some")
"""``some``: what the suite runs; ``rest``: all that it leaves out, as ``.ci/run`` says; ``all``: both."""

SUITE = _RUN == "some"
"""Whether it is the suite that runs."""

T = TypeVar("T")


def runs(sampled: bool) -> bool:
    """Whether a case is run now.

    Args:
        sampled: whether the suite runs it.
    """
    return _RUN == "all" or sampled == SUITE


def part(cases: Sequence[T], every: int) -> list[T]:
    """What is run now of many alike cases, of which the suite runs one of so many."""
    return [case for place, case in enumerate(cases) if runs(place % every == 0)]
