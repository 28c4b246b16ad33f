"""Programs of all manners train on cores as TensorFlow alone trains them on the whole batch."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from sampling import part
from spmd import JUDGED, ONE_LAYER

from programs import (
    COINCIDENCES,
    PROGRAMS,
    Program,
    Verdict,
    check,
    composed,
    find,
    generated,
    judged,
    made_of_rows,
    masked,
    row_numbers,
    shapes,
)
from programs.parts import minimise, squares
from programs.regressions import REGRESSIONS

LONG = ("albert", "bert", "gpt2", "xlnet")


def params(programs: list[str]) -> list[Any]:
    """The programs by name; the transformers are slow."""
    return [pytest.param(name, marks=pytest.mark.slow if name.startswith(LONG) else ()) for name in programs]


def judge(program: Program, cores: int, **options: Any) -> None:
    verdict = judged(program, cores, **options)
    assert verdict.outcome in (("equal", "noted", "refused") if program.doubtful else ("equal",)), str(verdict)


def judged_elsewhere(program: Program) -> bool:
    """Whether ``test_spmd_judge`` trains a program in the same way, on 8 cores."""
    return program.name in JUDGED and program.name not in ONE_LAYER and program.named and not program.doubtful


@pytest.mark.parametrize(
    "name", params(sorted(name for name in PROGRAMS if not judged_elsewhere(PROGRAMS[name]))[::24])
)
def test_cores_train_as_the_whole_batch(name: str) -> None:
    """Every 24th program; ``tools/campaign.py --named=. --cores=4``, which ``.ci/run`` calls, runs them all."""
    judge(PROGRAMS[name], 4)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", params(part(sorted(PROGRAMS)[::12], 4)))
def test_one_core_trains_as_the_plain_graph(name: str) -> None:
    """Every 48th program, with variables that are resources; with what the gate runs every twelfth.

    ``tools/campaign.py --named=. --cores=1`` runs them all.
    """
    judge(PROGRAMS[name], 1, resource=True)


TURNS = [name for place, name in enumerate(COINCIDENCES) if place // 4 % 4 == 0 and place % 4 == place // 16 % 4]


@pytest.mark.parametrize("name", params(TURNS))
def test_sizes_that_agree_change_nothing(name: str) -> None:
    """Every fourth pair of sizes in one of the transformers; ``.ci/run`` runs them all, as ``tools/campaign.py --named=:`` does."""
    judge(COINCIDENCES[name], 2)


def test_a_random_program_is_what_its_text_says() -> None:
    spec = {**generated.DEFAULT, "rows": 4, "first": "loop_max", "loss": "pairs", "open": True}
    assert generated.text(spec) == "rows=4 first=loop_max loss=pairs open=True"
    assert generated.parse(generated.text(spec)) == spec
    assert generated.parse("plain") == generated.DEFAULT


def test_a_failing_random_program_is_simplified_to_what_it_fails_for() -> None:
    source = "rows=4 first=loop_max second=dense loss=pairs clip=norm extra=sum"
    assert generated.shrunk(source, lambda text: "first=loop_max" in text) == "first=loop_max"


specs = st.fixed_dictionaries(
    {key: st.one_of(st.just(choices[0]), st.sampled_from(choices)) for key, choices in generated.FIELDS.items()}
)


@pytest.mark.parametrize("spec", REGRESSIONS[::12])
def test_what_was_wrong_once_trains_as_the_whole_batch(spec: str) -> None:
    """Every twelfth; ``.ci/run`` runs them all, as ``tools/campaign.py --named==`` does."""
    verdict = check(find(spec), 2)
    assert verdict.outcome == "equal", str(verdict)


def test_a_composition_is_simplified_to_the_words_that_it_fails_for() -> None:
    source = "composed rows=4 open=1 sizes=22 reverse.0 dense.3 loop.14-1"
    assert composed.shrunk(source, lambda text: "loop" in text) == "composed rows=4 open=1 sizes=22 loop.14-1"


def test_of_one_row_a_core_half_of_the_rows_is_no_number_of_the_model() -> None:
    """Of four rows (4 + 1) // 2 are two, of one row is one: no polynomial that both cores and the whole batch share but a line."""
    verdict = check(generated.made(generated.parse("rows=1 loss=top_k width=2 units=1")), 4)
    assert verdict.outcome == "equal", str(verdict)


@cache
def random_verdict(text: str, cores: int) -> Verdict:
    """Made once: of 66 random programs six are drawn again."""
    return check(generated.made(generated.parse(text)), cores)


@settings(max_examples=66, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(spec=specs, cores=st.sampled_from([2, 4]))
def test_random_programs_train_as_on_the_whole_batch(spec: dict[str, Any], cores: int) -> None:
    """``tools/campaign.py --shrink --only=SPEC`` simplifies what fails here."""
    verdict = random_verdict(generated.text(spec), cores)
    assume(verdict.outcome != "invalid")
    if spec["rows"] == 1 and verdict.outcome == "refused":  # by a constant that one row cannot be told from
        assert "as many as a core's batch has rows" in verdict.words or "a core's batch has 1 rows" in verdict.words
        return
    assert verdict.outcome == "equal", f"{verdict} | {generated.text(spec)}"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("first=best_rows", "'first/TopKV2' (TopKV2) takes rows of the batch up to a number made of 'first/TopKV2/k'"),
    ],
)
def test_a_row_that_cannot_be_told_from_a_single_number_is_refused(spec: str, words: str) -> None:
    verdict = check(generated.made(generated.parse(f"rows=1 {spec}")), 2)
    assert verdict.outcome == "refused", str(verdict)
    assert words in verdict.words


