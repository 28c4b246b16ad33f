"""Our partition of a step trains as XLA's and as TensorFlow: the same graph on 8 emulated cores, on 8 devices, and as it stands.

XLA knows nothing of tpugraph's analysis, and places its collectives by itself; see ``xla_judge``. A loss or variable may
differ by 1e-3 of the tensor's largest element and 1e-5 beside that, and how far a variable has moved by 2e-2 of the
farthest such move: the tolerance of ``programs.harness``. What is judged here as it stands need not be trained by
``test_programs``.
"""

import re
from typing import Any

import pytest
from sampling import runs
from xla_judge import JUDGED, ONE_LAYER, THEMES

from programs import PROGRAMS, Program, trace
from programs.harness import Traced, Training, compare, run_on_cores, run_partitioned, run_plain
from tpugraph.support.errors import TpuGraphError

CORES = 8

QUICK = ("clipping/clip_global_norm_adam_2", "embeddings/embedding_2", "loops/loop_max_2", "pairs/in_batch_softmax_2",
         "statistics/batch_norm_by_hand_2")  # fmt: skip
"""What runs among the quick tests."""

NOT_LOWERED = {
    "ragged/masked_pairs_2": "the size of a tensor depends on its values in a way that has no form in StableHLO",
    "loops/states_up_to_the_longest_2": "its number of iterations has no known bound",
}
"""Programs that today's compiler does not lower for one core, and why: they cannot be judged here."""


assert set(QUICK) <= set(JUDGED), "what is marked is judged"


def params(names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def whole(program: Program) -> Traced:
    return trace(program, program.rows * CORES, resource=program.resource)


def by_xla(traced: Traced, program: Program) -> Training:
    found = run_partitioned(traced, program.steps, f"data:{CORES}")
    assert found.report["collectives"], "XLA has not divided the step"
    return found


SOME = {*QUICK, *(name for names in THEMES.values() for name in names.split()[::4])}
"""What the suite judges: of each theme every fourth program."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", params([name for name in JUDGED if runs(name in SOME)]))
def test_our_partition_trains_as_that_of_xla_and_as_tensorflow(name: str) -> None:
    """The gate takes all that is judged."""
    program = PROGRAMS[name].sized(depth=1) if name in ONE_LAYER else PROGRAMS[name]
    traced = whole(program)
    ours, theirs = run_on_cores(traced, program.steps, CORES), by_xla(traced, program)
    right = run_plain(traced, program.steps)
    pairs = {
        "ours and XLA": (ours, theirs),
        "ours and TensorFlow": (ours, right),
        "XLA and TensorFlow": (theirs, right),
    }
    verdicts = {what: compare(found, expected) for what, (found, expected) in pairs.items()}
    words = " | ".join(f"{what}: {verdict}" for what, verdict in verdicts.items())
    assert all(verdict.outcome == "equal" for verdict in verdicts.values()), words


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NOT_LOWERED))
def test_what_is_not_lowered_says_why(name: str) -> None:
    """What comes to be lowered moves to ``JUDGED``."""
    with pytest.raises(TpuGraphError, match=re.escape(NOT_LOWERED[name])):
        by_xla(whole(PROGRAMS[name]), PROGRAMS[name])


def test_the_judge_sees_another_step() -> None:
    """Half of the rows are another training."""
    program = PROGRAMS["losses/running_sum_2"]
    half = trace(program, program.rows * CORES // 2)
    assert compare(run_on_cores(half, program.steps, CORES), by_xla(whole(program), program)).outcome == "different"
