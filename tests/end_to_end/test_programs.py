"""Programs of all manners train on cores as TensorFlow alone trains them: each graph is traced once, and split over the cores."""

import random
from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf
from sampling import part
from xla_judge import JUDGED, ONE_LAYER

from programs import COINCIDENCES, PROGRAMS, REGRESSIONS, Program, check, composed, find
from programs.parts import minimise, squares

LONG = ("attention/bert", "attention/xlnet")


def params(programs: list[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow if name.startswith(LONG) else ()) for name in programs]


def judge(program: Program, cores: int, session: dict[str, Any] | None = None) -> None:
    verdict = check(program, cores, session)
    assert verdict.outcome == "equal", str(verdict)


ELSEWHERE = {name for name in JUDGED if name not in ONE_LAYER}
"""What ``test_xla_judge`` trains in the same way, on 8 cores."""


@pytest.mark.parametrize("name", params(sorted(PROGRAMS.keys() - ELSEWHERE)[::16]))
def test_cores_train_as_the_plain_graph(name: str) -> None:
    """Every 16th program; ``tools/campaign.py --named=. --cores=4``, which ``.ci/run`` calls, runs them all."""
    judge(PROGRAMS[name], 4)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", params(part(sorted(PROGRAMS)[5::16], 4)))
def test_two_cores_and_one_train_as_the_plain_graph(name: str) -> None:
    """Every 64th program, with variables that are resources; with what the gate runs every 16th."""
    program = replace(PROGRAMS[name], resource=True)
    judge(program, 2)
    judge(replace(program, rows=2 * program.rows), 1)


@pytest.mark.parametrize("name", sorted(COINCIDENCES)[::5])
def test_sizes_that_agree_change_nothing(name: str) -> None:
    """Some pairs of sizes; ``.ci/run`` runs them all, as ``tools/campaign.py --named=:`` does."""
    judge(COINCIDENCES[name], 2)


@pytest.mark.parametrize("spec", REGRESSIONS[::8])
def test_what_was_wrong_once_trains_as_the_plain_graph(spec: str) -> None:
    """Every eighth; ``.ci/run`` runs them all, as ``tools/campaign.py --named==`` does."""
    judge(find(spec), 2)


def test_random_programs_are_simplified() -> None:
    source = "composed rows=4 open=1 sizes=22 reverse.0 dense.3 loop.14-1 loss=root"
    assert composed.shrunk(source, lambda text: "loop" in text) == "composed rows=4 open=1 sizes=22 loop.14-1"


@pytest.mark.parametrize("number", range(48))
def test_random_programs_train_as_the_plain_graph(number: int) -> None:
    """Those of ``tools/campaign.py --seed=7``; ``--shrink --only=LINE`` simplifies what fails here."""
    line = composed.draw(random.Random(f"7/{number}"))
    verdict = check(find(line), (2, 4)[number % 2])
    assert verdict.outcome in ("equal", "invalid"), f"{verdict} | {line}"


COMPILED = {"engine": "pjrt", "platform": "cpu"}


def rows_that_a_mask_chooses(rows: int) -> Any:
    error = squares(rows)
    return minimise(tf.reduce_mean(tf.boolean_mask(error, error > 0.1)))


def test_what_xla_refuses_is_unsupported_and_any_other_error_a_crash() -> None:
    """How many rows the mask leaves, the data decide: emulated cores run that, and no compiler for TPUs takes it."""
    program = Program("masked", rows_that_a_mask_chooses, rows=8)
    judge(program, 2)
    verdict = check(program, 2, COMPILED)
    assert verdict.outcome == "unsupported", str(verdict)
    assert "the size of a tensor depends on its values" in verdict.words
    assert "Where" in verdict.words
    judge(PROGRAMS["statistics/layer_norm_2"], 2, COMPILED)
    verdict = check(program, 2, {**COMPILED, "platform": "abacus"})
    assert (verdict.outcome, verdict.words) == ("refused", "there is no platform 'abacus'")
    verdict = check(program, 2, {**COMPILED, "abacus": True})
    assert verdict.outcome == "crashed", str(verdict)
    assert verdict.words.startswith("TypeError: ")


@pytest.mark.parametrize(("name", "words"), [
    ("ragged/marked_rows_behind_all_2", "in a way that has no form in StableHLO"),
    ("control/metrics_of_the_best_in_step_precision_2_2", "XLA has no kernel for DenseToDenseSetOperation"),
    ("loops/recurrence_of_words_made_before_flat_time_first_2", "its number of iterations has no known bound"),
])  # fmt: skip
def test_what_no_compiler_takes_is_unsupported_by_name(name: str, words: str) -> None:
    verdict = check(PROGRAMS[name], 2, COMPILED)
    assert verdict.outcome == "unsupported", str(verdict)
    assert words in verdict.words


@pytest.mark.parametrize("name", ["loops/scan_back_over_batch_1_open", "recurrent/dynamic_rnn_1_open"])
def test_open_batches_in_loops_are_compiled(name: str) -> None:
    """What their gradients pop from stacks are shapes, which XLA wants to know."""
    judge(PROGRAMS[name], 2, COMPILED)