def test_places_on_one_core_are_never_taken_for_those_of_the_whole_batch() -> None:
    """There are as many sums as rows with members, of all cores: rows say their numbers among these."""
    verdict = check(row_numbers.means_of_members, 2)
    assert verdict.outcome == "equal", str(verdict)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("flatten", [False, True])
def test_segments_that_data_count_are_refused_beside_rows(each: bool, flatten: bool) -> None:
    verdict = check(lambda rows: row_numbers.sums_of_groups(rows, each, flatten), 2)
    assert verdict.outcome == "refused", str(verdict)
    assert "nothing says that each row has one" in verdict.words
    assert check(lambda rows: row_numbers.sums_of_groups(rows, each, flatten, fixed=True), 2).outcome == "equal"


def test_a_loop_over_one_row_behind_a_mean() -> None:
    verdict = check(generated.made(generated.parse("rows=1 second=map_rows third=gate_of_mean")), 2)
    assert verdict.outcome == "equal", str(verdict)


@pytest.mark.parametrize(("rows", "opened"), [(2, True), (3, False), (3, True), (5, False)])
def test_parts_of_rows_by_numbers_that_do_not_tell_which_grows_are_refused(rows: int, opened: bool) -> None:
    """Of an open batch, too, where a one is no number of rows; of two rows of another, the parts are the halves."""
    sizes = PROGRAMS["parts_by_number_half"].sizes

    def build(count: int) -> Any:
        return shapes.parts_by_number(count, **sizes, drop_remainder=not opened)

    verdict = check(build, 2, rows=rows)
    assert verdict.outcome == "refused", str(verdict)
    assert "which of the parts grows with the whole batch" in verdict.words


@pytest.mark.parametrize("taken", made_of_rows.ROWS_TAKEN)
@pytest.mark.parametrize("rows", [2, 4])
def test_gradients_of_single_rows_are_refused(taken: str, rows: int) -> None:
    verdict = check(lambda count: made_of_rows.gradients_of_rows(count, made_of_rows.ROWS_TAKEN[taken]), 2, rows=rows)
    assert verdict.outcome == "refused", str(verdict)
    assert "of the whole batch there are more than the graph has nodes for" in verdict.words


@pytest.mark.parametrize("opened", [False, True])
def test_rows_as_long_as_data_say_are_a_list_of_their_places(opened: bool) -> None:
    """A dense layer multiplies such a list: each core has those of its own rows there, which are found again behind it."""

    def build(rows: int) -> Any:
        return masked.sequences_up_to_the_longest(rows, lambda x, w: tf.tensordot(x, w, 1), not opened)

    verdict = check(build, 2)
    assert verdict.outcome == "equal", str(verdict)


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_repeated_as_often_as_data_say_are_refused(rows: int) -> None:
    verdict = check(masked.rows_repeated_as_often_as_data_say, 2, rows=rows)
    assert verdict.outcome == "refused", str(verdict)
    assert (
        "'Repeat/boolean_mask/Squeeze' of the whole batch, and a core holds entries of this core's rows"
        in verdict.words
    )


def test_the_hardest_of_chosen_rows_and_of_others_are_one_row_or_one_of_all() -> None:
    verdict = check(PROGRAMS["hardest_of_chosen_and_others_one_row"], 2)
    assert verdict.outcome == "refused", str(verdict)
    assert "takes rows of the batch up to a number made of 'TopKV2/k', which is 1" in verdict.words


def rows_that_a_mask_chooses(rows: int) -> Any:
    error = squares(rows)
    return minimise(tf.reduce_mean(tf.boolean_mask(error, error > 0.1)))


COMPILED = {"engine": "pjrt", "platform": "cpu"}


def test_what_xla_refuses_is_unsupported_and_any_other_error_a_crash() -> None:
    """How many rows the mask leaves, the data decide: emulated cores run that, and no compiler for TPUs takes it."""
    program = Program("masked", rows_that_a_mask_chooses)
    assert judged(program, 2).outcome == "equal"
    verdict = judged(program, 2, session=COMPILED)
    assert verdict.outcome == "unsupported", str(verdict)
    assert "the size of a tensor depends on its values" in verdict.words
    assert "Where" in verdict.words
    assert judged(PROGRAMS["layer_norm"], 2, session=COMPILED).outcome == "equal"
    verdict = judged(program, 2, session={**COMPILED, "platform": "abacus"})
    assert verdict.outcome == "crashed", str(verdict)
    assert verdict.words == "UsageError: there is no platform 'abacus'"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("marked_rows_behind_all", "in a way that has no form in StableHLO: 'boolean_mask/Where'"),
        ("metrics_of_the_best_in_step_precision_2", "XLA has no all-reduce of float64: 'CrossReplicaSum'"),
        ("as_long_as_the_longest_size", "the compiler for cpu refuses the step"),
        ("loop_longest", "nothing says how often it runs at most: 'while/LoopCond (LoopCond)'"),
    ],
)
def test_what_no_compiler_takes_is_unsupported_by_name(name: str, words: str) -> None:
    verdict = judged(PROGRAMS[name], 2, session=COMPILED)
    assert verdict.outcome == "unsupported", str(verdict)
    assert words in verdict.words


@pytest.mark.parametrize("name", ["steps_added_to_zeros_folded", "dynamic_rnn_open"])
def test_open_batches_in_loops_are_compiled(name: str) -> None:
    """What their gradients pop from stacks are shapes, which XLA wants to know."""
    verdict = judged(PROGRAMS[name], 2, session=COMPILED)
    assert verdict.outcome == "equal", str(verdict)
