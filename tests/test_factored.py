"""Singular vectors of the matrix of the rows, whose gradient hangs on whether it has more rows than columns."""

from __future__ import annotations

import pytest

from programs import PROGRAMS, check


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_a_gradient_that_was_built_for_fewer_rows_than_columns_is_refused(rows: int) -> None:
    verdict = check(PROGRAMS["singular_vectors"], 4, rows=rows)
    assert verdict.outcome == "refused"
    assert (
        f"takes a matrix of {rows} by 4 of a core's rows, and of {4 * rows} by 4 of those of 4 cores" in verdict.words
    )


def test_a_matrix_with_no_more_rows_than_columns_of_all_cores_is_not() -> None:
    assert str(check(PROGRAMS["singular_vectors"], 2, rows=2)) == "equal"
