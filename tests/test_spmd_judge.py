"""Our partition of a step trains as XLA's and as TensorFlow: b rows on each of 8 emulated cores against the whole batch.

XLA knows nothing of tpugraph's analysis, and places its collectives by itself; see ``spmd``. A loss or variable may
differ by 1e-3 of the tensor's largest element and 1e-5 beside that, and how far a variable has moved by 2e-2 of the
farthest such move: the tolerance of ``programs.harness``. What is judged here as it stands need not be trained by
``test_programs``.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from sampling import runs
from spmd import JUDGED, ONE_LAYER, THEMES, run_partitioned

from programs import PROGRAMS, Program, trace
from programs.harness import Traced, Training, compare, run_on_cores, run_plain
from tpugraph.support.errors import ConversionError, TpuGraphError

CORES = 8

QUICK = ("batch_norm_by_hand", "clip_global_norm_adam", "embedding", "in_batch_softmax", "loop_max")
"""What runs among the quick tests."""

TOLD = {
    "count_rows_float": ("Size",),
}
"""Where a constant may count rows or be a number of the model, which XLA is never asked: what ``--batch_constants`` names."""

NOT_LOWERED = {
    "loop_longest": "has a gradient, and nothing says how often it runs at most",
    "mean_of_chosen_rows": "the size of a tensor depends on its values in a way that has no form in StableHLO",
}
"""Programs that today's compiler does not lower for one core, and why: they cannot be judged here."""

FATAL = {
    "sampled_softmax": "Check failed: ShapeUtil::IsScalarWithElementType",
    "sampled_softmax_fixed": "Check failed: ShapeUtil::IsScalarWithElementType",
}
"""Programs at which XLA's partitioner ends its process: nothing here runs them."""

assert set(TOLD) | set(QUICK) <= set(JUDGED), "what is marked is judged"


def params(names: list[str]) -> list[Any]:
    """The programs, with what is slow marked."""
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def whole(program: Program) -> Traced:
    return trace(program, program.rows * CORES, resource=program.resource)


def by_xla(traced: Traced, program: Program) -> Training:
    found, collectives = run_partitioned(traced, program.steps, CORES)
    assert collectives, "XLA has not divided the step"
    return found


def by_us(program: Program, cores: int) -> Training:
    told = {"batch_constants": TOLD[program.name]} if program.name in TOLD else {}
    return run_on_cores(trace(program, program.rows, resource=program.resource), program.steps, cores, told, {})


SOME = {*QUICK, *TOLD, *(name for names in THEMES.values() for name in names.split()[::4])}
"""What the suite judges: of each theme every fourth program."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", params([name for name in JUDGED if runs(name in SOME)]))
def test_our_partition_trains_as_that_of_xla_and_as_tensorflow(name: str) -> None:
    """The gate takes all that is judged."""
    program = PROGRAMS[name].sized(depth=1) if name in ONE_LAYER else PROGRAMS[name]
    traced = whole(program)
    ours, theirs, right = by_us(program, CORES), by_xla(traced, program), run_plain(traced, program.steps)
    pairs = {
        "ours and XLA": (ours, theirs),
        "ours and TensorFlow": (ours, right),
        "XLA and TensorFlow": (theirs, right),
    }
    verdicts = {what: compare(found, expected) for what, (found, expected) in pairs.items()}
    words = " | ".join(f"{what}: {verdict}" for what, verdict in verdicts.items())
    assert all(verdict.outcome == "equal" for verdict in verdicts.values()), words


@pytest.mark.parametrize("name", sorted(TOLD))
def test_what_our_partition_has_to_be_told_is_refused_until_then(name: str) -> None:
    with pytest.raises(ConversionError) as caught:
        run_on_cores(trace(PROGRAMS[name], PROGRAMS[name].rows), 1, CORES, {}, {})
    assert str(caught.value.fix).startswith(f"--batch_constants={','.join(TOLD[name])} if it counts rows")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NOT_LOWERED))
def test_what_is_not_lowered_says_why(name: str) -> None:
    """What comes to be lowered moves to ``JUDGED``."""
    with pytest.raises(TpuGraphError, match=re.escape(NOT_LOWERED[name])):
        by_xla(whole(PROGRAMS[name]), PROGRAMS[name])


def test_the_judge_sees_another_step() -> None:
    """Half of the rows are another training."""
    program = PROGRAMS["optimizer_sgd"]
    assert compare(by_us(program, CORES // 2), by_xla(whole(program), program)).outcome == "different"
