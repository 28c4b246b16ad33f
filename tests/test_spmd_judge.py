"""Our partition of a step trains as XLA's: b rows on each of 8 emulated cores against the whole batch divided by XLA.

XLA knows nothing of tpugraph's analysis, and places its collectives by itself; see ``spmd``. A loss or variable may
differ by 1e-3 of the tensor's largest element and 1e-5 beside that, and how far a variable has moved by 2e-2 of the
farthest such move: the tolerance of ``programs.harness``. Where the two differ, TensorFlow alone at 8*b rows says who
is right.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from spmd import run_partitioned

from programs import PROGRAMS, Program, plain, trace
from programs.harness import Training, compare, run_on_cores
from tpugraph.support.errors import TpuGraphError

CORES = 8

QUICK = ("batch_norm_by_hand", "clip_global_norm_adam", "embedding", "in_batch_softmax", "loop_max")
"""What runs among the quick tests."""

JUDGED = {
    "networks and optimizers": "optimizer_sgd optimizer_adam optimizer_momentum lamb adafactor sharpness_aware "
    "accumulate_by_arithmetic",
    "convolutions": "convolution",
    "batch statistics": "batch_norm_fused batch_norm_by_hand batch_norm_by_hand_adam variance_of_batch "
    "covariance_of_batch",
    "embeddings": "embedding embedding_adam embedding_clipped bag_of_words matrix_factors partitioned_embedding "
    "two_lookups_adam",
    "attention": "bert bert_one_hot albert gpt2 xlnet attention_over_batch",
    "rows against rows": "in_batch_softmax contrastive triplets hardest_triplets top_k_hard_examples "
    "top_k_gathered sorted_batch",
    "numbers of the whole batch": "log_sum_exp_of_batch sum_of_means_one_row product_of_means softmax_over_batch "
    "mixture_of_experts maximum_of_batch minibatch_deviation",
    "order of the rows": "first_half neighbours rolled_rows running_sum shuffled_rows scan_over_batch segments",
    "clipping": "clip_global_norm clip_global_norm_adam",
    "several losses": "multi_task gan_together gan_alternating wasserstein gradient_penalty",
    "loops": "loop_max loop_until_mean_settles map_over_batch nested_loops dynamic_rnn recurrent_network "
    "dynamic_rnn_alike recurrent_masked_mean",
    "branches": "accumulate_in_cond_with_average branch_by_any branch_by_batch skip_bad_steps",
    "counts": "count_rows count_rows_float metric_of_input metrics_in_step rate_by_rows",
}
"""The programs, by what they are about."""

WRONG = {
    "count_rows_float": "refused: 'Size' may count rows or be a number of the model",
}
"""Where XLA trains as TensorFlow does and our partition does not, in its words."""

NOT_LOWERED = {
    "loop_longest": "has a gradient, and nothing says how often it runs at most",
    "mean_of_chosen_rows": "the size of a tensor depends on its values in a way that has no form in StableHLO",
    "recurrent_open": "must be a compile-time constant",
}
"""Programs that today's compiler does not lower for one core, and why: they cannot be judged here."""

FATAL = {
    "sampled_softmax": "Check failed: ShapeUtil::IsScalarWithElementType",
    "sampled_softmax_fixed": "Check failed: ShapeUtil::IsScalarWithElementType",
}
"""Programs at which XLA's partitioner ends its process: nothing here runs them."""

NAMES = [name for names in JUDGED.values() for name in names.split()]
assert set(WRONG) | set(QUICK) <= set(NAMES), "what is marked is judged"


def params(names: list[str]) -> list[Any]:
    """The programs, with what is slow and what fails today marked."""
    slow = {name: [] if name in QUICK else [pytest.mark.slow] for name in names}
    wrong = {name: [pytest.mark.xfail(reason=WRONG[name], strict=True)] if name in WRONG else [] for name in names}
    return [pytest.param(name, marks=[*slow[name], *wrong[name]]) for name in names]


def by_xla(program: Program) -> tuple[Training, Counter[str]]:
    traced = trace(program, program.rows * CORES, resource=program.resource)
    return run_partitioned(traced, program.steps, CORES)


def by_tensorflow(program: Program) -> Training:
    found, fault = plain(program, program.rows * CORES, steps=program.steps, resource=program.resource)
    assert found is not None, fault
    return found


@pytest.mark.parametrize("name", params(NAMES))
def test_our_partition_trains_as_that_of_xla(name: str) -> None:
    program = PROGRAMS[name]
    ours = run_on_cores(trace(program, program.rows, resource=program.resource), program.steps, CORES, {}, {})
    theirs, collectives = by_xla(program)
    assert collectives, "XLA has not divided the step"
    verdict = compare(ours, theirs)
    if verdict.outcome != "equal":
        right = by_tensorflow(program)
        pytest.fail(
            f"{verdict} | ours and TensorFlow: {compare(ours, right)} | XLA and TensorFlow: {compare(theirs, right)}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WRONG))
def test_xla_is_right_where_our_partition_is_not(name: str) -> None:
    theirs, collectives = by_xla(PROGRAMS[name])
    assert collectives, "XLA has not divided the step"
    verdict = compare(theirs, by_tensorflow(PROGRAMS[name]))
    assert verdict.outcome == "equal", str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NOT_LOWERED))
def test_what_is_not_lowered_says_why(name: str) -> None:
    """What comes to be lowered moves to ``JUDGED``."""
    with pytest.raises(TpuGraphError, match=re.escape(NOT_LOWERED[name])):
        by_xla(PROGRAMS[name])


def test_the_judge_sees_another_step() -> None:
    """Half of the rows are another training."""
    program = PROGRAMS["optimizer_sgd"]
    theirs, _ = by_xla(program)
    other = run_on_cores(trace(program, program.rows, resource=program.resource), program.steps, CORES // 2, {}, {})
    assert compare(other, theirs).outcome == "different"
