"""What a flag says a constant is of the rows: how formulas are found, read and refused."""

from __future__ import annotations

import pytest

from programs import PROGRAMS, check
from tpugraph.partition.row_formulas import formulas_of, parted

SQUARE = "square_of_the_rows_form_of_4"


@pytest.mark.parametrize(
    ("number", "rows", "formulas"),
    [
        (16, 4, ["rows*rows", "4*rows"]),
        (12, 4, ["3*rows", "rows*(rows-1)"]),
        (6, 4, ["rows*(rows-1)/2"]),
        (3, 4, ["rows-1"]),
        (4, 4, ["rows"]),
        (1, 2, ["rows-1", "rows*(rows-1)/2", "(rows-1)*(rows-1)"]),
        (-16, 4, ["-(rows*rows)", "-(4*rows)"]),
        (1 / 16, 4, ["1/(rows*rows)", "1/(4*rows)"]),
        (0.3, 4, []),
        (5, 1, []),
        (1, 1, ["rows", "1/rows", "rows*rows"]),
    ],
)
def test_the_ways_in_which_a_number_is_made_of_rows(number: float, rows: int, formulas: list[str]) -> None:
    assert formulas_of(number, rows) == formulas


def test_a_flag_is_parted_into_names_and_formulas() -> None:
    assert parted(["a", "b/c=rows*rows"]) == {"a": "", "b/c": "rows*rows"}


def test_a_square_is_computed_of_all_rows() -> None:
    refused = check(PROGRAMS[SQUARE], 2)
    assert refused.outcome == "refused", str(refused)
    assert check(PROGRAMS[SQUARE], 2, batch_constants=("truediv/y=rows*rows",)).outcome == "equal"
    assert check(PROGRAMS[SQUARE], 2, batch_constants=("truediv/y=rows * (rows - 1) + rows",)).outcome == "equal"


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (
            "rows*(rows-1)",
            "'truediv/y' is not rows*(rows-1): that is 12 of the 4 rows of a core's batch, and it holds 16",
        ),
        ("1/(rows-4)", "'truediv/y' is not 1/(rows-4): that divides by zero of the 4 rows"),
        ("rows**2", "'rows**2' is no formula for 'truediv/y'"),
        ("rows*", "'rows*' is no formula for 'truediv/y'"),
        ("__import__('os')", "is no formula for 'truediv/y'"),
        ("columns*4", "is no formula for 'truediv/y'"),
        ("+".join(["rows"] * 40), "is no formula for 'truediv/y'"),
    ],
)
def test_what_is_no_formula_of_the_constant_is_refused(formula: str, words: str) -> None:
    verdict = check(PROGRAMS[SQUARE], 2, batch_constants=(f"truediv/y={formula}",))
    assert verdict.words.startswith("UsageError: ")
    assert words in verdict.words, str(verdict)


WHOLE = "beside_picked_row_half_way_4"
TAKEN = ("strided_slice/stack", "gradients/strided_slice_grad/StridedSliceGrad/begin")
BEHIND = ("strided_slice/stack_1", "gradients/strided_slice_grad/StridedSliceGrad/end")


@pytest.mark.parametrize("half", ["rows/2", "rows//2"])
def test_whole_numbers_are_divided_to_whole_numbers(half: str) -> None:
    formulas = (*(f"{name}={half}" for name in TAKEN), *(f"{name}={half}+1" for name in BEHIND))
    assert check(PROGRAMS[WHOLE], 2).outcome == "different"
    assert check(PROGRAMS[WHOLE], 2, batch_constants=formulas).outcome == "equal"


def test_a_formula_of_a_whole_number_has_no_fraction() -> None:
    verdict = check(PROGRAMS[WHOLE], 2, batch_constants=(f"{TAKEN[0]}=rows*0.5",))
    assert "'rows*0.5' has fractions, and 'strided_slice/stack' holds whole numbers" in verdict.words, str(verdict)
