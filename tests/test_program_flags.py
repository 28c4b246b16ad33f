"""What ``--batch_constants`` and ``--literals`` say of constants that may be made of the rows, or be numbers of the model."""

from __future__ import annotations

import pytest
from sampling import part

from programs import PROGRAMS, check, composed, constants_in_doubt, followed, generated, made_of_rows, matrices_of_rows

DOUBTED = [
    name for name in PROGRAMS
    if PROGRAMS[name].doubtful and PROGRAMS[name].build.__module__ in (made_of_rows.__name__, matrices_of_rows.__name__)
    and not name.startswith(("rows_times_a_matrix_by_numpy", "rows_weighed_by"))  # of more rows they have another size, too
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", part(DOUBTED, 12))
def test_flags_settle_what_a_number_is_made_of(name: str) -> None:
    """Every twelfth program; the gate takes the others."""
    program = PROGRAMS[name]
    verdict, ways = check(program, 2), [*followed(program, 2)]
    noted = (
        name.startswith(("rows_beside_their_number", "rows_beside_a_number_of_them")) and verdict.outcome == "different"
    )  # named in the report, as two is anywhere
    assert noted or verdict.outcome == "refused", str(verdict)
    assert all(ways), "nothing names the constant"
    told = ("if it is a number of the model, it stays", "that may be their number", "takes", "picks", "bins")
    assert noted or any(words in verdict.words for words in told)
    made = {tuple(way): check(program, 2, batch_constants=tuple(way)) for way in ways}
    assert any(verdict.outcome == "equal" for verdict in made.values()), str(made)
    named = [*{name.partition("=")[0]: None for way in ways for name in way}]
    kept = check(program, 2, literals=tuple(named), kept=named)
    fewer_bins = name.startswith(
        "bins_of_keys"
    )  # which other constants of the whole graph, the shapes of gradients, do not fit
    assert kept.outcome == ("invalid" if fewer_bins else "equal"), str(kept)


@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if name.startswith(("ones_that_are_the_row", "numbers_that_are_put_beside"))]
)
def test_flags_settle_a_one_that_may_be_the_row(name: str) -> None:
    verdict, ways = check(PROGRAMS[name], 2), [*followed(PROGRAMS[name], 2)]
    assert verdict.outcome == "refused", str(verdict)
    assert "which is 1: a core's batch has one row, and if it is made of that" in verdict.words
    assert check(PROGRAMS[name], 2, batch_constants=tuple(ways[0])).outcome == "equal"


def test_rows_numbered_in_floats_may_be_spread_from_zero_to_one() -> None:
    build = made_of_rows.rows_weighed_by_float_numbers
    verdict = check(build, 2, rows=2)
    assert verdict.outcome == "refused", str(verdict)
    assert "it numbers them, as np.arange, or spreads them from 0 to 1, as np.linspace" in verdict.words
    assert (
        check(build, 2, rows=2, batch_constants=tuple(constants_in_doubt(PROGRAMS[build.__name__], 2))).outcome
        == "equal"
    )
    assert check(build, 2, rows=3).outcome == "equal"


def test_a_table_as_long_as_a_batch_is_told_from_its_rows_by_a_flag() -> None:
    """TensorFlow folds the length of the table, and that of the rows, which are found in it."""
    verdict = check(made_of_rows.places_among_borders, 2, rows=4)
    assert verdict.outcome == "refused", str(verdict)
    assert check(made_of_rows.places_among_borders, 2, rows=4, literals=("borders",)).outcome == "equal"
    assert check(made_of_rows.places_among_borders, 2, rows=3).outcome == "equal"


def test_a_flag_that_contradicts_the_graph_is_refused() -> None:
    """Of three rows, three more states than labels are tiled, and taken, which the graph tells: said to be the rows, nothing fits."""
    build = PROGRAMS["transcription_dense"]
    tiled = "ctc_loss_dense/Tile/multiples"
    assert check(build, 2, rows=3).outcome == "equal"
    assert check(build, 2, rows=3, literals=(tiled,)).outcome == "equal"
    verdict = check(build, 2, rows=3, batch_constants=(tiled, "ctc_loss_dense/strided_slice_11/stack"))
    assert verdict.outcome == "refused", str(verdict)
    assert "the sizes of the graph contradict each other" in verdict.words


def test_a_flag_says_what_one_row_cannot() -> None:
    program = generated.made(generated.parse("rows=1 first=best_rows"))
    assert check(program, 2, literals=("first/TopKV2/k",)).outcome == "equal"


@pytest.mark.parametrize("words", ["einsum.17 sort.46", "halves.60 einsum.17 sort.46"])
def test_a_shape_of_twos_by_which_two_rows_are_sorted_is_told_by_a_flag(words: str) -> None:
    """The shape of places of the sorted is no batch's, though one of the batch's happens to be as large."""
    program = composed.made(f"composed rows=2 open=0 sizes=42 {words}")
    verdict = check(program, 2)
    assert verdict.outcome == "refused", str(verdict)
    assert "number made of 'sort/Shape', which is 2, as many as a core's batch has rows" in verdict.words
    assert check(program, 2, batch_constants=("sort/Shape",)).outcome == "equal"


@pytest.mark.parametrize("rows", [2, 3])
def test_the_median_of_all_pairs_is_half_of_their_square(rows: int) -> None:
    program = PROGRAMS[f"median_of_all_pairs_{rows}"]
    named = constants_in_doubt(program, 2)
    assert [name.partition("=")[2] for name in named] == ["rows*rows//2"] * 2
    assert check(program, 2, batch_constants=tuple(named)).outcome == "equal"
